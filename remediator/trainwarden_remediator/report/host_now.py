"""The host at the time of a report: its state, the journal beside it, and who acts first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    NOT_FINITE_HANDLING,
    NOTHING_YET,
    STALL_HANDLINGS,
    YOU,
    as_sentence,
    urgency,
)
from trainwarden_remediator.model import PastAction
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.alert_handling import AlertView, build_alert_views
from trainwarden_remediator.policy.halts import halted_runs
from trainwarden_remediator.policy.hold_text import held, holder, in_force
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.model import IncidentRecord
from trainwarden_remediator.report.summary import headline

LATE_STEP_SECONDS = 40.0
"""A step is late when it takes longer than the usual one by this, or by the usual one if that is
longer, as on the exporter's page."""

Trouble = Literal["silent", "handled", "yours"]
"""How a run is not well: it stands still, and may evaluate; it is being healed, or held; or an
operator has to act."""

PAUSES = frozenset({"starting", "saving", "evaluating", "updating_weights", "finished"})
"""Phases in which a long time without a step is usual."""


@dataclass(frozen=True, slots=True)
class HostNow:
    """The state of the host at `now` (Unix seconds), with the incidents of a report."""

    current: CurrentState
    incidents: Sequence[IncidentRecord]
    now: float
    situation: Situation
    """What decides who acts, with what the journal has."""
    views: tuple[AlertView, ...] | None
    """The active alerts as the status pages show them; None if they are not known."""


def host_now(current: CurrentState, incidents: Sequence[IncidentRecord], now: float) -> HostNow:
    exporter = current.exporter
    situation = replace(
        current.situation,
        now=now,
        actions=_past_actions(incidents),
        announced=current.announced.workers,
        halted={} if isinstance(exporter, str) else halted_runs(exporter),
        finished=() if isinstance(exporter, str) else exporter.finished_runs,
        last_steps={} if isinstance(exporter, str) else exporter.last_steps,
        last_lines={} if isinstance(exporter, str) else exporter.last_lines,
        ending=() if isinstance(exporter, str) else exporter.ending_runs,
        dead=() if isinstance(exporter, str) else exporter.dead_runs,
    )
    opened = [alert.incident for one in incidents for alert in one.alerts if alert.closed is None]
    count = len({one.outage for one in opened})
    views = build_alert_views(current.alerts, opened, count, situation)
    return HostNow(current, incidents, now, situation, views)


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


def first_to_act(host: HostNow) -> tuple[str, str]:
    """Returns who acts on what is wrong on this host, and what is done as a sentence."""
    exporter, situation, now = host.current.exporter, host.situation, host.now
    if host.views is None or isinstance(exporter, str):
        return YOU, "A part of the monitoring does not answer."
    if troubles := [one for one in host.views if one.tone in ("bad", "warn")]:
        return troubles[0].who, as_sentence(troubles[0].who, troubles[0].handling)
    if lost := [one for one in host.incidents if is_lost(one)]:
        return YOU, f"The remediator gave up on {lost[-1].name}."
    if holds := in_force(situation.holds):
        hold = holds[0]
        return holder(hold, now), as_sentence("", held(hold))
    if faults := list(_faults(host, exporter)):
        _, who, handling = min(faults, key=lambda one: urgency(one[1]))
        return who, as_sentence(who, handling)
    still = any(stands_still(run, now) for run in exporter.runs.values())
    return NOBODY, NOTHING_YET if still else ""


def _faults(host: HostNow, exporter: ExporterState) -> Iterator[tuple[str, str, str]]:
    """Yields the run of each fault that no alert reports yet, who acts on it, and what is done."""
    for key, worker in exporter.workers.items():
        if worker.missing:
            yield key.run, *host.situation.before_alert(key)
    for name, run in exporter.runs.items():
        if has_stalled(run, host.now):
            yield name, *host.situation.stall_handling(name)
        if run.saves_spoilt:
            yield name, YOU, NOT_FINITE_HANDLING


def unwell_runs(host: HostNow) -> Mapping[str, Trouble]:
    """Returns the runs that are not well, by the worst that is known of each."""
    views = [one for one in host.views or () if one.tone in ("bad", "warn")]
    found = [(one.alert.run, one.who, one.handling) for one in views]
    found += [(one.affected_run, YOU, "") for one in host.incidents if is_lost(one)]
    silent: list[str] = []
    if isinstance(exporter := host.current.exporter, ExporterState):
        alerted = {run for run, *_ in found}
        found += [one for one in _faults(host, exporter) if one[0] not in alerted]
        runs = exporter.runs.items()
        silent = [run for run, one in runs if stands_still(one, host.now) and not one.stuck]
    found = [one for one in found if one[1] != NOBODY]
    handled = {run for run, _, how in found if not (run in silent and how in STALL_HANDLINGS)}
    yours = {run for run, who, _ in found if who == YOU}
    return {
        **dict.fromkeys(silent, "silent"),
        **dict.fromkeys(handled, "handled"),
        **dict.fromkeys(yours, "yours"),
    }


def is_lost(incident: IncidentRecord) -> bool:
    """Whether an incident needs an operator, also once none of its alerts is active."""
    return headline(replace(incident, needs_operator=False)).state == "person"


def has_stalled(run: RunState, now: float) -> bool:
    """Whether a run is silent for longer than its limit, as on the exporter's page."""
    progress_at = max(run.last_step_at or 0.0, run.progress_at or 0.0)
    if run.finished or run.ends or not progress_at or run.trainer_processes == 0:
        return False
    limit = run.stall_limit if run.pause_limit is None else run.pause_limit
    return limit is not None and now - progress_at > limit


def stands_still(run: RunState, now: float) -> bool:
    """Whether a run makes no step for longer than usual, or than its limit, or by its stacks."""
    if run.finished or run.ends or run.trainer_processes == 0:
        return False
    if run.stuck or has_stalled(run, now):
        return True
    if run.last_step_at is None:
        return False
    if run.phase in PAUSES or not run.usual_step_seconds:
        return False
    usual = run.usual_step_seconds
    return now - run.last_step_at > usual + max(usual, LATE_STEP_SECONDS)
