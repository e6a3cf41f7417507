"""Probes a fake engine through nights of simulated time."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from fake_engines import FakeEngine, Request, hang
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.health_model import HealthReason, ProcessInfo
from trainwarden_exporter.inference.http_client import Send
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.process_activity import ProcessActivity
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget

MIDNIGHT = 1_790_000_000.0
"""Unix time at which every night begins."""


class _SkippingSelector(selectors.DefaultSelector):
    """Advances the time instead of waiting."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "every awaited event is impossible"
            self.skipped += max(0.0, timeout)
        return events


class NightLoop(asyncio.SelectorEventLoop):
    """An event loop whose time advances only while all tasks wait."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped


class Line:
    """A `ProbeClient` that sends requests to a fake without a network, with the same timeouts."""

    def __init__(self, fake: FakeEngine, timeout: float, key: str | None) -> None:
        self.fake = fake
        self.frozen_processes: tuple[bool, ...] = (False,)
        """Whether each API process is frozen; connections use them in turn."""
        self.visits = 0
        self._timeout = timeout
        self._key = key

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        frozen = self.frozen_processes[self.visits % len(self.frozen_processes)]
        self.visits += 1

        async def ask(url: str, request: HttpRequest) -> HttpResponse:
            return await self._ask(url, request, frozen=frozen)

        yield ask

    async def _ask(self, url: str, request: HttpRequest, *, frozen: bool) -> HttpResponse:
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self.fake.listening:
            return HttpResponse(HttpOutcome.REFUSED, detail="connection refused")
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {name.lower(): value for name, value in request.headers.items()}
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key}"
        body = b"" if request.body is None else json.dumps(request.body).encode()
        timeout = self._timeout if request.timeout is None else request.timeout
        try:
            async with asyncio.timeout(timeout):
                if frozen:
                    await hang()
                reply = await self.fake.respond(Request(request.method, path, headers, body))
        except TimeoutError:
            return HttpResponse(HttpOutcome.SILENT, seconds=loop.time() - began, detail="no answer")
        seconds = loop.time() - began
        return HttpResponse(HttpOutcome.ANSWERED, int(reply.status), reply.body.encode(), seconds)


class Night:
    """One server and its prober."""

    def __init__(self, fake: FakeEngine, settings: dict[str, Any], key: str | None) -> None:
        defaults = {"name": "a", "engine": fake.name, "url": "http://server:8000"}
        config = ServerConfig.model_validate({**defaults, **settings})
        target = ServerTarget("run", "a", fake.name, config.url, config)
        self.fake = fake
        self.line = Line(fake, config.timeout, key)
        self.started: float | None = None
        """Start of the server's process, in seconds of this night; None for no process."""
        self.knows_process = False
        self.activity: Callable[[], ProcessActivity | None] = lambda: None
        """What the server's processes do."""
        self.logged_update: float | None = None
        """Start of a weight update according to the log, in seconds of this night."""
        loop = asyncio.get_running_loop()
        self.prober = Prober(
            target,
            build_engine(fake.name, config, config.url or ""),
            self.line,
            process=self._process,
            activity=lambda _: self.activity(),
            logged_update=lambda _: (
                None if self.logged_update is None else MIDNIGHT + self.logged_update
            ),
            clock=loop.time,
            now=lambda: MIDNIGHT + loop.time(),
        )

    @property
    def health(self) -> ServerHealth:
        assert self.prober.health is not None
        return self.prober.health

    @property
    def reason(self) -> HealthReason | None:
        return self.prober.health.reason if self.prober.health else None

    @property
    def completions(self) -> int:
        """Returns the number of requested completions."""
        paths = ("POST /v1/completions", "POST /generate", "POST /completion")
        return sum(1 for asked in self.fake.asked if asked in paths)

    def start_process(self) -> None:
        """Starts a process of the server's worker."""
        self.knows_process = True
        self.started = asyncio.get_running_loop().time()

    def end_process(self) -> None:
        """Ends the process of the server's worker."""
        self.knows_process, self.started = True, None

    async def pass_time(self, seconds: float) -> set[HealthReason | None]:
        """Advances the time; returns all reasons observed meanwhile."""
        loop = asyncio.get_running_loop()
        end, seen = loop.time() + seconds, set()
        while loop.time() < end:
            await asyncio.sleep(min(0.5, end - loop.time()))
            seen.add(self.reason)
        return seen

    async def until(self, reason: HealthReason, *, within: float) -> float:
        """Waits for `reason` and returns the seconds; fails if it takes longer than `within`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self.reason is not reason:
            assert loop.time() - began < within, f"{self.reason} after {within} s, not {reason}"
            await asyncio.sleep(0.5)
        return loop.time() - began

    def _process(self, _: ServerTarget) -> ProcessInfo | None:
        if not self.knows_process:
            return None
        if self.started is None:
            return ProcessInfo()
        age = asyncio.get_running_loop().time() - self.started
        return ProcessInfo(MIDNIGHT + self.started, age)


def watch(
    fake: FakeEngine,
    story: Callable[[Night], Awaitable[None]],
    *,
    key: str | None = None,
    **settings: Any,
) -> None:
    """Runs `story` with a probed server; `settings` are its configuration."""

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


def reasons(*found: Iterable[HealthReason | None]) -> set[HealthReason | None]:
    """Returns the union of several sets of reasons."""
    return set().union(*found)
