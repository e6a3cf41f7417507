"""The report of one incident, as Markdown. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.runtime.redaction import redact
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.model import CLOSED
from trainwarden_remediator.report import outcomes
from trainwarden_remediator.report.attempts import attempts_section
from trainwarden_remediator.report.causes import likely_causes
from trainwarden_remediator.report.evidence_section import evidence_section, last_lines
from trainwarden_remediator.report.fault import origin, same_failures
from trainwarden_remediator.report.host_section import host_section
from trainwarden_remediator.report.interruption import interruption_cost
from trainwarden_remediator.report.markdown import (
    TimeFormat,
    bullets,
    code,
    fence,
    format_elapsed,
    format_offset,
    link,
    table,
    text,
)
from trainwarden_remediator.report.model import AlertRecord, IncidentRecord
from trainwarden_remediator.report.summary import headline

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
RUNBOOKS = "https://github.com/trainwarden/trainwarden/blob/main/docs/runbooks/"
LOG_LINES = 12
"""The number of log lines to show outside of the collapsed evidence."""


MADE_BY_UP = "Made by `trainwarden up`"
"""In the first line of a configuration that deploy/runfolder.py has made."""


@dataclass(frozen=True, slots=True)
class ReportStyle:
    """Options of a report: time zone, file and URL for its commands, level of detail."""

    times: TimeFormat = field(default_factory=TimeFormat)
    config_file: str = "remediator.yml"
    """What commands in the report name; empty where they find the file without."""
    level: int = 1
    """The level of the first heading."""
    detailed: bool = True
    """Whether to include all events and the evidence."""
    full: bool = False
    """Whether the report of a night describes healed incidents as all others."""
    unattended_until: str = "08:00"
    """The time of day at which an operator would have come, without healing;"""
    answered_after: float | None = None
    """and if not None, the seconds after which, whatever the time of day."""
    grafana_url: str = ""
    """The address of Grafana; empty: without links to its boards."""


def render_incident(incident: IncidentRecord, style: ReportStyle, now: float) -> str:
    """Returns the report of one incident at `now` (Unix seconds)."""
    times, mark = style.times, "#" * style.level
    subject = f" — {code(incident.name)}" if incident.run or incident.worker else ""
    parts = [
        f"{mark} Incident {incident.id}: {text(incident.alert)}{subject}",
        headline(incident).sentence,
        _error(incident),
        _facts(incident, times, now),
        f"{mark}# Observations",
        _alert_text(incident),
        *(_part_text(one, times) for one in incident.alerts[1:]),
        host_section(incident, times),
        f"{mark}# Likely cause",
        bullets(likely_causes(incident, times)) or "No likely cause was found.",
    ]
    if incident.evidence and (found := last_lines(incident.evidence[0], LOG_LINES)):
        parts += [f"The end of {code(found[0])} at that time:", fence(found[1])]
    parts += [f"{mark}# Actions", outcomes.actions_section(incident, times)]
    if attempts := attempts_section(incident, times):
        parts += [f"{mark}# Attempts", attempts]
    if progress := outcomes.progress_section(incident, times):
        parts += [f"{mark}# Outcome", progress]
    if cost := bullets(
        interruption_cost(incident, times, style.unattended_until, style.answered_after)
    ):
        parts += [f"{mark}# Cost", cost]
    parts += [f"{mark}# Next steps", bullets(_links(incident, style))]
    parts.append(fence(_commands(incident, style), "sh"))
    if style.detailed:
        parts += [f"{mark}# Timeline", _timeline(incident, times)]
        if evidence := evidence_section(incident.evidence, origin(incident)[0], times):
            parts += [f"{mark}# Evidence", evidence]
    else:
        parts.append(f"All events and the evidence: {code(_report_command(incident, style))}")
    return "\n\n".join(part for part in parts if part) + "\n"


def render_healed(incident: IncidentRecord, style: ReportStyle) -> str:
    """Returns the five lines that a healed incident needs in the report of a night."""
    times = style.times
    done = "; ".join(
        f"{times.clock(action.at)} {action.kind.replace('_', ' ')} of {code(action.name)}"
        for action in incident.repairs
    )
    cause = next(iter(likely_causes(incident, times)), "No likely cause was found.")
    points = [
        headline(incident).sentence,
        f"{times.clock(incident.starts_at)} the alert started; {done}.",
        f"Likely cause: {cause}",
        " ".join(interruption_cost(incident, times, style.unattended_until, style.answered_after))
        or outcomes.cost_line(incident, times)
        or "What the run did afterwards is not recorded.",
        f"More: {code(_report_command(incident, style))}",
    ]
    title = f"{text(incident.alert)} — {code(incident.name)}"
    return f"{'#' * style.level} Incident {incident.id}: {title}\n\n{bullets(points)}\n"


def _report_command(incident: IncidentRecord, style: ReportStyle) -> str:
    return f"trainwarden report {incident.id}{_config_option(style)}"


def _config_option(style: ReportStyle) -> str:
    return f" --config.file {shlex.quote(style.config_file)}" if style.config_file else ""


def named_config(path: Path) -> str:
    """Returns the file that commands must name; "" for that of `trainwarden up`: they find it."""
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        if MADE_BY_UP in file.readline():
            return ""
    return str(path)


def _facts(incident: IncidentRecord, times: TimeFormat, now: float) -> str:
    (zero, of), start, end = origin(incident), incident.starts_at, incident.ended_at

    def moment(at: float) -> str:
        return f"{times.clock(at)} ({format_offset(at, zero)})"

    rows = [(of.capitalize(), times.full(zero))]
    if zero != start:
        rows.append(("Alert", moment(start)))
    if incident.repairs:
        rows.append(("First action", moment(incident.repairs[0].at)))
    healed = [one.outcome_at for one in incident.actions if one.outcome == "healed"]
    if ends := [at for at in healed if at]:
        rows.append(("Verified as healthy", moment(ends[-1])))
    if end is None:
        rows.append(("Firing for", format_elapsed(now - start)))
    else:
        rows.append(("Closed" if incident.resolved_at is None else "Resolved", moment(end)))
    if severity := incident.labels.get("severity"):
        rows.append(("Severity", text(severity)))
    rows.append(("Playbook", code(incident.remediation) or "none: the alert names no playbook"))
    return table(("", ""), ((f"**{name}**", value) for name, value in rows))


def _error(incident: IncidentRecord) -> str:
    """Returns the line with which it failed, while it is not healed."""
    error = incident.fault.error if headline(incident).state in ("person", "open", "held") else ""
    count = same_failures(incident, error) if error else 0
    again = f". {count} attempts in a row failed with it." if count > 1 else ""
    return f"Last error: {code(redact(error))}{again}" if error else ""


def _part_text(part: AlertRecord, times: TimeFormat) -> str:
    summary = redact(part.annotations.get("summary", ""))
    return f"{text(part.alert)}, since {times.clock(part.starts_at)}: {text(summary)}"


def _alert_text(incident: IncidentRecord) -> str:
    summary, description = (
        redact(incident.annotations.get(name, "")) for name in ("summary", "description")
    )
    paragraphs = [f"**{text(summary)}**"] if summary else []
    if why := _not_acted_upon(incident):
        # The rule does not know where the remediator may act.
        general = " What follows says what it does where it may:" if description else ""
        paragraphs.append(f"**{text(why)}.**{general}")
    paragraphs += [text(description)] if description else []
    labels = [
        f"{text(name)}={code(redact(value)) or '—'}"
        for name, value in sorted(incident.labels.items())
        if name not in ("alertname", "severity", "remediation", "job")
    ]
    if labels:
        paragraphs.append(f"Labels: {', '.join(labels)}")
    return "\n\n".join(paragraphs) or "The alert has no description."


def _not_acted_upon(incident: IncidentRecord) -> str:
    """Returns why no action follows an alert, as the last decision about it says, else ""."""
    decided = [one.facts for one in incident.events if one.kind == "decision"]
    facts = next((one for one in reversed(decided) if one.get("reason") not in CLOSED), None)
    if facts is None or facts.get("reason") != "unknown_target" or incident.repairs:
        return ""
    why = event_text.describe_reason("unknown_target", str(facts.get("detail") or ""))
    return f"{why[:1].upper()}{why[1:]}"


def runbook_link(alert: str, annotations: Mapping[str, str]) -> str:
    """Returns the link to the runbook of an alert, or "" if its name is not plain."""
    if url := annotations.get("runbook_url"):
        return link(url)
    return link(f"{RUNBOOKS}{alert}.md") if _NAME.fullmatch(alert) else ""


def _links(incident: IncidentRecord, style: ReportStyle) -> Iterator[str]:
    if runbook := runbook_link(incident.alert, incident.annotations):
        yield f"Runbook: {runbook}"
    url = incident.annotations.get("dashboard_url", "")
    if url.startswith("/"):  # the address of a board, which leads nowhere outside of Grafana
        url = f"{style.grafana_url}{url}" if style.grafana_url else ""
    if url:
        yield f"Dashboard: {link(url)}"


def _commands(incident: IncidentRecord, style: ReportStyle) -> Iterator[str]:
    """Yields commands; text of an alert enters a command only if it is a plain name."""
    config = _config_option(style)
    yield f"trainwarden journal{config} --incident {incident.id}"
    paths = dict.fromkeys(
        str(log["path"]) for record in incident.evidence for log in record.logs if log.get("path")
    )
    for path in list(paths)[:3]:
        if path.isprintable():
            yield f"tail -n 100 {shlex.quote(path)}"
    if headline(incident).state == "person" or incident.is_held:
        if incident.start_command:
            yield f"{incident.start_command}    # once its cause is mended"
        return  # a hold would change nothing
    key = (incident.run, incident.worker)
    if all(map(_NAME.fullmatch, key)):
        run, worker = key
        yield f"trainwarden hold{config} --run {run} --worker {worker} --for 2h"
    else:
        yield f"trainwarden hold{config} --for 2h"


def _timeline(incident: IncidentRecord, times: TimeFormat) -> str:
    (zero, of), start = origin(incident), incident.starts_at
    started = format_offset(start, zero)
    rows = [(times.clock(start), started, "alert started (Prometheus' clock)")]
    for event in incident.events:
        sentence = outcomes.event_sentence(event)
        if event.kind not in ("start", "intent", "result", "outcome"):
            sentence = f"{text(event.kind)}: {sentence}"
        rows.append((times.clock(event.at), format_offset(event.at, zero), sentence))
    return table(("time", f"after the {of}", "event"), rows)
