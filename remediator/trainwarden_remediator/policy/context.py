"""The input of a decision: the state of the remediator and one rung of a ladder. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Condition, Rung
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Budget, Target
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.model import (
    CLOSED_BREAKER,
    Approval,
    BreakerState,
    Decision,
    Incident,
    Need,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.observation.snapshot import Snapshot

_Subject = tuple[str, str, str]
"""Playbook, run and worker of an incident."""

PENDING_DECISIONS = frozenset({"", "act restart", "wait busy", "wait larger_worker_first"})
"""Last decisions of an incident whose worker is still to be restarted."""


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """One rung that is being decided.

    A worker that started after `condition_started_at` (Unix seconds) was restarted by something
    else. `ladder_exhausted`: the rung was tried as often as allowed and no other is left.
    `in_follow_up`: the condition has healed and the run makes no progress; the alert may be over.
    """

    incident: Incident
    condition: Condition
    rung: Rung
    index: int
    state: PolicyState
    now: float
    condition_started_at: float
    ladder_exhausted: bool = False
    in_follow_up: bool = False

    def affected_worker(self, target: Target) -> WorkerKey:
        """The worker that has the condition; the trainer may be restarted for another one."""
        named = WorkerKey(self.incident.run, self.incident.worker)
        another = self.rung.target == "trainer" and named.worker
        return named if another or named in target.keys else target.key

    def need(self, target: Target) -> Need:
        """What a restart of `target` is to end."""
        since = self.condition_started_at if self.in_follow_up else None
        return Need(self.condition, self.affected_worker(target), since)

    @property
    def observes(self) -> bool:
        """Whether no action may follow: the mode is observe, and this incident is not approved."""
        return self.state.config.mode == "observe" and self.incident.id not in self.state.approvals

    def decide(
        self, verdict: Verdict, reason: Reason, target: Budget | None = None, detail: str = ""
    ) -> Decision:
        return Decision(verdict, reason, target, detail, self.index)

    def wait(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.decide(Verdict.WAIT, reason, target, detail)

    def busy(self, action: PastAction, target: Budget | None = None) -> Decision:
        """A decision to wait for the end of `action`."""
        return self.wait("busy", target, f"of {'/'.join(filter(None, action.key))}")

    def refuse(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.decide(Verdict.REFUSE, reason, target, detail)


@dataclass(frozen=True)
class PolicyState:
    """What a decision rests on. `snapshot` is None until one was taken."""

    setup: Setup
    holds: Sequence[Hold] = ()
    """Holds that operators set."""
    incidents: Sequence[Incident] = ()
    """All open incidents, including the incident that is decided."""
    actions: Sequence[PastAction] = ()
    """The actions within the budgets' windows, those of open incidents, and the last one of each
    target; the oldest first."""
    snapshot: Snapshot | None = None
    breaker: BreakerState = CLOSED_BREAKER
    approvals: Mapping[int, Approval] = field(default_factory=dict)
    """The approvals of the next action, by incident."""
    finished: Mapping[WorkerKey, float] = field(default_factory=dict)
    """When workers that an action had started exited with status 0 (Unix seconds)."""
    watchdog_at: float = 0.0
    """When the watchdog alert last arrived (Unix seconds)."""
    started_at: float | None = None
    """When this program started, while the watchdog alert has arrived since; else None."""
    without_room: Mapping[str, float] = field(default_factory=dict)
    """When a watched disk of a run was last seen without room, by run (Unix seconds)."""
    config_problem: str = ""
    """Why exporter.yml cannot be used as it is now, or ""."""

    @property
    def config(self) -> Config:
        return self.setup.config

    def ended_actions(self, incident: Incident) -> Sequence[PastAction]:
        """The ended actions of an incident, the oldest first."""
        return self._done.get(incident.id, ())

    def active_hold(self, *keys: WorkerKey) -> Hold | None:
        """Returns the hold that stops actions on one of `keys`, or None.

        Without keys, the hold that stops all actions.
        """
        stops = (one for one in self.holds if one.everything or any(map(one.covers, keys)))
        return next(stops, None)

    def operator_start(self, key: WorkerKey) -> float:
        """When an operator last started a worker of `trainwarden run`; infinite for any other."""
        found = self.setup.announced.workers.get(key)
        return math.inf if found is None else found.announcement.announced_at

    def newest_start(self, incident: Incident) -> float:
        """When the newest open incident of the same playbook, run and worker started."""
        about = (incident.remediation, incident.run, incident.worker)
        return self._newest_start.get(about, incident.starts_at)

    def awaits_restart(self, remediation: str, key: WorkerKey) -> bool:
        """Whether no open incident of this playbook and worker has come to another decision."""
        return (remediation, *key) not in self._not_pending

    def blocking_incidents(self, run: str, *workers: str) -> Iterator[Incident]:
        """Firing incidents of these workers whose playbook has a rung that blocks other actions."""
        for worker in workers:
            yield from self._blocking.get(WorkerKey(run, worker), ())

    @property
    def open_actions(self) -> Sequence[PastAction]:
        """The actions in progress."""
        return [one for one in self.actions if one.ended_at is None]

    @cached_property
    def incidents_in_progress(self) -> frozenset[int]:
        return frozenset(one.incident for one in self.open_actions)

    # Grouped once: there may be thousands of incidents, and each one is decided.
    @cached_property
    def _by_subject(self) -> Mapping[_Subject, Sequence[Incident]]:
        found: dict[_Subject, list[Incident]] = {}
        for one in self.incidents:
            found.setdefault((one.remediation, one.run, one.worker), []).append(one)
        return found

    @cached_property
    def _newest_start(self) -> Mapping[_Subject, float]:
        return {
            subject: max(one.starts_at for one in incidents)
            for subject, incidents in self._by_subject.items()
        }

    @cached_property
    def _not_pending(self) -> frozenset[_Subject]:
        return frozenset(
            subject
            for subject, incidents in self._by_subject.items()
            if any(one.resolved or one.last_decision not in PENDING_DECISIONS for one in incidents)
        )

    @cached_property
    def _blocking(self) -> Mapping[WorkerKey, Sequence[Incident]]:
        found: dict[WorkerKey, list[Incident]] = {}
        for (remediation, run, worker), incidents in self._by_subject.items():
            playbook = self.config.playbook(remediation)
            if playbook is None or all(rung.action != "hold" for rung in playbook.ladder):
                continue
            firing = [one for one in incidents if not one.resolved]
            found.setdefault(WorkerKey(run, worker), []).extend(firing)
        return found

    @cached_property
    def _done(self) -> Mapping[int, Sequence[PastAction]]:
        found: dict[int, list[PastAction]] = {}
        for action in self.actions:
            if action.ended_at is not None:
                found.setdefault(action.incident, []).append(action)
        return found
