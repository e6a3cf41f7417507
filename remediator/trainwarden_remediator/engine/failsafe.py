"""The failsafe: raises a local low-memory alert when Alertmanager has gone silent.

It does not act itself. Its alert is handled as every other: the same journal, playbook, budgets,
holds, mode and verification. Only the observation differs: the failsafe decides whether its alert
fires, and observes the host directly when the exporter does not respond.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.alertmanager.api import AlertState, is_silenced
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.limits import FailsafeSettings
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.local_fallback import CheckpointObserver, LocalFallback
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import (
    FAILSAFE_FINGERPRINT,
    AlertmanagerState,
    Observer,
    Snapshot,
)
from trainwarden_remediator.runtime.clock import Clock, ConditionTimer
from trainwarden_remediator.runtime.memory_reserve import MemoryReserve

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""Seconds between two checks."""
MAX_OBSERVATION_SECONDS = 10.0
"""Seconds for which one observation counts at most."""

RECOVERY_SECONDS = 30.0
"""Seconds of sufficient memory before the alert resolves and the reserve is allocated again."""

SOME_STALLED, FULL_STALLED = 0.2, 0.05
"""Share of the time that some, or all, processes wait for memory which counts as stalling."""

ALIVE_SECONDS = 60.0

LABELS: Mapping[str, str] = {
    "alertname": "TrainingLocalBrake",
    "remediation": "relieve_memory",
    "severity": "critical",
    "source": "brake",
}
"""Labels of the failsafe's alert; silences are matched against them."""


