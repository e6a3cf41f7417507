"""Where an incident stands on the ladder of its playbook, by what has been done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden_remediator.decision import PastAction
from trainwarden_remediator.playbooks import Rung


@dataclass(frozen=True, slots=True)
class Place:
    """What comes next, as indices of rungs.

    `next` is to be tried while the trouble lasts; None when everything has been tried. `watched`:
    the trouble has healed, and since `since` (Unix seconds) it is looked whether the run goes on;
    if it does not, `further` is to be tried.
    """

    next: int | None
    watched: bool = False
    further: int | None = None
    since: float = 0.0


def place(rungs: Sequence[Rung], done: Sequence[PastAction]) -> Place:
    """Where an incident stands, given the actions about it that have ended, the oldest first.

    One that healed begins the ladder anew: if the trouble comes back, it is a new one.
    """
    if not done:
        return Place(0)
    last = done[-1]
    since = last.ended_at or last.intent_at
    if last.healed:
        further = _after(rungs, last.rung, "no_progress")
        return Place(0) if further is None else Place(0, watched=True, further=further, since=since)
    following = _after(rungs, last.rung, "not_healed")
    if last.rung >= len(rungs):
        return Place(following)
    if _tried(done) < rungs[last.rung].tries:
        following = last.rung
    if rungs[last.rung].when == "no_progress":
        return Place(following, watched=True, further=following, since=since)
    return Place(following)


def _tried(done: Sequence[PastAction]) -> int:
    """How often in a row the last rung has been tried in vain."""
    count = 0
    for action in reversed(done):
        if action.healed or action.rung != done[-1].rung:
            break
        count += 1
    return count


def _after(rungs: Sequence[Rung], index: int, when: str) -> int | None:
    """The first rung after `index` that is there for that."""
    return next(
        (later for later in range(index + 1, len(rungs)) if rungs[later].when == when), None
    )
