"""The remediator as a whole: what binds configuration, journal, eyes and engine together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import aiohttp

from trainwarden_exporter.app import WebFile
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.serving.reload import Reloader
from trainwarden_exporter.serving.service import Readiness
from trainwarden_remediator.config import Setup, load_setup
from trainwarden_remediator.engine import Engine, is_held
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal import Event, Journal
from trainwarden_remediator.metrics import Condition, Record
from trainwarden_remediator.tokens import Tokens
from trainwarden_remediator.world import BoxEyes, Eyes


class WallClock:
    """The time of day, and real waiting."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Remediator:
    """Built from a remediator.yml; entered as a context to run.

    `mode` overrides the file's. Raises ConfigError or JournalError when it cannot be started.
    """

    def __init__(self, path: Path, *, mode: Literal["observe", "act"] | None = None) -> None:
        self._path = path
        self._mode = mode
        self.setup, self.tokens = self._read()
        self.readiness = Readiness()
        self.reloader = Reloader(self._reload)
        self._clock = WallClock()
        self._resources = AsyncExitStack()
        self._web_file: WebFile | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            self.journal = await asyncio.to_thread(
                Journal, self.setup.config.journal, clock=self._clock.now
            )
            opened.callback(self.journal.close)
            self._session = await opened.enter_async_context(aiohttp.ClientSession())
            self.engine = Engine(self.setup, self.journal, self._eyes(), clock=self._clock)
            self._resources = opened.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._resources.aclose()

    def condition(self, webhooks: Mapping[int, int]) -> Condition:
        """How it stands now, read from the journal; blocks. `webhooks`: answers by HTTP status."""
        config = self.setup.config
        try:
            record = Record(
                tallies=self.journal.tallies(),
                moments=self.journal.moments(),
                given_up=self.journal.given_up(self._clock.now() - config.forget_after),
                open_incidents=len(self.journal.open_incidents()),
            )
        except JournalError:
            record = None
        return Condition(
            mode=config.mode,
            held=is_held(config.hold_file),
            reload_successful=self.reloader.successful,
            reload_timestamp=self.reloader.success_timestamp,
            web_file_successful=self._web_file.last_reload_successful if self._web_file else None,
            webhooks=webhooks,
            record=record,
        )

    def reload_with(self, web_file: WebFile) -> None:
        """Reload `web_file` at each reload too, and show how it fared."""
        self._web_file = web_file
        self.reloader.also(web_file.reload)

    def now(self) -> float:
        """Unix seconds."""
        return self._clock.now()

    def newest_events(self, count: int) -> tuple[Event, ...]:
        """The last `count` lines of the journal, the newest first; blocks. Raises JournalError."""
        return self.journal.newest_events(count)

    def _read(self) -> tuple[Setup, Tokens | None]:
        setup = load_setup(self._path, mode=self._mode)
        tokens = None
        if setup.config.token_file is not None:
            tokens = Tokens(setup.config.token_file)
            tokens.read()
        return setup, tokens

    async def _reload(self) -> None:
        setup, tokens = await asyncio.to_thread(self._read)
        if setup.config.journal != self.setup.config.journal:
            raise ConfigError(
                Problem(self._path, None, "journal", "changing it takes a restart of the program")
            )
        self.setup, self.tokens = setup, tokens
        self.engine.use(setup, self._eyes())

    def _eyes(self) -> Eyes:
        config = self.setup.config
        return BoxEyes(
            self._session,
            exporter_url=config.exporter.url,
            alertmanager_url=config.alertmanager.url,
        )
