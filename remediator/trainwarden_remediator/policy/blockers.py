"""Decides what blocks a restart though its condition holds. Pure.

Each refusal names the harm of docs/harms.md that it prevents.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import WITH_CHECKPOINTS
from trainwarden_remediator.config.playbooks import Condition
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.targets import (
    AnnouncedTarget,
    Budget,
    Target,
)
from trainwarden_remediator.model import (
    HARMLESS_KINDS,
    Approval,
    Decision,
    PastAction,
)
from trainwarden_remediator.observation.model import ExporterState, RunState
from trainwarden_remediator.policy.conditions import (
    is_down,
    is_fresh,
    is_saving,
    repeats_saves,
    still_holds,
)
from trainwarden_remediator.policy.context import DecisionContext
from trainwarden_remediator.policy.damaged_resume import refuse_damaged_resume
from trainwarden_remediator.policy.full_disk import disk_problem, full_at_its_end
from trainwarden_remediator.policy.net_progress import count_without_progress


def check_breaker(context: DecisionContext, target: Budget) -> Decision | None:
    """A decision to wait where the circuit breaker of this host opens, else None.

    So many actions in the window point to a fault of the host or of the watch itself (harm 7). What
    another account announces stops restarts of its own runs alone.
    """
    config, account = context.state.config, target.account
    within = config.breaker.window
    counted = [
        action.intent_at
        for action in context.state.actions
        if action.kind not in HARMLESS_KINDS and action.account == account
    ]
    count = context.state.breaker.count_actions(counted, within, context.now)
    if count < config.breaker_limit(account):
        return None
    found = f"{count} actions on {{}} within {within:g} s"
    if account is None:
        return context.wait("breaker_open", target, found.format("this host"))
    detail = found.format(f"the runs of account {account}")
    return context.wait("account_limit", target, detail)


def find_blocker(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision that blocks a restart of `target`, else None."""
    state, now = context.state, context.now
    # Half of the targets down at once points to the watch or the host (harms 7 and 9).
    if (everywhere := mass_failure(context, target, exporter)) is not None:
        return everywhere
    run = exporter.runs.get(target.run)
    own = [action for action in state.actions if action.key == target.key]
    # Restarts without a newer step or checkpoint are a slow crash loop (harms 11 and 21).
    vain = count_without_progress(own, run, state.operator_start(target.key))
    if vain >= target.max_restarts_without_progress:
        return context.refuse(
            "restarts_without_progress", target, f"{vain} restarts brought no progress"
        )
    if (damaged := refuse_damaged_resume(context, target, run, own)) is not None:
        return damaged
    path, reserve = state.setup.run_path(target.run), state.config.disk_reserve
    # The next checkpoint cannot be written: a restart loses the work since the last one (harm 10).
    problem = disk_problem(exporter, target.run, path, reserve, now)
    worker = exporter.workers.get(context.affected_worker(target))
    problem = problem or full_at_its_end(
        *(exporter, target.run, path, now),
        worker=worker,
        history=own,
        without_room_at=state.without_room.get(target.run, 0.0),
    )
    if problem:
        return context.wait("disk_unusable", target, problem)
    # A checkpoint that is being written would be left incomplete (harm 17).
    saving = context.wait("saving", target, "a checkpoint is being written")
    trainers = [key for key in target.keys if state.setup.is_trainer(key)]
    # A checkpoint whose writer has ended stays as it is: waiting would only lose time.
    writes = any(exporter.workers[key].processes > 0 for key in trainers if key in exporter.workers)
    if run is not None and writes and is_saving(run, now):
        waited = context.incident.repeated_for(saving, now)
        if waited < target.max_save_delay and not repeats_saves(run, now - waited, now):
            return saving
    # A start command with a damaged or an empty checkpoint would fail, or begin at step 0.
    process = target.restart_method
    if isinstance(process, ProcessTarget) and process.needs_checkpoint:
        proved = "" if run is None else run.proved_checkpoint
        if not proved:
            return context.refuse("no_checkpoint", target, "no checkpoint of the run is proved")
    return (
        missing_recovery_point(context, target, run) if context.rung.target == "trainer" else None
    )


START_TOLERANCE_SECONDS = 2.0
"""Start times are counted from the boot, whose time of day is known to about a second."""


