"""Decides one rung of a ladder: whether it may be tried now, or why not. Pure.

Each refusal names the harm of docs/harms.md that it prevents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.targets import GPUS, Budget, Target
from trainwarden_remediator.model import (
    NEEDS_OPERATOR,
    Decision,
    PastAction,
    Verdict,
)
from trainwarden_remediator.observation.model import ExporterState, WorkerState
from trainwarden_remediator.policy.agreement import refuse_other_processes
from trainwarden_remediator.policy.alert_blockers import alert_blocker, blocking_alert, suppression
from trainwarden_remediator.policy.blockers import (
    check_breaker,
    describe_unknown_save,
    find_blocker,
    is_acting,
    larger_worker_first,
    void_approval,
)
from trainwarden_remediator.policy.budgets import budget_exhausted, count_attempts, too_soon
from trainwarden_remediator.policy.conditions import (
    describe_observed,
    find_root_cause,
    is_down,
    is_overdue,
    missing_observation,
    still_holds,
)
from trainwarden_remediator.policy.context import DecisionContext, PolicyState
from trainwarden_remediator.policy.halts import left_alone


def decide_gpu_cleanup(context: DecisionContext, budget: Budget) -> Decision:
    """Whether processes that hold a GPU and belong to no worker are terminated now."""
    state = context.state
    if busy := state.open_actions:
        # A process that an action is starting may not match its worker yet, and would look like a
        # leftover (harm 13).
        return context.busy(busy[0], budget)
    history = [action for action in state.actions if action.key == budget.key]
    if (wait := too_soon(context, budget, history)) is not None:
        return _healed_before(context, budget, history[-1]) or wait
    # An old observation may show holders that have ended since (harm 4).
    if state.snapshot is None:
        return context.decide(Verdict.OBSERVE_FIRST, "needs_observation", budget)
    if (blocker := alert_blocker(context, budget, state.snapshot)) is not None:
        return blocker
    orphans = state.snapshot.exporter.gpu_orphans if state.snapshot.exporter else None
    # Unknown is not bad: no answer is no ground to terminate anything (harm 9).
    if orphans is None:
        return context.wait("observation_failed", budget, "the exporter shows no GPU holders")
    # The GPU is free; the alert has not resolved yet (harm 4).
    if orphans == 0:
        return context.wait("condition_cleared", budget)
    if (end := budget_exhausted(context, budget, history)) is not None:
        return end
    if context.observes:
        return context.wait("observe_mode", budget, "would terminate the leftovers")
    return void_approval(context, budget) or context.decide(Verdict.ACT, "clean", budget)


def decide_notify(context: DecisionContext) -> Decision:
    """Whether the operator is notified now.

    A notification does no harm, so it is also sent while Alertmanager cannot be reached.
    """
    snapshot = context.state.snapshot
    # One notification for each rung: a repeated page is ignored (harm 27).
    if context.ladder_exhausted:
        return context.wait("awaiting_operator")
    if snapshot is None:
        return context.decide(Verdict.OBSERVE_FIRST, "needs_observation")
    # A silence by an operator also silences the page (harm 23).
    if (
        snapshot.alerts is not None
        and (blocker := suppression(context, None, snapshot.alerts)) is not None
    ):
        return blocker
    # Nobody is paged for a condition that has cleared (harm 4).
    if snapshot.exporter is not None and _is_observed_cleared(context, snapshot.exporter):
        return context.wait("condition_cleared")
    if context.observes:
        return context.wait("observe_mode", detail="would notify the operator")
    return context.decide(Verdict.ACT, "notify")


def _is_observed_cleared(context: DecisionContext, exporter: ExporterState) -> bool:
    """Whether the exporter shows that the condition has cleared; unknown counts as not cleared."""
    ill = WorkerKey(context.incident.run, context.incident.worker)
    if context.in_follow_up or (ill.worker and ill not in exporter.workers):
        return False
    shown = not missing_observation(context.condition, ill, exporter, context.now)
    return shown and not still_holds(context.condition, ill, exporter, context.now)


def decide_target(context: DecisionContext, target: Target) -> Decision:
    """Whether `target` is restarted now.

    Questions that the journal answers come first; the snapshot is taken only when all of them pass.
    """
    state = context.state
    # Its command has done its work: an alert of a run that is over needs nobody (harm 12).
    if target.has_finished:
        return context.refuse("has_finished", target, "it exited with status 0")
    # Nothing else matters: whatever it waits for, a hold too, it could not be restarted afterwards.
    if not target.can_be_restarted:
        return context.wait("managed_elsewhere", target, target.why_ended)
    # An operator holds this target, its run or everything (harm 23).
    if (hold := state.active_hold(*target.keys)) is not None:
        return context.wait("held", target, hold.description)
    # The breaker stays open until an operator resets it (harm 7).
    if state.breaker.opened_at is not None:
        return context.wait("breaker_open", target)
    # A restart loop or a full disk: a restart would lose the work since the last checkpoint
    # (harms 10 and 21).
    if alert := blocking_alert(target, state):
        return context.wait("held_by_alert", target, alert)
    # Two actions at once in one run end what the other has just started (harm 13).
    if (action := _conflicting_action(target, state, context.now)) is not None:
        return context.busy(action, target)
    # Restarts of other workers for the same shortage of memory count too: otherwise one shortage
    # would restart every worker in turn (harm 7).
    shared = context.rung.target == "largest_worker"
    history = [
        action
        for action in state.actions
        if action.key == target.key or (shared and _is_attempt_of(context, action))
    ]
    # The distance between attempts grows, so that a slow crash loop exhausts its budget (harm 11).
    wait = None if context.ladder_exhausted else too_soon(context, target, history, seen=False)
    if wait is not None:
        return _healed_before(context, target, history[-1]) or wait
    # The condition is observed again right before the act: the alert may be old (harm 4).
    if state.snapshot is None:
        return context.decide(Verdict.OBSERVE_FIRST, "needs_observation", target)
    if (blocker := alert_blocker(context, target, state.snapshot)) is not None:
        return blocker
    return _decide_by_observation(context, target, history)


def _healed_before(context: DecisionContext, target: Budget, last: PastAction) -> Decision | None:
    """A decision about an alert that fires though the last action has healed its outage, else None.

    What that action has healed may have failed again since: then the alert is a new fault.
    """
    snapshot = context.state.snapshot
    outage = context.incident.id, context.incident.part_of
    if not last.healed or last.incident not in outage:
        return None
    if snapshot is None:
        return context.decide(Verdict.OBSERVE_FIRST, "needs_observation", target)
    seen = snapshot.exporter
    cleared = seen is not None and _is_observed_cleared(context, seen)
    return context.wait("alert_lingers", target) if cleared else None


def _conflicting_action(target: Target, state: PolicyState, now: float) -> PastAction | None:
    """An action in progress that excludes an action on `target`.

    A trainer that was started is only verified until its first step; meanwhile a worker or server
    that it waits for may be restarted.
    """
    for action in state.open_actions:
        if action.key.run not in (target.run, GPUS.run):
            continue
        own = action.key in target.keys or not state.setup.is_trainer(action.key)
        if own or is_acting(action, now):
            return action
    return None


def _is_attempt_of(context: DecisionContext, action: PastAction) -> bool:
    return action.incident == context.incident.id and action.kind != "notify"


def _decide_by_observation(
    context: DecisionContext, target: Target, history: Sequence[PastAction]
) -> Decision:
    exporter = context.state.snapshot.exporter if context.state.snapshot else None
    if exporter is None:
        return context.wait("observation_failed", target, "no observation yet")
    if (gone := _condition_cleared(context, target, exporter)) is not None:
        return gone
    # An operator looks at it (harm 23).
    if (own := left_alone(context, target, exporter)) is not None:
        return own
    # The budget is checked after the condition: the last attempt may have healed it while the alert
    # still fires, and the operator would be paged without need (harm 16).
    blocker = budget_exhausted(context, target, history)
    # Again, because the run may show progress that renews the budget: the cooldown then counts.
    if blocker is None and (wait := too_soon(context, target, history)) is not None:
        return wait
    blocker = blocker or _after_last_step(context, target, exporter)
    blocker = blocker or _several_trainers(context, target)
    blocker = blocker or find_blocker(context, target, exporter)
    if context.observes and (blocker is None or blocker.reason in NEEDS_OPERATOR):
        # In observe mode nobody is paged for what would have been done.
        would = "would restart it" if blocker is None else f"could not restart it: {blocker.reason}"
        return context.wait("observe_mode", target, would)
    blocker = (
        blocker or larger_worker_first(context, target, exporter) or check_breaker(context, target)
    )
    if blocker is not None:
        return blocker
    if (void := void_approval(context, target)) is not None:
        return void
    unknown = describe_unknown_save(context, target, exporter)
    decision = context.decide(Verdict.ACT, "restart", target, unknown)
    attempt = count_attempts(context, history, target) + 1
    return replace(decision, attempt=attempt, need=context.need(target))


def _after_last_step(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision not to restart a run that hangs after its last step: it has none left to make."""
    run = exporter.runs.get(target.run)
    if context.condition is not Condition.NO_PROGRESS or run is None or not run.last_step_made:
        return None
    return context.refuse("last_step_made", target, run.waits)


