"""The head of a night's report: the state now, what repeats, and what to do. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from trainwarden_exporter.processes.announcements import AnnouncedRuns, describe_end
from trainwarden_exporter.runtime.formatting import describe_finish, format_duration, plural
from trainwarden_exporter.runtime.responsibility import LABEL
from trainwarden_exporter.step_dirs.names import number_unit
from trainwarden_remediator.journal.evidence_text import describe_exit
from trainwarden_remediator.journal.recurrence import describe_recurrence
from trainwarden_remediator.observation.model import RunState
from trainwarden_remediator.policy.alert_handling import AlertView
from trainwarden_remediator.policy.conditions import BUSY
from trainwarden_remediator.policy.failing_starts import mend_hint
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.host_now import HostNow, first_to_act, stands_still
from trainwarden_remediator.report.incident import ReportStyle
from trainwarden_remediator.report.markdown import bullets, code, text
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.todo_section import describe_todo, on_subject

REPEATS = 2
"""Number of incidents of the same kind from which on they repeat."""


def now_section(host: HostNow, style: ReportStyle) -> str:
    """Returns the state of the host, and what is to be done."""
    current, now = host.current, host.now
    who, how = first_to_act(host)
    parts = [
        f"**{LABEL}: {text(who)}.**{how and f' {text(how)}'}",
        f"## Now: {style.times.full(now)}",
        bullets(
            (
                *_runs(current, style, now),
                *_own_restarts(current.announced, style),
                *_alerts(current, host.views, style),
            )
        ),
    ]
    if again := bullets(_repeats(host.incidents)):
        parts += ["## What repeats", again]
    todo = bullets(describe_todo(host))
    return "\n\n".join([*parts, "## What to do", todo or "Nothing now."])


def _is_interrupted(run: RunState, now: float) -> bool:
    return stands_still(run, now) or (run.trainer_processes == 0 and not run.finished)


def _runs(current: CurrentState, style: ReportStyle, now: float) -> Iterator[str]:
    exporter = current.exporter
    if isinstance(exporter, str):
        why = f"the exporter does not answer ({text(exporter)})"
        yield f"**The state of the runs is not known**: {why}."
        return
    # What stands still comes first: it costs time until an operator acts.
    runs = sorted(exporter.all_runs.items(), key=lambda item: not _is_interrupted(item[1], now))
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
            elif server.reason == BUSY:
                yield f"Inference server {code(server.name)} of {code(run_name)} is busy."


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
        spoilt = ""
        if (until := run.loss_finite_until) is not None:
            last = f"its last finite loss was at step {until:,.0f}"
            spoilt = f"; **{last}: what it saved since is of no use**"
        return f"{code(name)} {describe_finish(run.step, run.total_steps)}{step}{spoilt}."
    phase = f", phase {text(run.phase.replace('_', ' '))}" if run.phase else ""
    saved = _saved(run, style)
    stands, at = stands_still(run, now), run.last_step_at
    if at is None and stands:
        at = run.progress_at
    if at is None:
        made = "no step is known" if run.step is None else f"{step[2:]}, made at an unknown time"
        return f"{code(name)}: {made}{phase}{saved}."
    passed = format_duration(round(max(0.0, now - at)))
    if run.trainer_processes == 0:
        last = "" if run.step is None else f"; its last step was {run.step:,.0f}, {passed} ago"
        return f"**{code(name)} does not run**{last}{saved}."
    if run.last_step_made:
        last = f"{code(name)} has made its last step{step}, {passed} ago"
        hangs = f", and has not ended: {text(run.waits)}" if run.stuck and run.waits else ""
        return f"**{last}{hangs}**{saved}." if hangs else f"{last}{saved}."
    if not stands:
        return f"{code(name)} makes steps{step}, {passed} ago{phase}{saved}."
    usual = (
        f" (usually {format_duration(run.usual_step_seconds)})" if run.usual_step_seconds else ""
    )
    since = style.times.clock(at)
    cause = f": {text(run.waits)}" if run.stuck and run.waits else ""
    what = f"**{code(name)} stands still{step} since {since}, for {passed}{cause}**"
    return f"{what}{usual}{phase}{saved}."


def _saved(run: RunState, style: ReportStyle) -> str:
    if not (run.checkpoints or run.checkpoint is not None) or run.trials is not None:
        return ""
    unit = number_unit(run.proved_checkpoint)
    of = "of an unknown step" if run.checkpoint is None else f"{unit} {run.checkpoint:,.0f}"
    saved = f"; newest complete checkpoint: {of}"
    if run.checkpoint_at is not None:
        saved += f", {style.times.clock(run.checkpoint_at)}"
    until = run.loss_finite_until
    if until is not None and run.saves_spoilt:
        saved += f", **after step {until:,.0f}, the last with a finite loss**"
    return saved


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
    shown = set()
    for view in views:
        alert = view.alert
        key = alert.name, alert.run, alert.worker, view.who, view.handling
        if key in shown:  # as of each receiver that is not reached
            continue
        shown.add(key)
        summary = f" {text(summary)}" if (summary := alert.annotations.get("summary")) else ""
        severity = alert.labels.get("severity", "")
        kind = f" ({text(severity)})" if severity else ""
        since = style.times.clock(alert.starts_at)
        handled = f"**{text(view.who)}** ({text(view.handling)})"
        yield f"{text(alert.name)}{kind}{on_subject(alert)}, since {since}: {handled}.{summary}"


def _repeats(incidents: Sequence[IncidentRecord]) -> Iterator[str]:
    """Yields `demo/inference: TrainingInferenceDown 3 times in 13 min`, the most frequent first."""
    by_kind: dict[tuple[str, str], list[IncidentRecord]] = defaultdict(list)
    for one in incidents:
        by_kind[one.name, one.alert].append(one)
    for (name, alert), own in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        if len(own) >= REPEATS:
            times = [one.starts_at for one in own]
            within = format_duration(round(max(times) - min(times)))
            often = f"{text(alert)} {len(own)} times in {within}."
            again = text(_healed_again(own))
            yield f"{code(name)}: {often}{again and f' {again}'}"


def _healed_again(incidents: Sequence[IncidentRecord]) -> str:
    """Returns at which pace a fault comes again that each restart heals, and what mends it."""
    outcomes = (
        e for one in reversed(incidents) for e in reversed(one.events) if e.kind == "outcome"
    )
    last = next(outcomes, None)
    again = "" if last is None else describe_recurrence(last)
    return f"Healed {again}. {mend_hint(incidents[-1].alert)}" if again else ""