def void_approval(context: DecisionContext, budget: Budget) -> Decision | None:
    """A decision not to do by an approval what it was not given for, else None.

    The processes of the proposal are what the operator has approved to end, and no others (harm 8).
    """
    approval = context.state.approvals.get(context.incident.id)
    if approval is None:
        return None
    name = "/".join(budget.key).strip("/")
    if name != approval.target:
        return context.wait("approval_void", budget, f"it was about {approval.target or 'a page'}")
    snapshot = context.state.snapshot
    exporter = snapshot.exporter if snapshot is not None else None
    for key in budget.keys:
        worker = exporter.workers.get(key) if exporter is not None else None
        if worker is not None and is_later(worker.started_at, approval):
            return context.wait("approval_void", budget, f"{key.worker} was started again since")
    return None


def is_later(started_at: float | None, approval: Approval) -> bool:
    """Whether a process that started then (Unix seconds) is none of the proposal's."""
    return started_at is not None and started_at > approval.proposed_at + START_TOLERANCE_SECONDS


def describe_unknown_save(context: DecisionContext, target: Target, exporter: ExporterState) -> str:
    """Why a restart may interrupt a save that cannot be observed, or "".

    The SIGTERM is not delayed: where memory runs out, the kernel would not wait either. Only the
    SIGKILL waits, as it does for a save that is observed (harm 17).
    """
    why = exporter.saves_unknown_of(target.run)
    if not why or not any(map(context.state.setup.is_trainer, target.keys)):
        return ""
    return f"a save could not be excluded: {why}"


def missing_recovery_point(
    context: DecisionContext, target: Target, run: RunState | None
) -> Decision | None:
    """A decision not to restart a run that could not resume, else None.

    Without a usable checkpoint, a restart begins at step 0 (harm 10). A search resumes from the
    trials in its storage and loses those in progress, which may take hours: only what is stuck, at
    a known pace, is not one of these.
    """
    if run is not None and run.checkpoints is None and run.trials is not None:
        if run.stuck and (run.restart_limit or math.inf) < math.inf:
            return None
        return context.wait(
            "observation_failed", target, "it is not known to be stuck: a trial may take long"
        )
    if run is not None and target.run in context.state.setup.without_checkpoints:
        return context.refuse("no_checkpoint", target, WITH_CHECKPOINTS)
    if run is None or run.checkpoints is None:
        return context.wait("observation_failed", target, "no checkpoints of the run are known")
    if not is_fresh(run.checkpoints_seen_at, context.now):
        return context.wait(
            "observation_failed", target, "its checkpoints have not been observed recently"
        )
    if run.checkpoints == 0:
        return context.refuse("no_checkpoint", target)
    if run.recovery_matches is False:
        return context.refuse("recovery_mismatch", target)
    return None


SETTLE_SECONDS = 30.0
"""How long after its start a worker's processes may not be visible yet."""


def is_acting(action: PastAction, now: float) -> bool:
    """Whether an action without an outcome still changes processes; else it is only verified.

    The verification of a trainer lasts until its first step, which may take many minutes.
    """
    return action.result_at is None or now - action.result_at < SETTLE_SECONDS


BOOT_SECONDS = 900.0
"""For this long after boot it is expected that no worker runs."""

FIRST_RECOVERY_SECONDS = 600.0
"""How long the other targets wait for the first restarted target to become healthy."""

MIN_DOWN_TARGETS = 2
"""A single worker is no mass failure, even where it is half of all targets."""

MIN_FAILED_TARGETS = 4
"""The same with targets that are known to have failed: so many at once point to the host."""

FAILING_COLLECTORS_SHARE = 0.5
"""With this share of its collectors failing, the exporter cannot be relied on (harm 9)."""

_ABSENCE_CONDITIONS = frozenset(
    {Condition.MISSING, Condition.INFERENCE_DOWN, Condition.NO_PROGRESS}
)
"""Conditions that a broken observation would also show; the others need a living worker."""


