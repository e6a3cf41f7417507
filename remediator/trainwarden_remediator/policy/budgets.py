"""How many attempts a target has left, and when the next one may be. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_remediator.config.targets import Budget, cooldown_after
from trainwarden_remediator.model import Decision, PastAction
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.context import DecisionContext
from trainwarden_remediator.policy.net_progress import since_progress


def budget_exhausted(
    context: DecisionContext, budget: Budget, history: Sequence[PastAction]
) -> Decision | None:
    """A decision to give up where all attempts are used, else None.

    More attempts would repeat what has not helped (harms 11 and 16).
    """
    if count_attempts(context, history, budget) >= budget.attempts:
        return context.refuse("attempts_exhausted", budget)
    return context.refuse("ladder_exhausted", budget) if context.ladder_exhausted else None


def count_attempts(
    context: DecisionContext, history: Sequence[PastAction], target: Budget, *, seen: bool = True
) -> int:
    """Counts the attempts on `target` in its window.

    Restarts of a trainer after which its steps have advanced do not count: they have helped, and a
    run that fails once in a while is restarted as long as it advances. `seen`: what the snapshot
    shows of its steps counts, and not only what the next restart has recorded of them.
    """
    if any(map(context.state.setup.is_trainer, target.keys)):
        exporter = _exporter(context) if seen else None
        run = exporter.runs.get(target.key.run) if exporter is not None else None
        started_at = context.state.operator_start(target.key)
        own = since_progress([one for one in history if one.key == target.key], run, started_at)
        history = [one for one in history if one.key != target.key or one in own]
    return sum(context.now - action.intent_at < target.attempts_window for action in history)


def too_soon(
    context: DecisionContext, budget: Budget, history: Sequence[PastAction], *, seen: bool = True
) -> Decision | None:
    """A decision to wait while the cooldown of the last attempt lasts, else None.

    Each action in the window doubles the cooldown; `seen`: see count_attempts.
    """
    count = count_attempts(context, history, budget, seen=seen)
    if not history or count >= budget.attempts:
        return None
    # From the act, not from the end of its verification, which may take many minutes.
    until = max(one.acted_at for one in history) + cooldown_after(count, budget.cooldown)
    if until <= context.now:
        return None
    today = format_time(context.now)[: len("2025-11-21 ")]
    then = f"until {format_time(until).removeprefix(today)}"
    exporter = _exporter(context)
    workers = {} if exporter is None else exporter.workers
    trainers = (key for key in budget.keys if context.state.setup.is_trainer(key))
    # A trainer that runs may advance until then, and renew its attempts.
    ended = all(key in workers and workers[key].processes == 0 for key in trainers)
    number = count_attempts(context, history, budget)
    if ended or not number:
        renewed = any(context.now - one.intent_at < budget.attempts_window for one in history)
        why = ", as new steps have renewed the attempts" if renewed and not number else ""
        then += f", then attempt {number + 1} of {budget.attempts}{why}"
    return context.wait("cooldown", budget, then)


def _exporter(context: DecisionContext) -> ExporterState | None:
    snapshot = context.state.snapshot
    return None if snapshot is None else snapshot.exporter
