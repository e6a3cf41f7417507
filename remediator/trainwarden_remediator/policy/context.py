"""The input of a decision: the state of the remediator and one rung of a ladder. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Condition, Rung
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Budget, Target
from trainwarden_remediator.holds.hold_file import EVERYTHING, Hold
from trainwarden_remediator.model import (
    CLOSED_BREAKER,
    BreakerState,
    Decision,
    Incident,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.observation.snapshot import Snapshot


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

    def decide(
        self, verdict: Verdict, reason: Reason, target: Budget | None = None, detail: str = ""
    ) -> Decision:
        return Decision(verdict, reason, target, detail, self.index)

    def wait(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.decide(Verdict.WAIT, reason, target, detail)

    def refuse(self, reason: Reason, target: Budget | None = None, detail: str = "") -> Decision:
        return self.decide(Verdict.REFUSE, reason, target, detail)


@dataclass(frozen=True)
class PolicyState:
    """What a decision rests on. `snapshot` is None until one was taken."""

    setup: Setup
    everything_held: bool = False
    """Whether an operator stopped all actions, beside the entries of `holds`."""
    holds: Sequence[Hold] = ()
    """Holds that operators set."""
    incidents: Sequence[Incident] = ()
    """All open incidents, including the incident that is decided."""
    actions: Sequence[PastAction] = ()
    """The actions within the budgets' windows, those of open incidents, and the last one of each
    target; the oldest first."""
    snapshot: Snapshot | None = None
    breaker: BreakerState = CLOSED_BREAKER
    finished: Mapping[WorkerKey, float] = field(default_factory=dict)
    """When workers that an action had started exited with status 0 (Unix seconds)."""
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
        holds = [EVERYTHING, *self.holds] if self.everything_held else self.holds
        stops = (one for one in holds if one.everything or any(map(one.covers, keys)))
        return next(stops, None)

    @cached_property
    def blocking_incidents(self) -> Sequence[Incident]:
        """Firing incidents whose playbook has a rung that blocks other actions."""
        return [
            incident
            for incident in self.incidents
            if not incident.resolved
            and (playbook := self.config.playbook(incident.remediation)) is not None
            and any(rung.action == "hold" for rung in playbook.ladder)
        ]

    @cached_property
    def incidents_in_progress(self) -> frozenset[int]:
        """The incidents with an action in progress."""
        return frozenset(one.incident for one in self.actions if one.ended_at is None)

    # Grouped once: there may be thousands of incidents, and each one is decided.
    @cached_property
    def _done(self) -> Mapping[int, Sequence[PastAction]]:
        found: dict[int, list[PastAction]] = {}
        for action in self.actions:
            if action.ended_at is not None:
                found.setdefault(action.incident, []).append(action)
        return found
