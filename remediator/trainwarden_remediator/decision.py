"""What a decision rests on, and what it may come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.breaker import UNTOUCHED, BreakerState
from trainwarden_remediator.config import Config, Setup
from trainwarden_remediator.holdfile import EVERYTHING, Hold
from trainwarden_remediator.targets import Budget
from trainwarden_remediator.world import World

Result = Literal["done", "failed", "interrupted"]
"""What came of an act itself; `interrupted`: cut short, or given up before it was done."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert that fired, as the journal holds it. Times are Unix seconds.

    `run`, `worker` and `remediation` came over the wire: they are only ever compared with what the
    operator configured. The labels are compared with what a person has silenced.
    """

    id: int
    fingerprint: str
    starts_at: float
    alert: str
    run: str
    worker: str
    remediation: str
    last_heard: float
    resolved: bool
    said: str = ""
    """What the last decision about it came to, as `Decision.text`,"""
    said_at: float = 0.0
    """and since when it does."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action in a target's history; `ended_at` is None while its outcome is open.

    `rung` counts from 0. `step` and `checkpoint` say how far the run had come when it was begun, if
    that was known.
    """

    incident: int
    key: WorkerKey
    intent_at: float
    ended_at: float | None
    healed: bool = False
    rung: int = 0
    step: float | None = None
    checkpoint: float | None = None
    kind: str = "restart"
    """Of the action, as the journal calls it."""
    result: Result | None = None
    """What came of the act itself; None while it is under way."""


@dataclass(frozen=True)
class State:
    """What a decision rests on. `world` is None until somebody has looked."""

    setup: Setup
    held: bool = False
    """Whether a person has stopped everything; as if that stood in `holds`."""
    holds: Sequence[Hold] = ()
    """What a person has stopped."""
    incidents: Sequence[Incident] = ()
    """Every open one, this one too."""
    actions: Sequence[PastAction] = ()
    """Of the time that budgets are counted over, of every open incident, and the last of each
    target; the oldest first."""
    world: World | None = None
    breaker: BreakerState = UNTOUCHED
    finished: frozenset[WorkerKey] = frozenset()
    """Workers that were started by an action, and have ended by themselves with status 0."""

    @property
    def config(self) -> Config:
        return self.setup.config

    def done_about(self, incident: Incident) -> Sequence[PastAction]:
        """What has been done about an incident, and has ended."""
        return self._done.get(incident.id, ())

    def held_by(self, *keys: WorkerKey) -> Hold | None:
        """What a person has said that stops actions on one of these, if anything does.

        Without any, what stops all actions.
        """
        holds = [EVERYTHING, *self.holds] if self.held else self.holds
        stops = (one for one in holds if one.everything or any(map(one.covers, keys)))
        return next(stops, None)

    @cached_property
    def may_hold(self) -> Sequence[Incident]:
        """Incidents of which a rung is to hold others."""
        return [
            incident
            for incident in self.incidents
            if not incident.resolved
            and (playbook := self.config.playbook(incident.remediation)) is not None
            and any(rung.action == "hold" for rung in playbook.ladder)
        ]

    @cached_property
    def acted_upon(self) -> frozenset[int]:
        """The incidents about which something is being done now."""
        return frozenset(one.incident for one in self.actions if one.ended_at is None)

    # Sorted once: there may be thousands of incidents, and each is decided.
    @cached_property
    def _done(self) -> Mapping[int, Sequence[PastAction]]:
        found: dict[int, list[PastAction]] = {}
        for action in self.actions:
            if action.ended_at is not None:
                found.setdefault(action.incident, []).append(action)
        return found


class Verdict(StrEnum):
    ACT = "act"
    WAIT = "wait"
    """Not now; decided again soon."""
    REFUSE = "refuse"
    """Nothing can be done about it, unless a person changes something."""
    LOOK = "look"
    """The world must be asked before this can be decided."""


Reason = Literal[
    # act
    "restart",
    "clean",
    "hold",
    "notify",
    # refuse
    "resolved",
    "forgotten",
    "goes_on",
    "no_remediation",
    "unknown_playbook",
    "unknown_target",
    "attempts_exhausted",
    "ladder_exhausted",
    "restarts_fruitless",
    "has_finished",
    "no_checkpoint",
    "recovery_mismatch",
    # wait
    "observe_mode",
    "held",
    "breaker_open",
    "held_by_alert",
    "widespread",
    "busy",
    "larger_first",
    "alert_lingers",
    "cooldown",
    "world_unknown",
    "not_active",
    "silenced",
    "inhibited",
    "no_candidate",
    "left_alone",
    "ambiguous_target",
    "already_restarted",
    "trouble_over",
    "trouble_back",
    "explained",
    "awaiting_progress",
    "asked",
    "disk_trouble",
    "saving",
    # look
    "look",
]

OVER: frozenset[Reason] = frozenset({"resolved", "forgotten", "goes_on"})
"""The incident is closed by these, until it is heard of again."""

GIVEN_UP: frozenset[Reason] = frozenset(
    {"attempts_exhausted", "ladder_exhausted", "restarts_fruitless"}
)
"""It is closed by these for good, and a person is called."""

STUCK: frozenset[Reason] = frozenset({"no_checkpoint", "recovery_mismatch"})
"""A person is called by these, and it is gone on with as soon as they have helped."""


AT_PEACE: frozenset[Reason] = frozenset(
    {
        *("observe_mode", "silenced", "inhibited", "not_active", "has_finished"),
        *("trouble_over", "trouble_back", "already_restarted", "alert_lingers"),
        *("awaiting_progress", "explained"),
    }
)
"""By these nothing need be done, as far as can be told; other waiting should have an end."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why. `target` is what it is about, where one could be told.

    `rung` is that of the playbook's ladder.
    """

    verdict: Verdict
    reason: Reason
    target: Budget | None = None
    detail: str = ""
    rung: int = 0

    @property
    def text(self) -> str:
        """Verdict and reason in two words: what tells a decision from the last one."""
        return f"{self.verdict} {self.reason}"

    @property
    def final(self) -> bool:
        """Whether the incident is closed by this: it is not decided again."""
        return self.reason == "no_remediation" or self.reason in OVER | GIVEN_UP
