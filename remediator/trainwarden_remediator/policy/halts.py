"""Decides whether a run without progress moves, or is in the hands of an operator. Pure."""

from __future__ import annotations

from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import Decision
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.context import DecisionContext


def left_alone(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision to wait for a run that moves, or that an operator has halted (harm 23), else None.

    A restart would end an evaluation, or what the operator looks at.
    """
    if context.condition is not Condition.NO_PROGRESS and not context.in_follow_up:
        return None
    run = exporter.runs.get(target.run)
    if run is not None and run.at_prompt:
        return context.wait("at_prompt", target, run.waits)
    if context.condition is Condition.NO_PROGRESS and run is not None and _moves(run, context.now):
        return context.wait("moving", target)
    stopped = sum(one.stopped for key, one in exporter.workers.items() if key.run == target.run)
    return context.wait("suspended", target, "`kill -CONT` continues it") if stopped else None


def _moves(run: RunState, now: float) -> bool:
    """Whether the stacks of a silent run move, for no longer than its evaluations may take.

    The error of a line, which makes the alert fire sooner, may have been caught, or be of a program
    that the run tests.
    """
    limit = run.restart_limit
    silent = run.progress_at is not None and limit is not None and now - run.progress_at <= limit
    return run.moving and silent
