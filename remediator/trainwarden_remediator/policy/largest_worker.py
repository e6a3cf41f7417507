"""Decides which worker is restarted where the memory of the host is short. Pure.

Each refusal names the harm of docs/harms.md that it prevents.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.alert_blockers import blocking_alert, suppression
from trainwarden_remediator.policy.blockers import memory_bytes
from trainwarden_remediator.policy.budgets import count_attempts
from trainwarden_remediator.policy.conditions import still_holds
from trainwarden_remediator.policy.context import DecisionContext
from trainwarden_remediator.policy.rung import decide_target

MATTERING_SHARE = 0.5
"""Share of the largest worker, or of the floor above it, that a restart must free to matter."""


def decide_largest_worker(context: DecisionContext) -> Decision:
    """Whether the target that holds the most memory is restarted now."""
    state = context.state
    # An operator stopped all actions (harm 23).
    if (hold := state.active_hold()) is not None:
        return context.wait("held", detail=hold.description)
    # The breaker stays open until an operator resets it (harm 7).
    if state.breaker.opened_at is not None:
        return context.wait("breaker_open")
    if busy := state.open_actions:
        # The action in progress has not freed its memory yet: a second one would restart a worker
        # for nothing (harm 7).
        return context.busy(busy[0])
    # The largest worker is chosen by a fresh observation or not at all (harms 4 and 9).
    if state.snapshot is None:
        return context.decide(Verdict.OBSERVE_FIRST, "needs_observation")
    if (exporter := state.snapshot.exporter) is None:
        return context.wait("observation_failed", detail=state.snapshot.unknown)
    free = [target for target in state.config.targets if not _why_left_alone(context, target)]
    target = largest(free, exporter)
    # Restarts of small workers free nothing that matters while the worker that holds the memory is
    # left alone: they would all be restarted in its place (harm 7).
    if (left := _left_alone(free, target, exporter)) is not None:
        return _call(context, exporter, *left, target)
    return context.wait("no_candidate") if target is None else decide_target(context, target)


def largest(targets: Sequence[Target], exporter: ExporterState) -> Target | None:
    """Returns the target whose living processes hold the most memory."""
    sizes = {target.key: memory_bytes(target, exporter) for target in targets}
    running = [target for target in targets if sizes[target.key] > 0]
    return max(running, key=lambda target: sizes[target.key], default=None)


def _why_left_alone(context: DecisionContext, target: Target) -> str:
    """Returns why a target may not be restarted until an operator changes something, or ""."""
    state = context.state
    if (hold := state.active_hold(*target.keys)) is not None:
        return f"held {hold.description or 'by an operator'}"
    if alert := blocking_alert(target, state):
        return f"held while {alert} fires"
    if not target.can_be_restarted:
        return target.why_ended
    own = [action for action in state.actions if action.key == target.key]
    return "no attempts left" if count_attempts(context, own, target) >= target.attempts else ""


def _left_alone(
    free: Sequence[Target],
    target: Target | None,
    exporter: ExporterState,
) -> tuple[WorkerKey, float] | None:
    """Returns the worker that holds the memory and may not be restarted, and its size, or None.

    None where a restart of `target`, the largest of those `free`, may relieve the host.
    """
    may_be = {key for one in free for key in one.keys}
    others = {
        key: worker.memory_bytes
        for key, worker in exporter.workers.items()
        if key not in may_be and worker.processes > 0
    }
    if not others:
        return None
    key = max(others, key=lambda one: others[one])
    freed = 0.0 if target is None else memory_bytes(target, exporter)
    floor = exporter.memory_floor_bytes
    relieves = floor - exporter.memory_available_bytes + MATTERING_SHARE * floor
    matters = freed > 0 and freed >= min(MATTERING_SHARE * others[key], relieves)
    return None if matters else (key, others[key])


def _call(
    context: DecisionContext,
    exporter: ExporterState,
    key: WorkerKey,
    size: float,
    target: Target | None,
) -> Decision:
    """Returns the decision to call an operator, with the worker that holds the memory."""
    state, snapshot = context.state, context.state.snapshot
    # Nobody is called for an alert that is not confirmed (harms 4 and 23).
    if snapshot is None or snapshot.alerts is None:
        return context.wait("observation_failed", detail=snapshot.unknown if snapshot else "")
    if (blocker := suppression(context, None, snapshot.alerts)) is not None:
        return blocker
    # The alert lags behind the exporter (harm 4).
    if not still_holds(context.condition, key, exporter, context.now):
        return context.wait("condition_cleared")
    own = state.config.target(key)
    known = "" if own is None else _why_left_alone(context, own)
    why = known or state.setup.why_no_target(*key) or "no target of remediator.yml"
    detail = f"{'/'.join(key)} holds {format_size(size)} and is left alone: {why}"
    if target is not None:
        name, held = "/".join(target.key), format_size(memory_bytes(target, exporter))
        detail += f"; {name}, the largest worker that may be restarted, holds {held}"
    if context.observes:
        return context.wait("observe_mode", detail=f"could not relieve it: {detail}")
    return context.refuse("largest_left_alone", detail=detail)
