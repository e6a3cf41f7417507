"""The head of a night's report: the state now, what repeats, and what to do. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trainwarden_exporter.processes.announcements import AnnouncedRuns, describe_end
from trainwarden_exporter.runtime.formatting import format_duration, plural
from trainwarden_exporter.webserver.runbooks import first_step
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.model import is_unattended
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.incident import ReportStyle, runbook_link
from trainwarden_remediator.report.markdown import bullets, code, text
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.summary import headline

LATE_STEP_SECONDS = 40.0
"""A step is late when it takes longer than the usual one by this, or by the usual one if that is
longer, as on the exporter's page."""

PAUSES = frozenset({"starting", "saving", "evaluating", "updating_weights", "finished"})
"""Phases in which a long time without a step is usual."""

REPEATS = 2
"""Number of incidents of the same kind from which on they repeat."""


def now_section(
    current: CurrentState, incidents: Sequence[IncidentRecord], style: ReportStyle, now: float
) -> str:
    """Returns the head of the report; `now` is a Unix time."""
    unhandled = _unhandled(current, incidents)
    parts = [
        f"# Now: {style.times.full(now)}",
        bullets(
            (
                *_runs(current, style, now),
                *_own_restarts(current.announced, style),
                *_alerts(current, unhandled, style),
            )
        ),
    ]
    if again := bullets(_repeats(incidents)):
        parts += ["## What repeats", again]
    todo = bullets(_todo(current, incidents, unhandled, now))
    return "\n\n".join([*parts, "## What to do", todo or "Nothing now."])


def stands_still(run: RunState, now: float) -> bool:
    """Whether a run makes no step for longer than usual, or than its limit."""
    if run.finished or run.last_step_at is None:
        return False
    progress_at = max(run.last_step_at, run.progress_at or 0.0)
    if run.stall_limit is not None and now - progress_at > run.stall_limit:
        return True
    if run.phase in PAUSES or not run.usual_step_seconds:
        return False
    usual = run.usual_step_seconds
    return now - run.last_step_at > usual + max(usual, LATE_STEP_SECONDS)


def _runs(current: CurrentState, style: ReportStyle, now: float) -> Iterator[str]:
    exporter = current.exporter
    if isinstance(exporter, str):
        why = f"the exporter does not answer ({text(exporter)})"
        yield f"**The state of the runs is not known**: {why}."
        return
    # What stands still comes first: it costs time until an operator acts.
    runs = sorted(exporter.runs.items(), key=lambda item: not stands_still(item[1], now))
    for name, run in runs:
        yield _run(name, run, style, now)
    for key, worker in exporter.workers.items():
        if worker.missing:
            yield f"**Worker {code('/'.join(key))} is not running.**"
    for run_name, servers in exporter.servers.items():
        for server in servers:
            if not server.up:
                why = f" ({text(server.reason.replace('_', ' '))})" if server.reason else ""
                yield f"**Inference server {code(server.name)} of {code(run_name)} is down**{why}."


def _own_restarts(announced: AnnouncedRuns, style: ReportStyle) -> Iterator[str]:
    """Yields what is in no journal: the restarts by `trainwarden run` itself."""
    for key, worker in announced.workers.items():
        if restarts := worker.announcement.own_restarts:
            at, status = restarts[-1]
            why = f"after {describe_end(status)}"
            times = f"{plural(len(restarts), 'time')} by {code('--restart on-failure')}"
            yield f"{code('/'.join(key))} was restarted {times}, last {style.times.full(at)} {why}."


