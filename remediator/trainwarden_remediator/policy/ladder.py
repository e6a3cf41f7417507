"""Finds the position of an incident on the ladder of its playbook from the actions so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden_remediator.config.playbooks import Rung
from trainwarden_remediator.model import PastAction


@dataclass(frozen=True, slots=True)
class LadderPosition:
    """What comes next, as indices of rungs.

    `next_rung` is tried while the condition holds; None once all were tried. `in_follow_up`: the
    condition has healed, and since `follow_up_since` (Unix seconds) the run is watched for
    progress; without progress, `follow_up_rung` is tried.
    """

    next_rung: int | None
    in_follow_up: bool = False
    follow_up_rung: int | None = None
    follow_up_since: float = 0.0


def find_position(rungs: Sequence[Rung], done: Sequence[PastAction]) -> LadderPosition:
    """Returns the position after the ended actions `done`, the oldest first.

    An action that healed resets the ladder: if the condition returns, the first rung is next.
    """
    if not done:
        return LadderPosition(0)
    last = done[-1]
    follow_up_since = last.ended_at or last.intent_at
    if last.healed:
        follow_up_rung = _after(rungs, last.rung, "no_progress")
        if follow_up_rung is None:
            return LadderPosition(0)
        return LadderPosition(
            0, in_follow_up=True, follow_up_rung=follow_up_rung, follow_up_since=follow_up_since
        )
    following = _after(rungs, last.rung, "not_healed")
    if last.rung >= len(rungs):
        return LadderPosition(following)
    if _failed_tries(done) < rungs[last.rung].tries:
        following = last.rung
    if rungs[last.rung].when == "no_progress":
        return LadderPosition(
            following, in_follow_up=True, follow_up_rung=following, follow_up_since=follow_up_since
        )
    return LadderPosition(following)


def _failed_tries(done: Sequence[PastAction]) -> int:
    """Counts consecutive attempts of the last rung that did not heal."""
    count = 0
    for action in reversed(done):
        if action.healed or action.rung != done[-1].rung:
            break
        count += 1
    return count


def _after(rungs: Sequence[Rung], index: int, when: str) -> int | None:
    """The first rung after `index` with that `when`."""
    return next(
        (later for later in range(index + 1, len(rungs)) if rungs[later].when == when), None
    )
