"""The report of a night: all its incidents; incidents that need an operator come first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_remediator.evidence.collector import relevant_facts
from trainwarden_remediator.exceptions import JournalError, NoIncidentError
from trainwarden_remediator.journal.rows import describe_missing, last_incident
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.host_now import host_now, unwell_runs
from trainwarden_remediator.report.incident import ReportStyle, render_healed, render_incident
from trainwarden_remediator.report.loader import (
    created_at,
    open_journal,
    read_incident,
    read_incidents,
    with_given_up,
)
from trainwarden_remediator.report.markdown import bullets, code, format_elapsed, table, text
from trainwarden_remediator.report.model import EvidenceRecord, IncidentRecord
from trainwarden_remediator.report.now_section import now_section
from trainwarden_remediator.report.opening import format_period, opening
from trainwarden_remediator.report.summary import HeadlineState, headline

MAX_DETAILED = 40
"""The maximum number of incidents of a night with details; the least important of more are only
listed."""

_DETAILED_STATES: Sequence[HeadlineState] = (
    *("person", "open", "held", "watched", "healed", "over", "stopped"),
)


def render_nights(
    incidents: Sequence[IncidentRecord], style: ReportStyle, since: float, now: float
) -> str:
    """Returns the report of every night with an incident since `since`, newest first.

    Times are Unix seconds.
    """
    if not incidents:
        return f"# No incident\n\nNone since {style.times.full(since)}.\n"
    by_night = groupby(
        sorted(incidents, key=lambda one: one.starts_at, reverse=True),
        key=lambda one: style.times.night(one.starts_at),
    )
    return "\n".join(_night(night, list(found)[::-1], style, now) for night, found in by_night)


def _night(night: date, incidents: Sequence[IncidentRecord], style: ReportStyle, now: float) -> str:
    headlines = {incident.id: headline(incident) for incident in incidents}
    important = [one for one in incidents if headlines[one.id].state in _DETAILED_STATES]
    important.sort(key=lambda one: _DETAILED_STATES.index(headlines[one.id].state))
    parts = [
        f"# From {night:%A, %d %B %Y}, noon, to {night + timedelta(days=1):%A}",
        _totals(incidents),
        table(
            ("#", "started", "alert", "target", "result", "duration"),
            (
                (
                    str(one.id),
                    style.times.short(one.starts_at),
                    text(one.alert),
                    code(one.name),
                    headlines[one.id].word,
                    format_elapsed((one.ended_at or now) - one.starts_at),
                )
                for one in incidents
            ),
        ),
        bullets(filter(None, map(_further_alerts, incidents))),
    ]
    shown = sorted(important[:MAX_DETAILED], key=lambda one: headlines[one.id].state != "person")
    below = replace(style, level=style.level + 1, detailed=False)
    for one in shown:
        brief = headlines[one.id].state == "healed" and not style.full
        parts.append(render_healed(one, below) if brief else render_incident(one, below, now))
    return "\n\n".join(parts)


def _further_alerts(incident: IncidentRecord) -> str:
    """Returns which numbers of incidents are alerts of this one, "" without any."""
    numbers = (one.incident.id for one in incident.alerts)
    found = [f"#{number}" for number in numbers if number != incident.id]
    if not found:
        return ""
    verb, noun = ("is", "a further alert") if len(found) == 1 else ("are", "further alerts")
    return f"{', '.join(found)} {verb} {noun} of incident #{incident.id}."


def _totals(incidents: Sequence[IncidentRecord]) -> str:
    states = [headline(incident).state for incident in incidents]
    actions = [action for incident in incidents for action in incident.repairs]
    points = [f"{plural(len(incidents), 'incident')}, {plural(len(actions), 'action')}."]
    words: dict[HeadlineState, str] = {
        "person": "**need an operator**",
        "open": "still open",
        "held": "held",
        "watched": "healed, still watched",
        "healed": "healed",
        "over": "ended, but not by an action of the remediator",
        "stopped": "ended as an operator stopped it",
        "nothing": "ended without an action of the remediator",
    }
    points += [f"{states.count(s)} {word}." for s, word in words.items() if s in states]
    return bullets(points)


MAX_LOOKBACK_SECONDS = 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Nights:
    """The model of a report: the incidents since `since`, and the state at `now`, if known.

    Times are Unix seconds. `is_new`: the journal began at `since`, after the time asked for.
    """

    incidents: Sequence[IncidentRecord]
    current: CurrentState | None
    since: float
    now: float
    is_new: bool


def report_incident(
    journal: Path,
    number: int,
    style: ReportStyle,
    now: float,
    exporter: ExporterState | None = None,
) -> str:
    """Returns the report of an incident; see `read_present`."""
    return render_incident(read_present(journal, number, now, exporter), style, now)


def read_present(
    journal: Path, number: int, now: float, exporter: ExporterState | None = None
) -> IncidentRecord:
    """Returns an incident, with what the exporter shows at `now`, if given.

    Raises JournalError, and NoIncidentError if there is no such incident.
    """
    with open_journal(journal) as connection:
        last = last_incident(connection)
        incident = read_incident(connection, number) if 0 < number <= last else None
    if incident is None:
        raise NoIncidentError(describe_missing(number, last))
    return _with_present(incident, exporter, now)


def _with_present(
    incident: IncidentRecord, exporter: ExporterState | None, now: float
) -> IncidentRecord:
    """Returns `incident` with what the exporter shows of its run now.

    What is stored of it may be from before its run went on.
    """
    if exporter is None:
        return incident
    run = incident.affected_run
    seen = relevant_facts(exporter, run, WorkerKey(run, incident.worker))
    return replace(incident, now=EvidenceRecord(now, "now", None, {"seen": seen}))


def _with_operator(incident: IncidentRecord, yours: Collection[str]) -> IncidentRecord:
    """Returns `incident` with whether one of its alerts is among those an operator acts on."""
    own = {one.incident.fingerprint for one in incident.alerts}
    return replace(incident, needs_operator=not own.isdisjoint(yours))


def report_nights(
    journal: Path, since: float, style: ReportStyle, now: float, current: CurrentState | None = None
) -> str:
    """Returns the report of all incidents since `since` (Unix seconds). Raises JournalError.

    It opens with two sentences about the time since `since`, and `current`, the state at `now`, if
    given.
    """
    found = read_nights(journal, since, now, current)
    nights = render_nights(found.incidents, style, found.since, now)
    if found.current is None:
        return nights
    period = format_period(now - since)
    if found.is_new:
        period = f"Since {style.times.full(found.since)}, when the journal of this stack begins"
    host = host_now(found.current, found.incidents, now)
    first = opening(found.current.exporter, found.incidents, period, now, unwell_runs(host))
    return f"# {first}\n\n{now_section(host, style)}\n\n{nights}"


def read_nights(
    journal: Path, since: float, now: float, current: CurrentState | None = None
) -> Nights:
    """Returns what the reports since `since` (Unix seconds) are made of. Raises JournalError."""
    if since < now - MAX_LOOKBACK_SECONDS:
        raise JournalError("the time must be at most a year, such as 12h or 7d")
    with open_journal(journal) as connection:
        incidents = read_incidents(connection, since)
        created = created_at(connection)
        current = current and with_given_up(current, connection, now)
    if current is not None and isinstance(current.exporter, ExporterState):
        incidents = tuple(_with_present(one, current.exporter, now) for one in incidents)
    if current is not None:
        views = host_now(current, incidents, now).views or ()
        yours = {one.alert.fingerprint for one in views if one.who == YOU}
        incidents = tuple(_with_operator(one, yours) for one in incidents)
    is_new = since < created < now
    return Nights(incidents, current, created if is_new else since, now, is_new)
