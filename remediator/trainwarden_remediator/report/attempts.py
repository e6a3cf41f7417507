"""The attempts of an incident that ended: each with its steps, exit code and last lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwarden_remediator.report.evidence_section import last_lines
from trainwarden_remediator.report.fault import evidence_before, process_end
from trainwarden_remediator.report.markdown import TimeFormat, code, fence, table
from trainwarden_remediator.report.model import ActionRecord, EvidenceRecord, IncidentRecord

LINES = 3
"""Last lines of an attempt; the end of the log before the first action is shown elsewhere, too."""


def attempts_section(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns the attempts that ended, as Markdown; "" if the incident has fewer than two."""
    restarts = [one for one in incident.repairs if evidence_before(incident, one) is not None]
    if len(restarts) < 2:  # noqa: PLR2004 - see the docstring
        return ""
    heads = ("attempt", "worker", "started", "ended", "first step", "last step", "exit code")
    rows = [_attempt(incident, one, times) for one in restarts]
    records = [evidence_before(incident, one) for one in restarts]
    last = restarts[-1]
    if last.outcome == "not_healed" and last.result == "done":  # it ended before it was healthy
        after = (one for one in reversed(incident.evidence) if one.at >= last.at)
        found = next((one for one in after if one.kind in ("hold", "gave_up")), None)
        rows.append(_last_attempt(incident, last, found, times))
        records.append(found if _has_ended(found, last) else None)
    numbered = [(str(number), *row) for number, row in enumerate(rows, start=1)]
    return "\n\n".join([table(heads, numbered), *_last_lines(records)])


def _attempt(incident: IncidentRecord, action: ActionRecord, times: TimeFormat) -> Sequence[str]:
    """Returns the cells of the attempt that `action` ended or replaced."""
    record = evidence_before(incident, action)
    worker, run, announced = _seen(record, action)
    before = [one for one in incident.repairs if one.name == action.name and one.id < action.id]
    started = _started(incident, before[-1]) if before else None
    if started is None:
        started = announced.get("started_at") or worker.get("started_at")
    ended = process_end(incident, action)
    if ended is None:
        stop = next((one.at for one in incident.events_of(action) if one.kind == "stop"), None)
        how = "stopped by the action"
    else:
        stop, how = ended, _exit_code(announced.get("exit_code"), worker.get("last_exit_code"))
    steps = (_step(run.get("first_step")), _step(action.step))
    return (code(action.name), _clock(started, times), _clock(stop, times), *steps, how)


def _last_attempt(
    incident: IncidentRecord, action: ActionRecord, record: EvidenceRecord | None, times: TimeFormat
) -> Sequence[str]:
    """Returns the cells of the attempt that `action`, the last one, has started."""
    worker, run, announced = _seen(record, action)
    ended = announced.get("ended_at") or worker.get("last_exit_at")
    how = _exit_code(announced.get("exit_code"), worker.get("last_exit_code"))
    if not _has_ended(record, action):  # what was seen is of an attempt before
        ended, how = None, "?"
    steps = (_step(run.get("first_step")), _step(run.get("step")))
    times_of = (_clock(_started(incident, action), times), _clock(ended, times))
    return (code(action.name), *times_of, *steps, how)


def _has_ended(record: EvidenceRecord | None, action: ActionRecord) -> bool:
    """Whether evidence shows the end of the process that `action` has started."""
    worker, _, announced = _seen(record, action)
    ended: float = announced.get("ended_at") or worker.get("last_exit_at") or 0.0
    return ended >= action.at


def _seen(record: EvidenceRecord | None, action: ActionRecord) -> Sequence[Mapping[str, Any]]:
    """Returns what evidence shows of the worker and its run, and what is announced of it."""
    if record is None:
        return {}, {}, {}
    worker = record.exporter_facts("workers").get(action.name, {})
    run = record.exporter_facts("runs").get(action.run, {})
    return worker, run, record.announced(action.name)


def _started(incident: IncidentRecord, action: ActionRecord) -> float | None:
    return next((one.at for one in incident.events_of(action) if one.kind == "start"), None)


def _clock(at: float | None, times: TimeFormat) -> str:
    return "?" if at is None else times.clock(at)


def _step(step: float | None) -> str:
    return "?" if step is None else f"{step:g}"


def _exit_code(*known: float | None) -> str:
    return next((f"{one:g}" for one in known if one is not None), "?")


def _last_lines(records: Sequence[EvidenceRecord | None]) -> Iterator[str]:
    for number, record in enumerate(records, start=1):
        found = None if record is None else last_lines(record, LINES)
        if found is not None:
            yield f"The last lines of attempt {number}, {code(found[0])}:"
            yield fence(found[1])