def _several_trainers(context: DecisionContext, target: Target) -> Decision | None:
    """A decision not to restart one of several trainers, which would hang the others (harm 18)."""
    if context.rung.target != "trainer":
        return None
    several = context.state.setup.describe_several_trainers(target.run)
    return context.refuse("several_trainers", target, several) if several else None


def _condition_cleared(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision not to restart `target` because of what the exporter shows of it, else None."""
    for key in target.keys:
        if (odd := _target_blocker(context, target, exporter.workers.get(key))) is not None:
            return odd
    if context.in_follow_up:
        return None
    ill = context.affected_worker(target)
    # Unknown is not bad (harm 9).
    if missing := missing_observation(context.condition, ill, exporter, context.now):
        return context.wait("observation_failed", target, missing)
    # A trainer that waits for a dead server stalls; restarting it heals nothing (harm 7).
    stalled = context.condition is Condition.NO_PROGRESS
    if stalled and (why := find_root_cause(target.run, exporter, context.now)):
        return context.wait("root_cause_elsewhere", target, why)
    # A restart would break the request that it works on.
    servers = exporter.servers_of(ill) if context.condition is Condition.INFERENCE_DOWN else ()
    if any(map(is_overdue, servers)) and not any(map(is_down, servers)):
        return context.wait("at_work", target)
    # The alert lags behind the exporter (harm 4).
    if not still_holds(context.condition, ill, exporter, context.now):
        return _wait_for_end(context, target, describe_observed(context.condition, ill, exporter))
    # A worker that may finish and exited with status 0 has done its work (harm 12).
    own = ill if ill in target.keys else target.key
    finished_at = context.state.finished.get(own)
    finished = finished_at is not None and context.state.setup.may_finish(own)
    if (
        context.condition is Condition.MISSING
        and finished
        and not _failed_since(exporter.workers.get(own), finished_at)
    ):
        return context.refuse("has_finished", target, "it exited with status 0")
    return None


CLEARED_SECONDS = 30.0
"""How long a critical alert may fire after its condition has ended: 15 s at Prometheus, and the way
to Alertmanager."""


def _wait_for_end(context: DecisionContext, target: Target, observed: str) -> Decision:
    """A decision to wait for the end of an alert whose condition the exporter does not show.

    A critical alert that fires on contradicts the exporter: an operator must find out which of them
    is right (harm 22).
    """
    cleared = context.wait("condition_cleared", target, observed)
    contradicted = context.wait("contradicted", target, observed)
    incident = context.incident
    lasts = incident.last_decision == contradicted.text
    lasts = lasts or incident.repeated_for(cleared, context.now) >= CLEARED_SECONDS
    critical = incident.labels.get("severity") == "critical"
    return contradicted if critical and lasts else cleared


def _failed_since(worker: WorkerState | None, finished_at: float | None) -> bool:
    """Whether a worker that had finished was started by something else since, and has failed."""
    if worker is None or finished_at is None or not worker.last_exit_code:
        return False
    return worker.last_exit_at is not None and worker.last_exit_at > finished_at


def _target_blocker(
    context: DecisionContext, target: Target, worker: WorkerState | None
) -> Decision | None:
    """A decision to wait because of one worker of `target`, else None."""
    # A worker that the exporter does not show may be healthy (harm 9).
    if worker is None:
        return context.wait("observation_failed", target, "the exporter does not show it")
    # More processes than expected match: one of them may belong to somebody else (harm 8).
    if worker.processes > worker.expected:
        detail = f"{worker.processes:g} processes match, {worker.expected:g} expected"
        return refuse_other_processes(
            *(context.incident, context.wait("ambiguous_target", target), detail),
            observes=context.observes,
            now=context.now,
        )
    # Something else restarted it after the condition began (harm 12).
    started = worker.started_at
    if (
        started is not None
        and started > context.condition_started_at
        and context.now - started < target.cooldown
    ):
        return context.wait("already_restarted", target)
    return None
