"""Judges what, beside the trouble itself, speaks against a restart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainwarden_remediator.breaker import HARMLESS
from trainwarden_remediator.case import Case
from trainwarden_remediator.decision import Decision, PastAction
from trainwarden_remediator.grounds import disk_trouble, fruitless, is_saving, is_seen
from trainwarden_remediator.sight import RunSight, Sight
from trainwarden_remediator.targets import Budget, Target
from trainwarden_remediator.widespread import widespread


def breaker_of(case: Case, target: Budget) -> Decision | None:
    """That more is called for than can be right on one box, if it is."""
    config = case.state.config
    within, limit = config.breaker.within, config.breaker.limit(len(config.targets))
    begun = [a.intent_at for a in case.state.actions if a.kind not in HARMLESS]
    count = case.state.breaker.counted(begun, within, case.now)
    if count < limit:
        return None
    return case.wait("breaker_open", target, f"{count} actions on this box within {within:g} s")


def end_of(case: Case, budget: Budget, history: Sequence[PastAction]) -> Decision | None:
    """That everything has been tried, if it has."""
    if (count := tried(history, budget, case.now)) >= budget.attempts:
        return case.refuse("attempts_exhausted", budget, f"{count} actions already")
    return case.refuse("ladder_exhausted", budget) if case.spent else None


def obstacle(case: Case, target: Target, sight: Sight) -> Decision | None:
    """What, beside the trouble itself, speaks against a restart, if anything does."""
    state, now = case.state, case.now
    if (everywhere := widespread(case, target, sight)) is not None:
        return everywhere
    run = sight.runs.get(target.run)
    own = [action for action in state.actions if action.key == target.key]
    if (vain := fruitless(own, run)) >= target.fruitless_restarts:
        return case.refuse("restarts_fruitless", target, f"{vain} restarts brought no progress")
    path, reserve = state.setup.path(target.run), state.config.disk_reserve
    if trouble := disk_trouble(sight, target.run, path, reserve, now):
        return case.wait("disk_trouble", target, trouble)
    saving = case.wait("saving", target, "a checkpoint is being written")
    if run is not None and any(map(state.setup.trains, target.keys)) and is_saving(run, now):
        waited = now - case.incident.said_at if case.incident.said == saving.text else 0.0
        if waited < target.save_patience:
            return saving
    return _no_way_back(case, target, run) if case.rung.target == "trainer" else None


def save_in_doubt(case: Case, target: Target, sight: Sight) -> str:
    """That a restart may cost a checkpoint which nobody can see being written, or nothing.

    It does not put off the SIGTERM: where memory runs out the kernel would not ask either. Only the
    SIGKILL waits, as for one that is seen being written.
    """
    why = sight.saves_unknown_of(target.run)
    if not why or not any(map(case.state.setup.trains, target.keys)):
        return ""
    return f"a save could not be excluded: {why}"


def _no_way_back(case: Case, target: Target, run: RunSight | None) -> Decision | None:
    """Why a run that is ended could not go on from where it was, if it could not."""
    if run is None or run.checkpoints is None:
        return case.wait("world_unknown", target, "the exporter shows no checkpoints of the run")
    if not is_seen(run.checkpoints_seen_at, case.now):
        return case.wait("world_unknown", target, "its checkpoints have not been seen for long")
    if run.checkpoints == 0:
        return case.refuse("no_checkpoint", target)
    if run.recovery_matches is False:
        return case.refuse("recovery_mismatch", target)
    return None


def tried(history: Iterable[PastAction], target: Budget, now: float) -> int:
    """How many of the attempts that `target` has in its window are used up."""
    return sum(now - action.intent_at < target.attempts_window for action in history)
