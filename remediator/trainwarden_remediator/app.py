"""The remediator program: connects configuration, journal, observers, engine and notifier."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import aiohttp

from trainwarden_exporter.config_file.loader import READ_SECONDS
from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.webserver.service import Readiness, Reloader, WebConfigFile
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.config.exporter_file import ExporterFile
from trainwarden_remediator.config.schema import Config, Setup, load_setup
from trainwarden_remediator.credentials.bearer_tokens import BearerTokens
from trainwarden_remediator.engine.alert_poller import AlertPoller
from trainwarden_remediator.engine.context import EngineContext
from trainwarden_remediator.engine.control_loop import ControlLoop
from trainwarden_remediator.engine.failsafe import Failsafe
from trainwarden_remediator.engine.unhandled_alerts import UnhandledAlerts
from trainwarden_remediator.evidence.collector import EvidenceCollector
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.holds.hold_file import Hold, read_holds
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.notify.advice import advice
from trainwarden_remediator.notify.answered import as_of_now
from trainwarden_remediator.notify.held_back import is_fresh, is_overtaken
from trainwarden_remediator.notify.http import HttpSender
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.notify.notifier import Notifier
from trainwarden_remediator.notify.outbox import Outbox
from trainwarden_remediator.notify.runbook_advice import stack_logs
from trainwarden_remediator.observation.active_alerts import (
    ActiveAlertLister,
    Fetch,
    alert_fetcher,
    status_fetcher,
)
from trainwarden_remediator.observation.local_checkpoints import local_checkpoint_observers
from trainwarden_remediator.observation.local_fallback import LocalObserver
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import HttpObserver, Observer
from trainwarden_remediator.policy.manual_restart import announced_key
from trainwarden_remediator.report.current_state import (
    CurrentState,
    read_current_state,
    read_exporter_state,
)
from trainwarden_remediator.runtime.clock import WallClock
from trainwarden_remediator.telemetry.state import BreakerFigures, JournalSummary, RemediatorState

log = logging.getLogger(__name__)


class Remediator:
    """The program, created from a remediator.yml and entered as a context manager to run.

    `mode` overrides the mode of the file. `check` is called with the configuration at the start and
    at each reload, and raises ConfigError to refuse it. Raises ConfigError, JournalError or
    NoThreadError if the program cannot start.
    """

    def __init__(
        self,
        path: Path,
        *,
        mode: Literal["observe", "act"] | None = None,
        check: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self.path = path
        self._mode = mode
        self._check = check
        self.setup, self.tokens = self._read()
        self.readiness = Readiness()
        self.reloader = Reloader(self._reload)
        self._exporter_file = ExporterFile(path)
        self._rereading = asyncio.Lock()
        self._reread_at = -math.inf
        self.clock = WallClock()
        self._resources = AsyncExitStack()
        self._web_config_file: WebConfigFile | None = None

    async def __aenter__(self) -> Self:
        config, clock = self.setup.config, self.clock
        async with AsyncExitStack() as opened:
            self.journal = await asyncio.to_thread(Journal, config.journal, clock=clock.now)
            opened.callback(self.journal.close)
            self.outbox = Outbox(
                self.journal.file,
                clock=self.clock.now,
                started=self._started_at,
                holds=self._holds,
            )
            self._session = await opened.enter_async_context(aiohttp.ClientSession())
            self.failsafe = Failsafe(
                self.journal,
                config.failsafe,
                self._observer(),
                LocalObserver(self.setup).observe,
                local_checkpoint_observers(self.setup),
                clock=self.clock,
            )
            self.control_loop = ControlLoop(
                EngineContext(
                    setup=self.setup,
                    journal=self.journal,
                    observer=self._observer(),
                    clock=self.clock,
                    tracker=DescendantTracker(self.journal),
                    evidence=EvidenceCollector(self.journal, self._observer).collect,
                    failsafe=self.failsafe,
                    reread_exporter_file=self.reread_exporter_file,
                ),
                # No decisions before the start is complete, and none during shutdown.
                deciding=lambda: self.readiness.ready,
            )
            self.failsafe.wake = self.control_loop.wake
            self.alert_poller = AlertPoller(
                self.journal,
                config.alertmanager.pull,
                self._fetch(),
                clock=self.clock,
                wake=self.control_loop.wake,
            )
            self.unhandled_alerts = UnhandledAlerts(
                self.journal,
                self.setup,
                self._fetch(),
                self._fetch_status(),
                observer=self._observer(),
                clock=self.clock,
            )
            self.active_alerts = ActiveAlertLister(
                config.alertmanager.pull, self._fetch(), clock=self.clock
            )
            sender = HttpSender(self._session)
            self.notifier = Notifier(
                config.notify,
                self.outbox,
                sender,
                clock=clock,
                mode=config.mode,
                holds=self._holds,
                advise=self._advise,
                as_of_now=self._as_of_now,
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

    def _started_at(self, key: WorkerKey) -> float:
        """When an operator started a worker, or the trainer of a run; 0.0 if that is not known."""
        found = self.setup.announced.workers.get(announced_key(key, self.setup.trainer_keys))
        return 0.0 if found is None else found.announcement.announced_at

    def _needs_nobody(self, run: str, worker: str) -> bool:
        """Whether an operator stopped a worker, or removed the last file that names its run."""
        is_gone = bool(run) and self.setup.run_config(run) is None
        return is_gone or self.setup.is_stopped(run, worker)

    def program_state(self, webhooks: Mapping[int, int]) -> RemediatorState:
        """Returns the current state, read from the journal; blocks.

        `webhooks` counts the webhook responses by HTTP status.
        """
        config = self.setup.config
        taken_over = self.setup.started, self._needs_nobody
        try:
            summary = JournalSummary(
                counters=self.journal.counters(),
                timestamps=self.journal.timestamps(),
                given_up=self.journal.given_up(
                    self.clock.now() - config.alert_stale_after, *taken_over
                ),
                given_up_before=self.journal.given_up_before(*taken_over),
                open_incidents=self.journal.count_open(),
                oldest_action=self.journal.oldest_action(),
                breaker=self._breaker_figures(),
                queue_states=self.outbox.queue_states(config.notify.receivers),
            )
        except JournalError:
            summary = None
        holds = self._holds()
        return RemediatorState(
            mode=config.mode,
            paused=any(hold.everything for hold in holds),
            holds=holds,
            reload_successful=self.reloader.successful and not self._exporter_file.problem,
            config_file=self.path,
            workers_hash=self.setup.workers_hash,
            reload_timestamp=self.reloader.success_timestamp,
            web_config_loaded=self._web_config_file.last_reload_successful
            if self._web_config_file
            else None,
            webhooks=webhooks,
            journal=summary,
            journal_writable=not self.journal.file.last_write_failed,
            last_cycle_at=self.control_loop.last_cycle_at,
            aborted_cycles=self.control_loop.aborted_cycles,
            pulled_at=self.alert_poller.last_answer_at,
            alerts_stale=self.failsafe.alerts_stale,
            failsafe_active=self.failsafe.is_active,
        )

    def _holds(self) -> Sequence[Hold]:
        hold_file = self.setup.config.hold_file
        return read_holds(hold_file, self.clock.now(), self.clock.since_boot())

    def _advise(self, notification: Notification) -> str:
        since = self.clock.now() - self.setup.config.alert_stale_after
        actions = self.journal.past_actions(since)
        return advice(notification, self.setup, actions, stack_logs(), self._holds())

    async def _as_of_now(self, notification: Notification) -> Notification | None:
        """Returns a notification as it is true now; None for a call that was answered.

        Also for a healing of what has failed again since.
        """
        event, exporter = notification.event, None
        if notification.notification_event != "healed":
            return await asyncio.to_thread(self._true_now, notification)
        if not is_fresh(event, self.clock.now()):
            with suppress(ObservationError):
                exporter = await self._observer().observe()
        overtaken = is_overtaken(event, exporter, self.setup, self.clock.now())
        return None if overtaken else notification

    def _true_now(self, notification: Notification) -> Notification | None:
        return as_of_now(notification, self.setup, self._holds())

    def _breaker_figures(self) -> BreakerFigures:
        config = self.setup.config
        return BreakerFigures(
            breaker_open=self.journal.breaker().opened_at is not None,
            breaker_actions=self.journal.count_breaker_actions(config.breaker.window),
            breaker_limit=config.breaker_limit(),
            blocked_since={
                reason: since
                for reason, since in self.journal.blocked_since().items()
                # A remediator without targets was never meant to act.
                if reason != "unknown_target" or config.targets
            },
        )

    def attach_web_file(self, web_config_file: WebConfigFile) -> None:
        """Reloads `web_config_file` at each reload too, and shows whether that succeeded."""
        self._web_config_file = web_config_file
        self.reloader.add_step(web_config_file.reload)

    def is_alive(self) -> bool:
        """Whether the control loop and the failsafe make progress."""
        return self.control_loop.is_alive() and self.failsafe.is_alive()

    def _read(self) -> tuple[Setup, BearerTokens | None]:
        setup = load_setup(self.path, mode=self._mode)
        self._check(setup.config)
        tokens = None
        if setup.config.token_file is not None:
            tokens = BearerTokens(setup.config.token_file)
            try:
                bounded_call(setup.config.token_file, tokens.read, seconds=READ_SECONDS)
            except TimeoutError as error:
                raise ConfigError(
                    Problem(setup.config.token_file, None, "", error.strerror or "")
                ) from error
        return setup, tokens

    async def renew_token(self) -> None:
        """Writes a new token for Alertmanager to read; after an error the old one stays valid.

        Called when the port is bound and not open yet: until then another program may have had it,
        and the token with which Alertmanager sends alerts there.
        """
        if self.tokens is not None:
            try:
                await asyncio.to_thread(self.tokens.renew)
            except OSError as error:
                log.error("the token was not renewed", extra={"error": str(error)})

    async def _reload(self) -> None:
        setup, tokens = await asyncio.to_thread(self._read)
        if setup.config.journal != self.setup.config.journal:
            raise ConfigError(Problem(self.path, None, "journal", "changing it requires a restart"))
        self.tokens = tokens
        self._use(setup)

    async def reread_exporter_file(self, *, max_age: float = 0.0) -> str:
        """Uses exporter.yml as it is now. Returns why it cannot be used, or "".

        Does nothing if it was read less than `max_age` seconds ago.
        """
        if self.clock.monotonic() - self._reread_at < max_age:
            return self._exporter_file.problem
        async with self._rereading:  # a decision meanwhile waits, and does not use the old content
            before = self.setup
            setup = await asyncio.to_thread(self._exporter_file.read_if_changed, before)
            if setup is not before and self.setup is before:  # no reload meanwhile
                log.info("the exporter's file has changed and was read again")
                self._use(setup)
            self._reread_at = self.clock.monotonic()
            return self._exporter_file.problem

    def _use(self, setup: Setup) -> None:
        self.setup = setup
        self.control_loop.reconfigure(setup, self._observer())
        self.alert_poller.reconfigure(setup.config.alertmanager.pull, self._fetch())
        asked = self._fetch(), self._fetch_status(), self._observer()
        self.unhandled_alerts.reconfigure(setup, *asked)
        self.active_alerts.reconfigure(setup.config.alertmanager.pull, self._fetch())
        own = LocalObserver(setup).observe, local_checkpoint_observers(setup)
        self.failsafe.reconfigure(setup.config.failsafe, self._observer(), *own)
        self.notifier.reconfigure(setup.config.notify, mode=setup.config.mode)

    def _observer(self) -> Observer:
        config = self.setup.config
        return HttpObserver(self._session, config.exporter, config.alertmanager)

    def _fetch(self) -> Fetch:
        return alert_fetcher(self._session, self.setup.config.alertmanager)

    def _fetch_status(self) -> Callable[[], Awaitable[bytes]]:
        return status_fetcher(self._session, self.setup.config.alertmanager)

    async def read_current_state(self) -> CurrentState:
        """Returns what the exporter and Alertmanager show now, for a report."""
        return await read_current_state(self.setup, self._session, self.clock)

    async def read_exporter_state(self) -> ExporterState | None:
        """Returns what the exporter shows now, for the report of one incident."""
        return await read_exporter_state(self.setup, self._session)
