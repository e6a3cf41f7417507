"""When the fault of an incident happened: before its alert, which waits and confirms. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from trainwarden_exporter.frameworks.common_patterns import RESTARTED
from trainwarden_exporter.frameworks.error_lines import last_error
from trainwarden_remediator.model import GIVEN_UP
from trainwarden_remediator.report.model import ActionRecord, EvidenceRecord, IncidentRecord

NOTICED_SECONDS = 60.0
"""A run may still make steps for so many seconds after the alert of its fault."""


def fault_at(incident: IncidentRecord) -> float | None:
    """Returns when the process ended, or else the last new step of the run; Unix seconds.

    None if that is not known, or not before the alert.
    """
    ends = [process_end(incident, action) for action in incident.repairs[:1]]
    found = next((end for end in ends if end is not None), None)
    if found is None:
        found = (interruption(incident) or {}).get("interruption_start")
        if found is not None and found <= _began_at(incident):
            return None  # an operator has started it since: the step before is no fault
    return found if found is not None and found < incident.starts_at else None


def origin(incident: IncidentRecord) -> tuple[float, str]:
    """Returns the moment from which a report counts, in Unix seconds: the fault, else the alert.

    The second value is which of both it is.
    """
    found = fault_at(incident)
    return (incident.starts_at, "alert") if found is None else (found, "fault")


def process_end(incident: IncidentRecord, action: ActionRecord) -> float | None:
    """Returns when the process that `action` replaced was seen to have ended on its own, if so."""
    record = evidence_before(incident, action)
    worker = {} if record is None else record.exporter_facts("workers").get(action.name, {})
    announced = {} if record is None else record.announced(action.name)
    # The announcement has the moment; the exporter that of its next look.
    ended: float | None = announced.get("ended_at") or worker.get("last_exit_at")
    gone = worker.get("processes", 0) < worker.get("expected", 0)
    return ended if gone and ended is not None and ended <= action.at else None


def downtime(incident: IncidentRecord) -> float | None:
    """Returns the seconds from the last step to the next new one; None if they are not known."""
    found = interruption(incident) or {}
    start, end = found.get("interruption_start"), found.get("interruption_end")
    return None if start is None or end is None else end - start


def evidence_before(incident: IncidentRecord, action: ActionRecord) -> EvidenceRecord | None:
    """Returns the evidence that was collected before `action`."""
    return next((one for one in incident.evidence if one.action == action.id), None)


def same_failures(incident: IncidentRecord, error: str) -> int:
    """Returns how many attempts in a row, up to the last that ended, failed with that error.

    Only of `trainwarden run`: its log separates the output of two processes.
    """
    errors: dict[float, str] = {}
    for record in incident.evidence:
        ended = record.announced(incident.name).get("ended_at")
        if ended is not None and record.kind != "end":
            errors[ended] = _own_error(record)
    return len(list(takewhile(lambda one: one == error, reversed(errors.values()))))


def _own_error(record: EvidenceRecord) -> str:
    """Returns the last error of the last process in the first log that has lines, or ""."""
    lines = next((list(map(str, one["lines"])) for one in record.logs if one.get("lines")), [])
    own = takewhile(lambda line: not re.match(RESTARTED.regex, line), reversed(lines))
    return last_error(list(own)[::-1])


def interruption(incident: IncidentRecord) -> Mapping[str, Any] | None:
    """Returns the last facts about the interruption in which the incident was, or None.

    `shown_by` is the kind of the record that has them, and `shown_at` its time (Unix seconds).
    """
    # An action that had to wait interrupts the run long after its alert.
    began = [incident.starts_at, *(action.at for action in incident.repairs)]
    records = [*incident.evidence]
    if incident.now is not None and _still_counts(incident):
        records.append(incident.now)
    for record in reversed(records):
        facts: Mapping[str, Any] = record.exporter_facts("runs").get(incident.affected_run, {})
        start, end = facts.get("interruption_start"), facts.get("interruption_end")
        if start is None or start > max(began) + NOTICED_SECONDS:
            continue
        if end is None or end >= incident.starts_at:
            # What an operator has stopped and started costs since that start.
            start = max(start, _began_at(incident))
            shown = {"shown_by": record.kind, "shown_at": record.at}
            return {**facts, **shown, "interruption_start": start}
    return None


def _still_counts(incident: IncidentRecord) -> bool:
    """Whether the interruption that the exporter shows now is still that of an incident.

    Where an operator has stopped the run, its alert ends, but the interruption lasts until the run
    is started again.
    """
    given_up = incident.closed in GIVEN_UP and incident.resolved_at is None
    healed = bool(incident.repairs) and incident.repairs[-1].outcome == "healed"
    return incident.closed is None or given_up or healed


def _began_at(incident: IncidentRecord) -> float:
    """Returns when an operator last started the worker of an incident; 0 if it is not known.

    An incident of a whole run is about the worker that its action restarted.
    """
    names = [incident.name, *(action.name for action in incident.repairs)]
    shown = (one.announced(name) for one in incident.evidence for name in names)
    return next((float(one["began_at"]) for one in shown if one.get("began_at")), 0.0)