class Failsafe:
    """Monitors the watchdog alert, and memory once the watchdog has stopped arriving.

    `observe` reads memory and workers of this host, `checkpoint_observers` the checkpoints of each
    run; both block and raise ObservationError.
    """

    def __init__(
        self,
        journal: Journal,
        settings: FailsafeSettings,
        observer: Observer,
        observe: Callable[[], ExporterState],
        checkpoint_observers: Sequence[CheckpointObserver],
        *,
        clock: Clock,
        thread_factory: Callable[[str], SerialThread] = SerialThread,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._local = LocalFallback(thread_factory)
        self._silence = ConditionTimer(max_gap=MAX_OBSERVATION_SECONDS)
        self._shortage = ConditionTimer(max_gap=MAX_OBSERVATION_SECONDS)
        self._calm = ConditionTimer(max_gap=MAX_OBSERVATION_SECONDS)
        self._last_heartbeat: float | None = None
        self._stalled: Mapping[tuple[str, str], float] = {}
        self._seen_at = 0.0
        self._alert: Alert | None = None
        self._last_alive_at = clock.monotonic()
        self._reserve = MemoryReserve(settings.reserve)
        self._reserve_released_at = -math.inf
        self.reconfigure(settings, observer, observe, checkpoint_observers)
        self.alerts_stale = False
        """Whether the watchdog alert has not arrived for too long."""
        self.wake: Callable[[], None] = lambda: None
        """Called when the failsafe raises its alert."""

    def reconfigure(
        self,
        settings: FailsafeSettings,
        observer: Observer,
        observe: Callable[[], ExporterState],
        checkpoint_observers: Sequence[CheckpointObserver],
    ) -> None:
        """Uses other settings and observers from the next check on."""
        self._settings = settings
        self._observer = observer
        self._local.reconfigure(observe, checkpoint_observers)

    @property
    def is_active(self) -> bool:
        """Whether the failsafe's alert fires."""
        return self._alert is not None

    def is_alive(self) -> bool:
        """Whether the checks are still running."""
        return self._clock.monotonic() - self._last_alive_at < ALIVE_SECONDS

    def release_reserve(self) -> None:
        """Frees the memory reserve for a while, for another part of the program."""
        self._reserve_released_at = self._clock.monotonic()
        self._reserve.release()

    async def run(self) -> None:
        """Checks forever."""
        await asyncio.to_thread(self._reserve.allocate)
        first = True
        while True:
            try:
                if first:
                    await asyncio.to_thread(self._resolve_leftover_alerts)
                    first = False
                await self._check()
            except JournalError as error:
                log.error("journal failed", extra={"error": str(error)})
            except MemoryError:
                self._reserve.release()  # for the next check
            self._last_alive_at = self._clock.monotonic()
            await self._clock.sleep(CHECK_SECONDS)

    async def with_failsafe_view(self, snapshot: Snapshot) -> Snapshot:
        """Returns `snapshot` with the view for the failsafe's own alert, while that alert fires."""
        if not self.is_active:
            return snapshot
        exporter, unknown = snapshot.exporter, snapshot.unknown
        if exporter is None:
            try:
                exporter = await self._local.observe_all()
            except ObservationError as error:
                unknown = f"{unknown}; {error}"
        silences = snapshot.alerts.silences if snapshot.alerts else ()
        state = AlertState.SILENCED if is_silenced(LABELS, silences) else AlertState.ACTIVE
        alerts = AlertmanagerState({FAILSAFE_FINGERPRINT: state}, silences)
        return replace(snapshot, failsafe=Snapshot(alerts, exporter, unknown))

    async def observe(self) -> ExporterState:
        """Returns the exporter's state, or the local one if that fails while the alert fires.

        Raises ObservationError.
        """
        try:
            return await self._observer.observe()
        except ObservationError:
            if not self.is_active:
                raise
            return await self._local.observe_all()

    async def alerts(self) -> AlertmanagerState:
        """Returns Alertmanager's state. Raises ObservationError."""
        return await self._observer.alerts()

    async def _check(self) -> None:
        settings, now = self._settings, self._clock.monotonic()
        heartbeat = (await asyncio.to_thread(self._journal.timestamps)).get("watchdog")
        silent_for = self._silence.update(heartbeat == self._last_heartbeat, now)
        self._last_heartbeat = heartbeat
        await self._record_pipeline_state(silent_for >= settings.watchdog_timeout, heartbeat)
        if not (self.alerts_stale and settings.enabled):
            self._shortage.update(False, now)
            await self._resolve_alert()
            return
        try:
            exporter = await self._observer.observe()
        except ObservationError:
            try:
                exporter = await self._local.observe_memory()
            except ObservationError as error:
                log.error("failsafe cannot observe the host", extra={"error": str(error)})
                # The cause may be a lack of memory: leave some for the next check.
                self._reserve.release()
                return
        await self._evaluate(exporter)

    async def _record_pipeline_state(self, silent: bool, heartbeat: float | None) -> None:
        if silent == self.alerts_stale:
            return
        if silent:
            log.error("watchdog alert stopped arriving", extra={"last": heartbeat})
            facts = {} if heartbeat is None else {"last": heartbeat}
            await asyncio.to_thread(self._journal.record_event, "alerts_stale", **facts)
        else:
            log.info("watchdog alert arrives again")
            await asyncio.to_thread(self._journal.record_event, "alerts_resumed")
        self.alerts_stale = silent

    async def _evaluate(self, exporter: ExporterState) -> None:
        settings, now = self._settings, self._clock.monotonic()
        short = exporter.memory_available_bytes < exporter.memory_floor_bytes
        stalls = self._is_stalling(exporter, now)
        lasted = self._shortage.update(short, now)
        calm = self._calm.update(not short, now)
        enough = settings.stalled_shortage_duration if stalls else settings.shortage_duration
        if self.is_active and calm >= RECOVERY_SECONDS:
            await self._resolve_alert()
        elif self.is_active or (short and lasted >= enough):
            await self._raise_alert(exporter)
        elif not short:
            await self._take_reserve()

    def _is_stalling(self, exporter: ExporterState, now: float) -> bool:
        before, then = self._stalled, self._seen_at
        self._stalled, self._seen_at = exporter.memory_stalled, now
        if not 0 < now - then <= MAX_OBSERVATION_SECONDS:
            return False
        limits = {"some": SOME_STALLED, "full": FULL_STALLED}
        return any(
            key in before and (total - before[key]) / (now - then) >= limits[key[1]]
            for key, total in exporter.memory_stalled.items()
        )

    async def _raise_alert(self, exporter: ExporterState) -> None:
        self._reserve.release()
        alert = self._alert
        if alert is None:
            alert = Alert(FAILSAFE_FINGERPRINT, self._clock.now(), firing=True, labels=LABELS)
            log.error(
                "failsafe raised its alert",
                extra={
                    "available": int(exporter.memory_available_bytes),
                    "floor": int(exporter.memory_floor_bytes),
                },
            )
        await asyncio.to_thread(self._journal.record_alerts, [alert], counted=False)
        self._alert = alert
        self.wake()

    async def _resolve_alert(self) -> None:
        if self._alert is not None:
            over = replace(self._alert, firing=False)
            await asyncio.to_thread(self._journal.record_alerts, [over], counted=False)
            self._alert = None
            log.info("failsafe resolved its alert")
        await self._take_reserve()

    async def _take_reserve(self) -> None:
        if self._clock.monotonic() - self._reserve_released_at >= RECOVERY_SECONDS:
            await asyncio.to_thread(self._reserve.allocate)

    def _resolve_leftover_alerts(self) -> None:
        """Resolves alerts that an earlier run of the program left firing."""
        left = [
            Alert(FAILSAFE_FINGERPRINT, incident.starts_at, firing=False, labels=LABELS)
            for incident in self._journal.open_incidents()
            if incident.fingerprint == FAILSAFE_FINGERPRINT and not incident.resolved
        ]
        if left:
            self._journal.record_alerts(left, counted=False)
