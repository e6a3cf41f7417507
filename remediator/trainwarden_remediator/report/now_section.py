"""The head of a night's report: the state now, what repeats, and what to do. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trainwarden_exporter.processes.announcements import AnnouncedRuns, describe_end
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import describe_finish, format_duration, plural
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.responsibility import (
    LABEL,
    NOBODY,
    NOTHING_YET,
    REMEDIATOR,
    YOU,
    as_sentence,
    urgency,
)
from trainwarden_exporter.webserver.runbooks import (
    ALERTMANAGER,
    ALERTMANAGER_STEP,
    first_step,
    with_finite_step,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.journal.evidence_text import describe_exit
from trainwarden_remediator.model import GIVEN_UP, STALL, PastAction
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.alert_handling import (
    AlertView,
    build_alert_views,
    held,
    holder,
    in_force,
    with_own_step,
)
from trainwarden_remediator.policy.failing_starts import (
    FAILING,
    REPEATED,
    failed_restarts,
    mending,
)
from trainwarden_remediator.policy.halts import halted_runs, is_halted
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.incident import ReportStyle, runbook_link
from trainwarden_remediator.report.markdown import bullets, code, text
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.refused_runs import refused_runs
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
    """Returns the state of the host at `now` (Unix seconds), and what is to be done."""
    views = alert_views(current, incidents, now)
    who, how = first_to_act(current, incidents, views, now)
    parts = [
        f"**{LABEL}: {text(who)}.**{how and f' {text(how)}'}",
        f"## Now: {style.times.full(now)}",
        bullets(
            (
                *_runs(current, style, now),
                *_own_restarts(current.announced, style),
                *_alerts(current, views, style),
            )
        ),
    ]
    if again := bullets(_repeats(incidents)):
        parts += ["## What repeats", again]
    todo = bullets(_todo(current, incidents, views or (), now))
    return "\n\n".join([*parts, "## What to do", todo or "Nothing now."])


def alert_views(
    current: CurrentState, incidents: Sequence[IncidentRecord], now: float
) -> tuple[AlertView, ...] | None:
    """Returns the active alerts as the status pages show them; None if they are not known."""
    opened = [alert.incident for one in incidents for alert in one.alerts if alert.closed is None]
    situation = _situation(current, incidents, now)
    return build_alert_views(current.alerts, opened, len({one.outage for one in opened}), situation)


def _situation(current: CurrentState, incidents: Sequence[IncidentRecord], now: float) -> Situation:
    actions, announced = _past_actions(incidents), current.announced.workers
    situation = replace(current.situation, now=now, actions=actions, announced=announced)
    exporter = current.exporter
    halted = {} if isinstance(exporter, str) else halted_runs(exporter)
    return replace(situation, halted=halted)


def _past_actions(incidents: Sequence[IncidentRecord]) -> Sequence[PastAction]:
    return [
        PastAction(
            one.id,
            WorkerKey(action.run, action.worker),
            action.at,
            None if action.outcome is None and action.result != "failed" else action.outcome_at,
            healed=action.outcome == "healed",
            kind=action.kind,
            result=action.result,
            result_at=action.result_at,
            attempt=action.attempt,
            attempts=action.attempts,
            alert=one.alert,
        )
        for one in incidents
        for action in one.actions
    ]


def first_to_act(
    current: CurrentState,
    incidents: Sequence[IncidentRecord],
    views: Sequence[AlertView] | None,
    now: float,
) -> tuple[str, str]:
    """Returns who acts on what is wrong on this host, and what is done as a sentence."""
    if views is None or isinstance(current.exporter, str):
        return YOU, "A part of the monitoring does not answer."
    if troubles := [one for one in views if one.tone in ("bad", "warn")]:
        return troubles[0].who, as_sentence(troubles[0].who, troubles[0].handling)
    if lost := [one for one in incidents if _is_lost(one)]:
        return YOU, f"The remediator gave up on {lost[-1].name}."
    if holds := in_force(current.situation.holds):
        hold = holds[0]
        return holder(hold, now), as_sentence("", held(hold))
    situation = _situation(current, incidents, now)
    runs, workers = current.exporter.runs, current.exporter.workers
    faults = [situation.before_alert(key) for key, worker in workers.items() if worker.missing]
    faults += [
        situation.stall_handling(name) for name, run in runs.items() if _has_stalled(run, now)
    ]
    if faults:
        who, handling = min(faults, key=lambda one: urgency(one[0]))
        return who, as_sentence(who, handling)
    still = any(stands_still(run, now) for run in runs.values())
    return NOBODY, NOTHING_YET if still else ""


def _is_lost(incident: IncidentRecord) -> bool:
    """Whether an incident needs an operator, also once none of its alerts is active."""
    return headline(replace(incident, needs_operator=False)).state == "person"


def _has_stalled(run: RunState, now: float) -> bool:
    if run.finished or run.last_step_at is None or run.trainer_processes == 0:
        return False
    progress_at = max(run.last_step_at or 0.0, run.progress_at or 0.0)
    return run.stall_limit is not None and now - progress_at > run.stall_limit


def stands_still(run: RunState, now: float) -> bool:
    """Whether a run makes no step for longer than usual, or than its limit."""
    if run.finished or run.last_step_at is None or run.trainer_processes == 0:
        return False
    if _has_stalled(run, now):
        return True
    if run.phase in PAUSES or not run.usual_step_seconds:
        return False
    usual = run.usual_step_seconds
    return now - run.last_step_at > usual + max(usual, LATE_STEP_SECONDS)


def _is_interrupted(run: RunState, now: float) -> bool:
    return stands_still(run, now) or (run.trainer_processes == 0 and not run.finished)


def _runs(current: CurrentState, style: ReportStyle, now: float) -> Iterator[str]:
    exporter = current.exporter
    if isinstance(exporter, str):
        why = f"the exporter does not answer ({text(exporter)})"
        yield f"**The state of the runs is not known**: {why}."
        return
    # What stands still comes first: it costs time until an operator acts.
    runs = sorted(exporter.runs.items(), key=lambda item: not _is_interrupted(item[1], now))
    for name, run in runs:
        yield _run(name, run, style, now)
        if run.attempts:
            yield f"**{code(name)}: {text(run.attempts)}.**"
    for key, worker in exporter.workers.items():
        if worker.missing:
            ended = worker.last_exit_code
            how = "" if ended is None else f": it {describe_exit(round(ended))}"
            yield f"**Worker {code('/'.join(key))} is not running**{how}."
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
        return f"{code(name)} {describe_finish(run.step, run.total_steps)}{step}."
    phase = f", phase {text(run.phase.replace('_', ' '))}" if run.phase else ""
    saved = ""
    if (run.checkpoints or run.checkpoint is not None) and run.trials is None:
        of = "of an unknown step" if run.checkpoint is None else f"step {run.checkpoint:,.0f}"
        saved = f"; newest complete checkpoint: {of}"
        if run.checkpoint_at is not None:
            saved += f", {style.times.clock(run.checkpoint_at)}"
        until = run.loss_finite_until
        if until is not None and (run.checkpoint or 0) > until:
            saved += f", **after step {until:,.0f}, the last with a finite loss**"
    if run.last_step_at is None:
        return f"{code(name)}: no step is known{phase}{saved}."
    passed = format_duration(round(max(0.0, now - run.last_step_at)))
    if run.trainer_processes == 0:
        last = "" if run.step is None else f"; its last step was {run.step:,.0f}, {passed} ago"
        return f"**{code(name)} does not run**{last}{saved}."
    if not stands_still(run, now):
        return f"{code(name)} makes steps{step}, {passed} ago{phase}{saved}."
    usual = (
        f" (usually {format_duration(run.usual_step_seconds)})" if run.usual_step_seconds else ""
    )
    since = style.times.clock(run.last_step_at)
    cause = f": {text(run.waits)}" if run.stuck and run.waits else ""
    stands = f"**{code(name)} stands still{step} since {since}, for {passed}{cause}**"
    return f"{stands}{usual}{phase}{saved}."


def _alerts(
    current: CurrentState, views: Sequence[AlertView] | None, style: ReportStyle
) -> Iterator[str]:
    for hold in current.situation.holds:
        scope = "Nothing" if hold.everything else code(hold.scope)
        negation = "" if hold.everything else " not"
        by = f" {text(hold.description)}" if hold.description else ""
        yield f"**{scope} will{negation} be healed**: held{by}."
    if views is None:
        yield f"**The active alerts are not known**: {text(str(current.alerts))}."
        return
    if not views:
        yield "No alert fires."
    for view in views:
        alert = view.alert
        summary = f" {text(summary)}" if (summary := alert.annotations.get("summary")) else ""
        severity = alert.labels.get("severity", "")
        kind = f" ({text(severity)})" if severity else ""
        since = style.times.clock(alert.starts_at)
        handled = f"**{text(view.who)}** ({text(view.handling)})"
        yield f"{text(alert.name)}{kind}{_on(alert)}, since {since}: {handled}.{summary}"


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
    views: Sequence[AlertView],
    now: float,
) -> Iterator[str]:
    situation = _situation(current, incidents, now)
    refused = refused_runs(current, incidents, situation)
    mended = {**_mending(current, incidents, views), **refused}
    for key, step in mended.items():
        yield f"{code('/'.join(key))}: {text(step)}"
    others = (one for one in incidents if (one.run, one.worker) not in mended)
    for one in (one for one in others if _is_lost(one)):
        subject = f"{text(one.alert)} on {code(one.name)}"
        yield f"Incident {one.id}, {subject}: an operator is needed."
    parts = (one.alerts for one in incidents if (one.run, one.worker) in refused)
    refusing = {part.incident.id for own in parts for part in own}
    if isinstance(current.exporter, ExporterState):
        yield from _stalls(current, current.exporter, incidents, views, now)
        yield from _missing_workers(current, current.exporter, incidents, views, now)
    for view in (one for one in with_own_step(views) if urgency(one.who) < urgency(REMEDIATOR)):
        key = WorkerKey(view.alert.run, view.alert.worker)
        own = mended if view.alert.name in FAILING else refused
        shown = key in own or view.incident in refusing
        if not shown and not is_halted(view.alert, situation.halted):
            yield _first_step(view, current.exporter)
    if current.situation.holds:
        yield f"Run {code('trainwarden resume')} when the work is done."
    if isinstance(current.alerts, str):
        yield f"{ALERTMANAGER}: {text(ALERTMANAGER_STEP)}"
    if isinstance(current.exporter, str):
        yield "Restore the monitoring: the exporter does not answer."


def _stalls(
    current: CurrentState,
    exporter: ExporterState,
    incidents: Sequence[IncidentRecord],
    views: Sequence[AlertView],
    now: float,
) -> Iterator[str]:
    """Yields a line for each run that stands still, that nobody restarts and no alert reports.

    An alert that nobody needs to act on reports no standstill, unless it is that of the stall.
    """
    reported = {one.alert.run for one in views if one.who != NOBODY or one.alert.name == STALL}
    situation = _situation(current, incidents, now)
    halted = {one.alert.run for one in views if is_halted(one.alert, situation.halted)}
    for name, run in exporter.runs.items():
        yours = _has_stalled(run, now) and situation.stall_handling(name)[0] == YOU
        if name in situation.halted and (yours or name in halted):
            yield f"{code(name)}: {text(situation.halted[name])}."
        elif yours and name not in reported:
            stacks = code(f"trainwarden stacks {name}")
            yield f"Find out why {code(name)} stands still: {stacks} names the process that waits."


def _first_step(view: AlertView, exporter: ExporterState | str) -> str:
    alert = view.alert
    run = exporter.runs.get(alert.run) if isinstance(exporter, ExporterState) else None
    until = None if run is None else run.loss_finite_until
    runbook = runbook_link(alert.name, alert.annotations) or "no runbook"
    first = text(with_finite_step(first_step(alert.name, view.step_labels), until))
    return f"{text(alert.name)}{_on(alert)}: {first} ({runbook})".replace(":  (", ": (")


def _mending(
    current: CurrentState, incidents: Sequence[IncidentRecord], views: Sequence[AlertView]
) -> Mapping[WorkerKey, str]:
    """Returns what is to be done about each worker that fails at each start."""
    found: dict[WorkerKey, str] = {}
    actions = _past_actions(incidents)
    for view in views:
        key = WorkerKey(view.alert.run, view.alert.worker)
        often = len(failed_restarts(key, actions, current.announced)) >= REPEATED
        often = often and view.who != NOBODY
        if often or urgency(view.who) < urgency(REMEDIATOR):
            faults = (one.fault.error for one in incidents if (one.run, one.worker) == key)
            error = redact(next((one for one in faults if one), ""))
            known = current.announced
            if step := mending(view.alert, actions, known, error, who_acts=view.who):
                found.setdefault(key, step)
    return found


def _missing_workers(
    current: CurrentState,
    exporter: ExporterState,
    incidents: Sequence[IncidentRecord],
    views: Sequence[AlertView],
    now: float,
) -> Iterator[str]:
    """Yields a line for each worker that is gone, that nobody starts and no alert reports."""
    known = {(one.alert.run, one.alert.worker) for one in views}
    situation = _situation(current, incidents, now)
    for key, worker in exporter.workers.items():
        who, _ = situation.before_alert(key)
        nobody = who == YOU or _was_given_up(key, incidents)
        if worker.missing and key not in known and nobody:
            yield (
                f"{code('/'.join(key))} is not running, and nobody starts it again: read the last "
                "lines of its log, and start it."
            )


def _was_given_up(key: WorkerKey, incidents: Sequence[IncidentRecord]) -> bool:
    """Whether the newest incident of a worker was abandoned."""
    of_worker = [one for one in incidents if (one.run, one.worker) == key]
    return bool(of_worker) and of_worker[-1].closed in GIVEN_UP


def _on(alert: Alert) -> str:
    name = "/".join(part for part in (alert.run, alert.worker) if part)
    return f" on {code(name)}" if name else " on the host"
