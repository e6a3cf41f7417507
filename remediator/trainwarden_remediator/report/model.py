"""The data of a report: an incident with its events, actions and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainwarden_remediator.config.targets import GPUS, ON_CALL
from trainwarden_remediator.journal.evidence_text import FaultFacts, fault_facts
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import Incident, Result


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """An action. Times are Unix seconds, None for a stage that it has not reached."""

    id: int
    run: str
    worker: str
    kind: str
    at: float
    rung: int
    result: Result | None
    outcome: str | None
    outcome_at: float | None
    step: float | None
    """The step of the run at the start of the action."""
    checkpoint: float | None
    """The step of the newest complete checkpoint at that time."""
    result_at: float | None = None
    attempt: int | None = None
    attempts: int | None = None
    """Which of the attempts on its target it is, from 1, and how many there may be."""
    last_step: str | None = None
    """The last step that was taken, as recorded before."""

    @property
    def name(self) -> str:
        if (self.run, self.worker) == GPUS:
            return "the GPUs"
        if (self.run, self.worker) == ON_CALL:
            return "on-call"
        return "/".join(part for part in (self.run, self.worker) if part)


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """Evidence: the state of the host at one moment."""

    at: float
    kind: str
    action: int | None
    content: Mapping[str, Any]

    @property
    def logs(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.content.get("logs", ())
        return found

    def announced(self, name: str) -> Mapping[str, Any]:
        """Returns what the command of a worker announces, by its `run/worker`; empty without."""
        found: Mapping[str, Any] = self.content.get("announced", {}).get(name, {})
        return found

    def exporter_facts(self, what: str) -> Mapping[str, Any]:
        """Returns the facts of one kind that the exporter showed."""
        found: Mapping[str, Any] = self.content.get("seen", {}).get(what, {})
        return found


@dataclass(frozen=True, slots=True)
class RelatedIncident:
    """Another incident at the same time."""

    id: int
    alert: str
    run: str
    worker: str
    starts_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """One alert of an incident, as the journal has it. Times are Unix seconds."""

    incident: Incident
    alert: str
    starts_at: float
    annotations: Mapping[str, str]
    resolved_at: float | None
    closed: str | None
    closed_at: float | None
    last_decision: str | None = None


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """One incident: one outage, with all of its alerts. Times are Unix seconds."""

    id: int
    alert: str
    run: str
    worker: str
    remediation: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    resolved_at: float | None
    closed: str | None
    closed_at: float | None
    alerts: Sequence[AlertRecord] = ()
    """Its own alert, and those of the same outage."""
    events: Sequence[Event] = ()
    actions: Sequence[ActionRecord] = ()
    evidence: Sequence[EvidenceRecord] = ()
    related: Sequence[RelatedIncident] = field(default=())
    loop: int | None = None
    """The incident of the restart loop that one of its restarts is of, if it is another one."""
    looped: Sequence[int] = ()
    """The other incidents whose restarts are of the loop that an alert of this one reports."""
    needs_operator: bool = False
    """Whether the operator acts on an active alert of it, as the status pages show."""
    now: EvidenceRecord | None = None
    """What the exporter shows at the time of the report; None where it does not answer."""

    @property
    def name(self) -> str:
        """The run and worker of the incident."""
        return "/".join(part for part in (self.run, self.worker) if part) or "the host"

    @property
    def affected_run(self) -> str:
        """The run of the incident, or of its first action; "" if there is none."""
        return self.run or next((action.run for action in self.repairs), "")

    @property
    def fault(self) -> FaultFacts:
        """What the newest evidence shows that is not of its end."""
        shown = (one for one in reversed(self.evidence) if one.kind != "end")
        record = next(shown, None)
        return FaultFacts() if record is None else fault_facts(record.content)

    @property
    def start_command(self) -> str:
        """What an operator types to start the worker again; "" if that is not known."""
        for record in reversed(self.evidence):
            if start := record.announced(self.name).get("start_command"):
                return str(start)
        return ""

    @property
    def is_held(self) -> bool:
        """Whether one of its alerts holds all restarts while it fires."""
        return any(
            one.closed is None and one.resolved_at is None and one.last_decision == "act hold"
            for one in self.alerts
        )

    @property
    def repairs(self) -> Sequence[ActionRecord]:
        """The actions except notifications."""
        return [action for action in self.actions if action.kind != "notify"]

    @property
    def ended_at(self) -> float | None:
        """When the incident was resolved or abandoned; None while it is open."""
        if self.closed_at is not None:
            return self.closed_at if self.resolved_at is None else self.resolved_at
        return self.resolved_at

    @property
    def reasons(self) -> Sequence[tuple[str, str]]:
        """The reason and detail of each decision, in order."""
        return [
            (str(event.facts.get("reason", "")), str(event.facts.get("detail", "")))
            for event in self.events
            if event.kind == "decision"
        ]

    def events_of(self, action: ActionRecord) -> Sequence[Event]:
        """Returns the events of an action."""
        return [event for event in self.events if event.action == action.id]
