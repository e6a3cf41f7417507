"""The attempts of an incident that ended: each with its steps, exit code and last lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden_remediator.report.evidence_section import last_lines
from trainwarden_remediator.report.fault import evidence_before, process_end
from trainwarden_remediator.report.markdown import TimeFormat, code, fence, table
from trainwarden_remediator.report.model import ActionRecord, IncidentRecord

LINES = 3
"""Last lines of an attempt; the end of the log before the first action is shown elsewhere, too."""


def attempts_section(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns the attempts that ended, as Markdown; "" if the incident has fewer than two."""
    restarts = [one for one in incident.repairs if evidence_before(incident, one) is not None]
    if len(restarts) < 2:  # noqa: PLR2004 - see the docstring
        return ""
    heads = ("attempt", "worker", "started", "ended", "first step", "last step", "exit code")
    rows = [
        (str(number), code(one.name), *_attempt(incident, one, times))
        for number, one in enumerate(restarts, start=1)
    ]
    return "\n\n".join([table(heads, rows), *_last_lines(incident, restarts)])


def _attempt(incident: IncidentRecord, action: ActionRecord, times: TimeFormat) -> Iterator[str]:
    """Yields the cells of the attempt that `action` ended or replaced."""
    record = evidence_before(incident, action)
    worker = record.exporter_facts("workers").get(action.name, {}) if record else {}
    run = record.exporter_facts("runs").get(action.run, {}) if record else {}
    before = [one for one in incident.repairs if one.name == action.name and one.id < action.id]
    events = [event for one in before[-1:] for event in incident.events_of(one)]
    started = next((one.at for one in events if one.kind == "start"), worker.get("started_at"))
    ended = process_end(incident, action)
    stop = next((one.at for one in incident.events_of(action) if one.kind == "stop"), None)
    for at in (started, stop if ended is None else ended):
        yield "?" if at is None else times.clock(at)
    for step in (run.get("first_step"), action.step):
        yield "?" if step is None else f"{step:g}"
    exit_code = worker.get("last_exit_code")
    if ended is None:
        yield "stopped by the action"
    else:
        yield "?" if exit_code is None else f"{exit_code:g}"


def _last_lines(incident: IncidentRecord, restarts: list[ActionRecord]) -> Iterator[str]:
    for number, action in enumerate(restarts, start=1):
        record = evidence_before(incident, action)
        found = None if record is None else last_lines(record, LINES)
        if found is not None:
            yield f"The last lines of attempt {number}, {code(found[0])}:"
            yield fence(found[1])
