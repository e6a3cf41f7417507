"""Decides whether a run without progress is in the hands of an operator. Pure."""

from __future__ import annotations

from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import Decision
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.context import DecisionContext


def left_to_operator(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision to wait for the operator who has halted a run on purpose, else None (harm 23).

    A restart would end what they look at.
    """
    if context.condition is not Condition.NO_PROGRESS and not context.in_follow_up:
        return None
    run = exporter.runs.get(target.run)
    if run is not None and run.at_prompt:
        return context.wait("at_prompt", target, run.waits)
    stopped = sum(exporter.workers[key].stopped for key in target.keys if key in exporter.workers)
    return context.wait("suspended", target, "`kill -CONT` continues it") if stopped else None
