"""Decides whether a run without progress moves, or is in the hands of an operator. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from trainwarden_exporter.runtime.responsibility import AT_PROMPT, STALL, continues, suspended
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import Decision, Reason
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.context import DecisionContext

HALTS_SHOWN = frozenset({STALL, "TrainingCheckpointOverdue"})
"""Alerts of a run that an operator has halted: it goes on once the operator continues it."""


def left_alone(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision to wait for a run that moves, or that an operator has halted (harm 23), else None.

    A restart would end an evaluation, or what the operator looks at.
    """
    stalls = context.condition is Condition.NO_PROGRESS
    if not (stalls or context.in_follow_up):
        return None
    if (halt := find_halt(target.run, exporter)) is not None:
        return context.wait(halt[0], target, halt[1])
    run = exporter.runs.get(target.run)
    if not stalls or run is None or not moves(run, context.now):
        return None
    return context.wait("undecided" if run.undecided else "moving", target)


def find_halt(name: str, exporter: ExporterState) -> tuple[Reason, str] | None:
    """Returns the reason and detail why a run counts as halted by an operator, else None."""
    run = exporter.runs.get(name)
    if run is not None and run.at_prompt:
        return "at_prompt", run.waits
    stopped = any(one.stopped for key, one in exporter.workers.items() if key.run == name)
    return ("suspended", continues("" if run is None else run.waits)) if stopped else None


def halted_runs(exporter: ExporterState) -> Mapping[str, str]:
    """Returns how operators have halted runs, as a clause about each, as on the exporter's page."""
    halts = {name: find_halt(name, exporter) for name in exporter.runs}
    return {
        name: AT_PROMPT if halt[0] == "at_prompt" else suspended(exporter.runs[name].waits)
        for name, halt in halts.items()
        if halt is not None
    }


def is_halted(alert: Alert, halted: Collection[str]) -> bool:
    """Whether an alert only shows that an operator has halted its run, of those `halted`."""
    return alert.name in HALTS_SHOWN and alert.run in halted


def moves(run: RunState, now: float) -> bool:
    """Whether a silent run moves, or may, for no longer than its evaluations may take.

    The error of a line, which makes the alert fire sooner, may have been caught, or be of a program
    that the run tests.
    """
    limit = run.restart_limit
    silent = run.progress_at is not None and limit is not None and now - run.progress_at <= limit
    # Without a known pace there is no limit, and a run that polls for ever is awake, too.
    awake = run.awake and limit is not None and math.isfinite(limit)
    return (run.moving or awake or run.undecided) and silent