def _run(name: str, run: RunState, style: ReportStyle, now: float) -> str:
    step = "" if run.step is None else f", step {run.step:,.0f}"
    if run.finished:
        return f"{code(name)} has finished{step}."
    phase = f", phase {text(run.phase.replace('_', ' '))}" if run.phase else ""
    saved = ""
    if run.checkpoint is not None:
        saved = f"; newest complete checkpoint: step {run.checkpoint:,.0f}"
        if run.checkpoint_at is not None:
            saved += f", {style.times.clock(run.checkpoint_at)}"
    if run.last_step_at is None:
        return f"{code(name)}: no step is known{phase}{saved}."
    if run.ettr is not None:
        saved += f"; {run.ettr:.0%} of its time went into new steps"
    passed = format_duration(round(max(0.0, now - run.last_step_at)))
    if not stands_still(run, now):
        return f"{code(name)} makes steps{step}, {passed} ago{phase}{saved}."
    usual = (
        f" (usually {format_duration(run.usual_step_seconds)})" if run.usual_step_seconds else ""
    )
    since = style.times.clock(run.last_step_at)
    return f"**{code(name)} stands still{step} since {since}, for {passed}**{usual}{phase}{saved}."


def _unhandled(current: CurrentState, incidents: Sequence[IncidentRecord]) -> list[Alert]:
    """Returns the active alerts that nobody acts on, the oldest first."""
    if isinstance(current.alerts, str):
        return []
    handled = {
        (one.alert, one.run, one.worker)
        for one in incidents
        if one.ended_at is None
        and headline(one).state in ("open", "healed")
        and not is_unattended(one.last_decision)
    }
    found = [one for one in current.alerts if (one.name, one.run, one.worker) not in handled]
    return sorted(found, key=lambda one: one.starts_at)


def _alerts(current: CurrentState, unhandled: Sequence[Alert], style: ReportStyle) -> Iterator[str]:
    for hold in current.holds:
        scope = "Nothing" if hold.everything else code(hold.scope)
        negation = "" if hold.everything else " not"
        by = f" {text(hold.description)}" if hold.description else ""
        yield f"**{scope} will{negation} be healed**: held{by}."
    if isinstance(current.alerts, str):
        yield f"**The active alerts are not known**: {text(current.alerts)}."
        return
    left = len(current.alerts) - len(unhandled)
    if not current.alerts:
        yield "No alert fires."
    elif left:
        yield f"{left} of {len(current.alerts)} active alerts: the remediator acts on them."
    for alert in unhandled:
        summary = (
            f" {text(alert.annotations['summary'])}" if alert.annotations.get("summary") else ""
        )
        severity = alert.labels.get("severity", "")
        kind = f" ({text(severity)})" if severity else ""
        since = style.times.clock(alert.starts_at)
        yield f"**Nothing acts on {text(alert.name)}**{kind}{_on(alert)}, since {since}.{summary}"


def _repeats(incidents: Sequence[IncidentRecord]) -> Iterator[str]:
    """Yields `demo/inference: TrainingInferenceDown 3 times in 13 min`, the most frequent first."""
    by_kind: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in incidents:
        by_kind[one.name, one.alert].append(one.starts_at)
    for (name, alert), times in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        if len(times) >= REPEATS:
            within = format_duration(round(max(times) - min(times)))
            yield f"{code(name)}: {text(alert)} {len(times)} times in {within}."


def _todo(
    current: CurrentState,
    incidents: Sequence[IncidentRecord],
    unhandled: Sequence[Alert],
    now: float,
) -> Iterator[str]:
    for one in incidents:
        if headline(one).state == "person":
            subject = f"{text(one.alert)} on {code(one.name)}"
            yield f"Incident {one.id}, {subject}: an operator is needed."
    if isinstance(current.exporter, ExporterState):
        for name, run in current.exporter.runs.items():
            if stands_still(run, now):
                yield f"Find out why {code(name)} stands still: look at its log and its servers."
    for alert in unhandled:
        if alert.labels.get("severity") in ("critical", "warning"):
            runbook = runbook_link(alert.name, alert.annotations) or "no runbook"
            step = first_step(alert.name, alert.labels)
            first = f" {text(step)}" if step else ""
            yield f"{text(alert.name)}{_on(alert)}:{first} ({runbook})"
    if current.holds:
        yield f"Run {code('trainwarden-remediator resume')} when the work is done."
    if isinstance(current.exporter, str) or isinstance(current.alerts, str):
        yield "Restore the monitoring: a part of it does not answer."


def _on(alert: Alert) -> str:
    name = "/".join(part for part in (alert.run, alert.worker) if part)
    return f" on {code(name)}" if name else " on the host"
