"""The remediator as a whole: what binds configuration, journal, eyes and engine together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlencode

import aiohttp

from trainwarden_exporter.app import WebFile
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.serving.reload import Reloader
from trainwarden_exporter.serving.service import Readiness
from trainwarden_remediator.brake import Brake
from trainwarden_remediator.config import Setup, load_setup
from trainwarden_remediator.door import Door
from trainwarden_remediator.engine import Engine
from trainwarden_remediator.evidence.taking import EvidenceTaker
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.guards import Guards
from trainwarden_remediator.holdfile import read_holds
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.metrics import Condition, Record
from trainwarden_remediator.notifying.notifier import Notifier
from trainwarden_remediator.notifying.posting import HttpPost
from trainwarden_remediator.owneyes import OwnEyes
from trainwarden_remediator.ownsaves import own_saves
from trainwarden_remediator.pull import Fetch, Puller
from trainwarden_remediator.records import Event
from trainwarden_remediator.tokens import Tokens
from trainwarden_remediator.world import BoxEyes, Eyes, get


class WallClock:
    """The time of day, and real waiting."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Remediator:
    """Built from a remediator.yml; entered as a context to run.

    `mode` overrides the file's. Raises ConfigError, JournalError or NoThreadError when it cannot be
    started.
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
            self.brake = Brake(
                self.journal,
                self.setup.config.brake,
                self._eyes(),
                OwnEyes(self.setup).look,
                own_saves(self.setup),
                clock=self._clock,
            )
            self.engine = Engine(
                self.setup,
                self.journal,
                self._eyes(),
                clock=self._clock,
                # Not before it has started, and no more once it has been told to stop.
                deciding=lambda: self.readiness.ready,
                evidence=EvidenceTaker(self.journal, self._eyes).take,
                brake=self.brake,
            )
            self.brake.wake = self.engine.wake
            self.puller = Puller(
                self.journal,
                self.setup.config.alertmanager.pull,
                self._fetch(),
                clock=self._clock,
                wake=self.engine.wake,
            )
            config = self.setup.config
            post = HttpPost(self._session)
            self.notifier = Notifier(
                config.notify, self.journal.outbox, post, clock=self._clock, mode=config.mode
            )
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
                open_incidents=self.journal.count_open(),
                oldest_action=self.journal.oldest_action(),
                guards=self._guards(),
                queues=self.journal.outbox.queues(config.notify.receivers),
            )
        except JournalError:
            record = None
        holds = read_holds(config.hold_file, self._clock.now())
        return Condition(
            mode=config.mode,
            held=any(hold.everything for hold in holds),
            holds=holds,
            reload_successful=self.reloader.successful,
            reload_timestamp=self.reloader.success_timestamp,
            web_file_successful=self._web_file.last_reload_successful if self._web_file else None,
            webhooks=webhooks,
            record=record,
            turned_at=self.engine.turned_at,
            broken_off=self.engine.broken_off,
            pulled_at=self.puller.asked_at,
            silent=self.brake.silent,
            braking=self.brake.on,
        )

    def _guards(self) -> Guards:
        config = self.setup.config
        return Guards(
            breaker_open=self.journal.latched() is not None,
            breaker_actions=self.journal.counted_actions(config.breaker.within),
            breaker_limit=config.breaker.limit(len(config.targets)),
            blocked_since=self.journal.blocked_since(),
        )

    def reload_with(self, web_file: WebFile) -> None:
        """Reload `web_file` at each reload too, and show how it fared."""
        self._web_file = web_file
        self.reloader.also(web_file.reload)

    def is_alive(self) -> bool:
        """Whether its work goes on."""
        return self.engine.is_alive() and self.brake.is_alive()

    @property
    def path(self) -> Path:
        """Its configuration file."""
        return self._path

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
        self.puller.use(setup.config.alertmanager.pull, self._fetch())
        own = OwnEyes(setup).look, own_saves(setup)
        self.brake.use(setup.config.brake, self._eyes(), *own)
        self.notifier.use(setup.config.notify, mode=setup.config.mode)

    def _eyes(self) -> Eyes:
        config = self.setup.config
        return BoxEyes(
            self._session,
            exporter_url=config.exporter.url,
            alertmanager_url=config.alertmanager.url,
            exporter=Door(config.exporter),
            alertmanager=Door(config.alertmanager),
        )

    def _fetch(self) -> Fetch:
        config = self.setup.config
        door = Door(config.alertmanager)

        async def fetch(filters: Sequence[str]) -> bytes:
            query = urlencode([("filter", one) for one in filters])
            url = f"{config.alertmanager.url}/api/v2/alerts?{query}"
            return await get(self._session, url, door)

        return fetch