def mass_failure(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision to wait while too many targets are down at once, else None (harms 7 and 9).

    That `trainwarden run` saw its command fail, with an exit status, is no error of the watch.
    After a while, or soon after boot, targets are restarted one after the other: the next one only
    once the one before is healthy or had its time to become so (harm 24). What another account
    announces counts for its own runs alone: it can have as many dead ones as it likes. Those of
    this program's own account count for all.
    """
    if exporter.collectors_failing >= FAILING_COLLECTORS_SHARE:
        failing = f"{exporter.collectors_failing:.0%} of the exporter's collectors fail"
        return context.wait("mass_failure", target, failing)
    if context.condition not in _ABSENCE_CONDITIONS:
        return None
    config, now = context.state.config, context.now
    accounts = (None, target.account)
    actions = [one for one in context.state.actions if one.account in accounts]
    open_actions = {a.key: a for a in actions if a.ended_at is None}
    # A run that failed in its terminal stays ended, which says nothing about the others.
    targets = [one for one in config.targets if one.can_be_restarted and one.account in accounts]
    coming_back = {
        one.key
        for one in targets
        if (action := open_actions.get(one.key)) is not None
        and (is_acting(action, now) or _is_target_down(one, exporter))
    }
    gone = [one for one in targets if one.key in coming_back or _is_target_down(one, exporter)]
    doubtful = [one for one in gone if not _is_known(one, coming_back)]
    half = len(targets) / 2
    if len(doubtful) < max(MIN_DOWN_TARGETS, half) and len(gone) < max(MIN_FAILED_TARGETS, half):
        return None
    if coming_back:
        others = ", ".join(f"{key.run}/{key.worker}" for key in sorted(coming_back))
        return context.wait(
            "busy", target, f"targets are restarted one after the other: now {others}"
        )
    if open_actions.keys() - coming_back:  # one has come back: the watch can be relied on
        return None
    if exporter.booted_at is not None and now - exporter.booted_at < BOOT_SECONDS:
        return None
    summary = f"{len(gone)} of {len(targets)} targets are down at once"
    waiting = context.wait("mass_failure", target, summary)
    ended = [(a.ended_at or 0.0, a) for a in actions]
    since = [pair for pair in ended if pair[0] > context.incident.starts_at]
    if not since:
        waited = context.incident.repeated_for(waiting, now)
        return waiting if waited < config.mass_failure_hold else None
    at, last = max(since, key=lambda pair: pair[0])
    if last.healed or last.key == target.key or now - at > FIRST_RECOVERY_SECONDS:
        return None
    first = f"{summary}; {last.key.worker} was restarted first and is not healthy"
    return context.wait("mass_failure", target, first)


def _is_known(target: Target, coming_back: Collection[WorkerKey]) -> bool:
    """Whether its `trainwarden run` says that a target failed, or has just started it again."""
    return isinstance(target, AnnouncedTarget) and (
        bool(target.announced.failure) or target.key in coming_back
    )


def _is_target_down(target: Target, exporter: ExporterState) -> bool:
    for key in target.keys:
        worker = exporter.workers.get(key)
        if worker is not None and worker.missing:
            return True
        if any(map(is_down, exporter.servers_of(key))):
            return True
    return False


LARGER_WORKER_WAIT_SECONDS = 20.0
"""How long a worker waits for a larger one, whose alert may come later or never."""


def larger_worker_first(
    context: DecisionContext, target: Target, exporter: ExporterState
) -> Decision | None:
    """A decision to wait for a larger worker of the run that exceeds its limit too, else None.

    Restarting the largest one may relieve the host, and then the others are spared (harm 7).
    """
    if context.condition is not Condition.OVER_MEMORY_LIMIT or context.in_follow_up:
        return None
    waiting = context.wait("larger_worker_first", target)
    if context.incident.repeated_for(waiting, context.now) >= LARGER_WORKER_WAIT_SECONDS:
        return None
    own = memory_bytes(target, exporter)
    for other in context.state.config.targets:
        if other.run != target.run or memory_bytes(other, exporter) <= own:
            continue
        over = any(still_holds(context.condition, key, exporter, context.now) for key in other.keys)
        remediation = context.incident.remediation
        if over and all(context.state.awaits_restart(remediation, key) for key in other.keys):
            return context.wait("larger_worker_first", target, other.worker)
    return None


def memory_bytes(target: Target, exporter: ExporterState) -> float:
    """Returns the memory that the living processes of a target hold."""
    seen = (exporter.workers[key] for key in target.keys if key in exporter.workers)
    return sum(worker.memory_bytes for worker in seen if worker.processes > 0)
