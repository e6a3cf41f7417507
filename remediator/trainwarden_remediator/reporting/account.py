"""All that the journal holds about one incident."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwarden_remediator.records import Event
from trainwarden_remediator.targets import GPUS, PERSON


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that was done. Times are Unix seconds; None where it has not come to that."""

    id: int
    run: str
    worker: str
    kind: str
    at: float
    rung: int
    result: str | None
    outcome: str | None
    outcome_at: float | None
    step: float | None
    """How far the run had come,"""
    checkpoint: float | None
    """and the step of its newest complete checkpoint."""

    @property
    def name(self) -> str:
        if (self.run, self.worker) == GPUS:
            return "the GPUs"
        if (self.run, self.worker) == PERSON:
            return "a person"
        return "/".join(part for part in (self.run, self.worker) if part)


@dataclass(frozen=True, slots=True)
class Piece:
    """Evidence: how the box stood at one moment; `content` as it was taken."""

    at: float
    kind: str
    action: int | None
    content: Mapping[str, Any]

    @property
    def logs(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.content.get("logs", ())
        return found

    def seen(self, what: str) -> Mapping[str, Any]:
        """What the exporter showed of it then."""
        found: Mapping[str, Any] = self.content.get("seen", {}).get(what, {})
        return found


@dataclass(frozen=True, slots=True)
class Other:
    """Another incident of the same time."""

    id: int
    alert: str
    run: str
    worker: str
    starts_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Account:
    """One incident. Times are Unix seconds."""

    id: int
    alert: str
    run: str
    worker: str
    remediation: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    first_heard: float
    last_heard: float
    resolved_at: float | None
    closed: str | None
    closed_at: float | None
    said: str
    events: Sequence[Event] = ()
    acts: Sequence[Act] = ()
    evidence: Sequence[Piece] = ()
    others: Sequence[Other] = field(default=())

    @property
    def name(self) -> str:
        """Run and worker that it is about."""
        return "/".join(part for part in (self.run, self.worker) if part) or "the box"

    @property
    def deeds(self) -> Sequence[Act]:
        """What was done to mend it: not that a person was called."""
        return [act for act in self.acts if act.kind != "notify"]

    @property
    def ended_at(self) -> float | None:
        """When it was over, or given up; None while it stands."""
        if self.closed_at is not None:
            return self.closed_at if self.resolved_at is None else self.resolved_at
        return self.resolved_at

    @property
    def reasons(self) -> Sequence[tuple[str, str]]:
        """What was decided, in order: reason and detail."""
        return [
            (str(event.facts.get("reason", "")), str(event.facts.get("detail", "")))
            for event in self.events
            if event.kind == "decision"
        ]

    def of(self, act: Act) -> Sequence[Event]:
        """What was written down of an act."""
        return [event for event in self.events if event.action == act.id]
