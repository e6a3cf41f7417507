"""Records critical alerts on which the remediator does not act, so that you are notified once.

No playbook handles them, or nobody may restart their worker, or the mode is `observe`. Also a run
that stands still until the remediator has the proof to restart it: quietly, as that needs no
operator, and may be an evaluation that is not logged.

Only alerts that Alertmanager reports to nobody: if the operator has given its receiver
a destination, that one rings.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.responsibility import REMEDIATOR, STALL
from trainwarden_remediator.alertmanager.api import (
    ListedAlert,
    parse_destinations,
    parse_listed_alerts,
)
from trainwarden_remediator.alertmanager.webhook_payload import WATCHDOG, Alert
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.engine.alert_causes import (
    CAUSE_SHOWN,
    MEMORY_OVER_LIMIT,
    describe_cause,
    stall_over_at,
)
from trainwarden_remediator.evidence.sources import read_log_facts
from trainwarden_remediator.exceptions import JournalError, ObservationError
from trainwarden_remediator.journal.event_text import describe_reason, printable
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.queries import LAST_ACTIONS
from trainwarden_remediator.model import BLOCKED_SECONDS, NOT_FINITE, Decision, Incident, Verdict
from trainwarden_remediator.observation.active_alerts import Fetch
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import Observer
from trainwarden_remediator.policy.alert_end import OUTLASTS_RUN, alert_end
from trainwarden_remediator.policy.alert_handling import CHECKPOINT_DAMAGED
from trainwarden_remediator.policy.halts import halted_runs
from trainwarden_remediator.policy.manual_restart import announced_key
from trainwarden_remediator.policy.situation import situation_of
from trainwarden_remediator.runtime.clock import Clock, ConditionTimer

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0

CONFIRM_SECONDS = 20.0
"""How long an alert must be active: the alert of its cause may come a moment later and inhibit it,
and a symptom that is inhibited until a worker was restarted may end a moment later."""

RESOLVE_SECONDS = 600.0
"""How long an alert must be absent while the host is watched. After a start of Alertmanager,
Prometheus or the exporter, or of all of them, it fires again only once the rule has waited for its
`for`, and for samples of its windows: seven minutes at most."""

BLIND = frozenset({"TrainingExporterDown", "TrainingCollectorFailing"})
"""While one of these fires, the absence of another alert says nothing about the host."""

NOTIFIED_OTHERWISE = frozenset(
    {"TrainingRemediationGaveUp", "TrainingRemediationBreakerOpen", "TrainingRemediatorDeaf"}
)
"""Alerts about what the remediator notifies itself, as `gave_up`, `breaker_opened` and
`alerts_stale`."""

MAX_DETAIL_LENGTH = 400
"""Characters of a description in a message."""

ATTEMPTS = 3
"""How often the exporter is asked for the step before a loss that is not finite: no message before
it names the checkpoint to go back to, and a host under load answers late."""

MAX_RECEIVERS = 16
"""Most names of receivers that are remembered; there are two at most as shipped."""

_PROPOSED = Decision(Verdict.WAIT, "observe_mode").text

_UNOWNED = frozenset(
    {
        Decision(Verdict.REFUSE, "unknown_playbook").text,
        Decision(Verdict.REFUSE, "unknown_target").text,
        _PROPOSED,
    }
)

_KINDS = ("unhandled", "stalled")
"""The events that begin here."""

FetchStatus = Callable[[], Awaitable[bytes]]
"""Returns the response of `/api/v2/status`. Raises ObservationError."""


@dataclass(slots=True)
class _Tracked:
    """An alert that was listed, and for how long it has been active or absent."""

    alert: Alert
    kind: str = "unhandled"
    recorded: bool = False
    ended_by: Mapping[str, object] = field(default_factory=dict)
    """The facts about the end of its run, or what an operator has done, that ended it, if so."""
    is_over: bool = False
    """Whether it does not come back: also by what came once it had ended."""
    active: ConditionTimer = field(default_factory=lambda: ConditionTimer(max_gap=POLL_SECONDS))
    absent: ConditionTimer = field(default_factory=lambda: ConditionTimer(max_gap=POLL_SECONDS))


class UnhandledAlerts:
    """Asks Alertmanager periodically, and records alerts that begin and end."""

    def __init__(
        self,
        journal: Journal,
        setup: Setup,
        fetch: Fetch,
        fetch_status: FetchStatus,
        *,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._tracked: dict[str, _Tracked] | None = None
        """By fingerprint: after a start of Prometheus the same alert has another start."""
        self._failure = ""
        self._own_receivers: set[str] = set()
        self.reconfigure(setup, fetch, fetch_status, observer)

    def reconfigure(
        self, setup: Setup, fetch: Fetch, fetch_status: FetchStatus, observer: Observer
    ) -> None:
        """Uses another configuration from the next poll on."""
        self._setup, self._fetch, self._fetch_status = setup, fetch, fetch_status
        self._observer = observer

    def received_through(self, receiver: str) -> None:
        """Notes a receiver at Alertmanager that sends to this remediator: it calls nobody."""
        if len(self._own_receivers) < MAX_RECEIVERS:
            self._own_receivers.add(receiver)

    async def run(self) -> None:
        """Polls forever, while a receiver wants to know."""
        while True:
            receivers = self._setup.config.notify.receivers
            if any(one in receiver.events for receiver in receivers for one in _KINDS):
                try:
                    await self._poll()
                    self._failure = ""
                except (ObservationError, JournalError, MemoryError) as error:
                    failure = str(error) or "out of memory"
                    if failure != self._failure:
                        log.warning("unhandled alerts not known", extra={"error": failure})
                    self._failure = failure
            await self._clock.sleep(POLL_SECONDS)

    async def _poll(self) -> None:
        if self._tracked is None:
            open_ones = await asyncio.to_thread(self._journal.unhandled_alerts)
            self._tracked = {one.fingerprint: _Tracked(one, recorded=True) for one in open_ones}
        pull = self._setup.config.alertmanager.pull
        listed = parse_listed_alerts(await self._fetch([] if pull is None else pull.match))
        matchers = () if pull is None else pull.matchers
        present = {
            one.alert.fingerprint: one
            for one in listed
            if all(matcher.matches(one.alert.labels) for matcher in matchers)
        }
        dogs = [one for one in listed if one.alert.name == WATCHDOG]
        if not dogs and pull is not None:
            dogs = list(parse_listed_alerts(await self._fetch([f'alertname="{WATCHDOG}"'])))
        await self._record_begun(self._tracked, present)
        watched = bool(dogs) and all(one.alert.name not in BLIND for one in present.values())
        await self._record_ended(self._tracked, present, watched=watched)

    async def _record_begun(
        self, tracked: dict[str, _Tracked], present: Mapping[str, ListedAlert]
    ) -> None:
        now = self._clock.monotonic()
        due = []
        for key, one in present.items():
            if (kind := self._kind(one.alert)) is not None:
                known = tracked.setdefault(key, _Tracked(one.alert, kind))
                lasted = known.active.update(one.active, now)
                enough = CONFIRM_SECONDS if kind == "unhandled" else BLOCKED_SECONDS
                if not known.recorded and lasted >= enough:
                    due.append((known, one))
        if not due:
            return
        destinations = parse_destinations(await self._fetch_status(), self._own_receivers)
        unowned = await asyncio.to_thread(self._unowned)
        attempted = await asyncio.to_thread(self._journal.attempted)
        restarted = {key.run for key in attempted if key in self._setup.trainer_keys}
        for known, one in due:
            # Its trainer is dead, and has an incident that calls an operator where that is needed.
            if one.alert.name == STALL and one.alert.run in restarted:
                continue
            # An alert with a playbook has events of its own, unless nobody acts on it.
            if one.alert.remediation and one.alert.fingerprint not in unowned:
                continue
            # What an operator has ended may fire from before that, after a start of the stack.
            if not destinations.isdisjoint(one.receivers) or self._alert_end(one.alert):
                continue
            if known.kind == "stalled" and not await self._is_new(known):
                continue
            await self._record(known.kind, known.alert, unowned.get(one.alert.fingerprint))
            known.recorded = True

    def _kind(self, alert: Alert) -> str | None:
        """Returns what the alert is recorded as, if it lasts, or None."""
        if alert.labels.get("severity") == "critical":
            return None if alert.name in NOTIFIED_OTHERWISE else "unhandled"
        return "stalled" if self._stall_handling(alert) else None

    def _stall_handling(self, alert: Alert) -> str:
        """Returns what the remediator does if the stall that a warning reports lasts, else ""."""
        situation = situation_of(self._setup, self._clock.now())
        who, handling = situation.stall_handling(alert.run)
        return handling if alert.name == STALL and who == REMEDIATOR else ""

    async def _is_new(self, stall: _Tracked) -> bool:
        """Whether its limit is known, and an earlier remediator has not recorded it already."""
        with suppress(ObservationError):
            run = (await self._observer.observe()).runs.get(stall.alert.run)
            before = await asyncio.to_thread(self._journal.last_stall, stall.alert.fingerprint)
            if run and before and (run.progress_at or math.inf) <= before.starts_at:
                stall.alert, stall.recorded = before, True
            # What has died or made its last step has messages of its own.
            other = run and (run.undecided or run.last_step_made or run.trainer_processes == 0)
            return not stall.recorded and not other
        return False

    async def _stall_facts(self, alert: Alert) -> Mapping[str, object]:
        """Returns what is done about a stall, or how an operator has halted the run.

        Also when its limit is over at the latest, if that is known and no hang is proved.
        """
        exporter = await self._observe()
        halted = "" if exporter is None else halted_runs(exporter).get(alert.run, "")
        if halted:
            return {"halted": halted}
        run = None if exporter is None else exporter.runs.get(alert.run)
        limit = None if run is None else stall_over_at(run)
        until = {} if limit is None else {"until": limit}
        return {"handling": self._stall_handling(alert), **until}

    async def _record_ended(
        self, tracked: dict[str, _Tracked], present: Mapping[str, ListedAlert], *, watched: bool
    ) -> None:
        now = self._clock.monotonic()
        critical = [one.alert for one in present.values() if self._kind(one.alert) == "unhandled"]
        firing = {(one.name, one.run, one.worker) for one in critical}
        stalled = {one.alert.run for one in present.values() if one.alert.name == STALL}
        for key, known in list(tracked.items()):
            # A message names no more than these: the return of one of two lost GPUs is no end.
            named = known.alert.name, known.alert.run, known.alert.worker
            absent = key not in present and named not in firing
            if known.kind == "stalled":
                absent = known.alert.run not in stalled
            if key not in present and not known.is_over:
                facts = dict(await self._end_facts(known.alert))
                known.is_over = bool(facts)
                if known.absent.seconds >= CONFIRM_SECONDS:
                    facts.pop("detail", None)
                known.ended_by = facts
            # What an operator has stopped does not come back after a start of the stack.
            soon = known.is_over or known.kind == "stalled"
            enough = CONFIRM_SECONDS if soon else RESOLVE_SECONDS
            if not known.recorded and key not in present:
                del tracked[key]
            elif (absent_for := known.absent.update(absent and watched, now)) >= enough:
                if known.kind == "unhandled":
                    lasted = {"absent_seconds": round(absent_for)}
                    await self._write("unhandled_ended", known.alert, **lasted, **known.ended_by)
                elif not known.is_over and not await self._record_moved(known.alert):
                    continue
                del tracked[key]

    async def _record_moved(self, alert: Alert) -> bool:
        """Records that a run goes on, unless something that ended its stall is notified itself.

        Returns False where it is not seen to have moved yet: a hang that is not proved for a while.
        """
        try:
            run = (await self._observer.observe()).runs.get(alert.run)
        except ObservationError:
            return False
        if run is None or run.finished or run.progress_at is None or run.trainer_processes == 0:
            return True
        if run.progress_at <= alert.starts_at:
            return False
        actions = await asyncio.to_thread(self._journal.last_actions, LAST_ACTIONS)
        if any(one.key.run == alert.run and one.intent_at > alert.starts_at for one in actions):
            return True
        lasted = round(max(self._clock.now() - CONFIRM_SECONDS - alert.starts_at, 0.0))
        await self._write("stalled", alert, lasted_seconds=lasted, step=run.step)
        return True

    async def _end_facts(self, alert: Alert) -> Mapping[str, object]:
        """Returns the facts about what has ended an alert for good, if that is known."""
        run = None
        if not alert.name.startswith(OUTLASTS_RUN):
            with suppress(ObservationError):
                run = (await self._observer.observe()).runs.get(alert.run)
        if run is None or not run.finished:
            end = self._alert_end(alert)
            return {"detail": end} if end else {}
        spoilt = run.spoilt if alert.name == NOT_FINITE else {}
        return {"detail": "its run has finished", **spoilt}

    def _alert_end(self, alert: Alert) -> str:
        """Returns what ends an alert, else ""."""
        situation = situation_of(self._setup, self._clock.now())
        key = WorkerKey(alert.run, alert.worker)
        end = alert_end(alert.name, key, alert.starts_at, situation)
        return "" if end is None else end.what

    def _unowned(self) -> Mapping[str, Incident]:
        """Returns the incidents of this host on which the remediator does not act.

        No target or playbook of the file answers them, or it only observes.
        """
        runs = {"", *(run.name for run in self._setup.exporter_config.runs)}
        return {
            one.fingerprint: one
            for one in self._journal.open_incidents()
            if one.run in runs and one.last_decision in _UNOWNED
        }

    async def _record(self, kind: str, alert: Alert, incident: Incident | None) -> None:
        facts: dict[str, Any] = {}
        if kind == "stalled":
            facts |= await self._stall_facts(alert)
        if detail := await self._detail(alert):
            facts |= {"detail": detail}
        if kind == "unhandled":
            facts |= await self._log_facts(alert)
        if incident is not None and incident.last_decision == _PROPOSED:
            facts |= {"proposed": str(incident.id)}
        elif incident is not None:
            _, _, reason = incident.last_decision.partition(" ")
            facts |= {"refused": describe_reason(reason, incident.last_detail)}
        await self._write(kind, alert, **facts)

    async def _write(self, kind: str, alert: Alert, **facts: Any) -> None:
        facts |= {"alert": alert.name, "run": alert.run, "worker": alert.worker}
        facts |= {"fingerprint": alert.fingerprint, "starts_at": alert.starts_at}
        await asyncio.to_thread(self._journal.record_event, kind, **facts)

    async def _log_facts(self, alert: Alert) -> Mapping[str, str]:
        """Returns which log an operator reads, and how it ends; empty if its disk does not answer.

        An alert without an incident has no evidence that would show it.
        """
        key = announced_key(WorkerKey(alert.run, alert.worker), self._setup.trainer_keys)
        read = partial(read_log_facts, key, self._setup)
        with suppress(OSError):
            return await asyncio.to_thread(bounded_call, f"logs of {alert.run}", read)
        return {}

    async def _detail(self, alert: Alert) -> str:
        """Returns the description of an alert, or what the exporter shows of its cause.

        That is so of a damaged checkpoint, of a stall, of memory and of a value that is not finite.
        Empty for any other alert with a playbook: its description tells what the remediator does.
        """
        if alert.name in CAUSE_SHOWN:
            exporter = await self._observe(ATTEMPTS if alert.name == NOT_FINITE else 1)
            lacks = alert.run in self._setup.without_checkpoints
            found = (
                None if exporter is None else describe_cause(alert, exporter, lacks_folder=lacks)
            )
            if alert.name in (CHECKPOINT_DAMAGED, MEMORY_OVER_LIMIT) or found:
                return printable(found or "")[:MAX_DETAIL_LENGTH]
        if alert.remediation or self._stall_handling(alert):
            return ""
        text = printable(" ".join(alert.annotations.get("description", "").split()))
        return text[:MAX_DETAIL_LENGTH].rstrip(".")

    async def _observe(self, attempts: int = 1) -> ExporterState | None:
        """Returns what the exporter shows; None if it answers none of the attempts."""
        for _ in range(attempts):
            with suppress(ObservationError):
                return await self._observer.observe()
        return None
