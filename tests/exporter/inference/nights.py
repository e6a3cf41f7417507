"""Watches a fake engine through nights that pass as fast as they can be computed."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from fake_engines import FakeEngine, Request, hang
from trainwarden_exporter.inference.asking import Ask
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.questions import Answer, Contact, Question
from trainwarden_exporter.inference.target import Sighting, Target
from trainwarden_exporter.inference.verdict import ProcessFact, Reason

MIDNIGHT = 1_790_000_000.0
"""Unix time at which every night begins."""


class _SkippingSelector(selectors.DefaultSelector):
    """Does not wait for time to pass: it lets it have passed."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "nothing is awaited that could ever come"
            self.skipped += max(0.0, timeout)
        return events


class NightLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everybody waits."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped


class Line:
    """Stands in for an `Asker`: asks a fake without any network, but just as patiently."""

    def __init__(self, fake: FakeEngine, timeout: float, key: str | None) -> None:
        self.fake = fake
        self.frozen_processes: tuple[bool, ...] = (False,)
        """Of each API process, whether it is frozen; visits go round."""
        self.visits = 0
        self._timeout = timeout
        self._key = key

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Ask]:
        frozen = self.frozen_processes[self.visits % len(self.frozen_processes)]
        self.visits += 1

        async def ask(url: str, question: Question) -> Answer:
            return await self._ask(url, question, frozen=frozen)

        yield ask

    async def _ask(self, url: str, question: Question, *, frozen: bool) -> Answer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self.fake.listening:
            return Answer(Contact.REFUSED, detail="connection refused")
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {name.lower(): value for name, value in question.headers.items()}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        body = b"" if question.body is None else json.dumps(question.body).encode()
        patience = self._timeout if question.patience is None else question.patience
        try:
            async with asyncio.timeout(patience):
                if frozen:
                    await hang()
                reply = await self.fake.respond(Request(question.method, path, headers, body))
        except TimeoutError:
            return Answer(Contact.SILENT, seconds=loop.time() - began, detail="no answer")
        seconds = loop.time() - began
        return Answer(Contact.ANSWERED, int(reply.status), reply.body.encode(), seconds)


class Night:
    """One server, and whoever watches it."""

    def __init__(self, fake: FakeEngine, settings: dict[str, Any], key: str | None) -> None:
        defaults = {"name": "a", "engine": fake.name, "url": "http://server:8000"}
        config = ServerConfig.model_validate({**defaults, **settings})
        target = Target("run", "a", fake.name, config.url, config)
        self.fake = fake
        self.line = Line(fake, config.timeout, key)
        self.started: float | None = None
        """When the server's process started, in seconds of this night; None for no process."""
        self.knows_process = False
        self.told_update: float | None = None
        """Since when the log tells of a weight update, in seconds of this night."""
        loop = asyncio.get_running_loop()
        self.prober = Prober(
            target,
            build_engine(fake.name, config, config.url or ""),
            self.line,
            process=self._process,
            told_update=lambda _: None if self.told_update is None else MIDNIGHT + self.told_update,
            clock=loop.time,
            now=lambda: MIDNIGHT + loop.time(),
        )

    @property
    def sighting(self) -> Sighting:
        assert self.prober.sighting is not None
        return self.prober.sighting

    @property
    def reason(self) -> Reason | None:
        return self.prober.sighting.reason if self.prober.sighting else None

    @property
    def completions(self) -> int:
        """Tokens that were asked for so far."""
        paths = ("POST /v1/completions", "POST /generate", "POST /completion")
        return sum(1 for asked in self.fake.asked if asked in paths)

    def start_process(self) -> None:
        """Let a process of the server's worker have started now."""
        self.knows_process = True
        self.started = asyncio.get_running_loop().time()

    def end_process(self) -> None:
        """Let there be none."""
        self.knows_process, self.started = True, None

    async def pass_time(self, seconds: float) -> set[Reason | None]:
        """Let time pass; all that the server was found to be meanwhile."""
        loop = asyncio.get_running_loop()
        end, seen = loop.time() + seconds, set()
        while loop.time() < end:
            await asyncio.sleep(min(0.5, end - loop.time()))
            seen.add(self.reason)
        return seen

    async def until(self, reason: Reason, *, within: float) -> float:
        """Wait until the server is found to be so; how long it took. Fails if it takes longer."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.reason is not reason:
            assert loop.time() - began < within, f"{self.reason} after {within} s, not {reason}"
            await asyncio.sleep(0.5)
        return loop.time() - began

    def _process(self, _: Target) -> ProcessFact | None:
        if not self.knows_process:
            return None
        if self.started is None:
            return ProcessFact()
        age = asyncio.get_running_loop().time() - self.started
        return ProcessFact(MIDNIGHT + self.started, age)


def watch(
    fake: FakeEngine,
    story: Callable[[Night], Awaitable[None]],
    *,
    key: str | None = None,
    **settings: Any,
) -> None:
    """Tell `story` of a server that is watched; `settings` are those of its configuration."""

    async def night() -> None:
        one = Night(fake, settings, key)
        task = asyncio.create_task(one.prober.run())
        try:
            await story(one)
        finally:
            task.cancel()
            await asyncio.wait([task])

    with asyncio.Runner(loop_factory=NightLoop) as runner:
        runner.run(night())


def reasons(*found: Iterable[Reason | None]) -> set[Reason | None]:
    """All of several nights' findings."""
    return set().union(*found)
