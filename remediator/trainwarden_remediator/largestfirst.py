"""Whose turn it is when several workers of a run hold too much memory: the largest's. Pure."""

from __future__ import annotations

from trainwarden_remediator.case import Case
from trainwarden_remediator.decision import Decision, Incident
from trainwarden_remediator.grounds import persists
from trainwarden_remediator.playbooks import Trouble
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.targets import Target

PATIENCE_SECONDS = 20.0
"""How long a worker waits for a larger one: its alert may come a little later, or never."""

_ABOUT_TO = frozenset({"", "act restart", "wait busy", "wait larger_first"})
"""What the last decision about an alert says of a worker whose turn will come."""


def larger_first(case: Case, target: Target, sight: Sight) -> Decision | None:
    """That a larger one of the run is above its limit too, and will be restarted before this."""
    if case.trouble is not Trouble.OVER_MEMORY_LIMIT or case.watched:
        return None
    waiting = case.wait("larger_first", target)
    since = case.incident.said_at if case.incident.said == waiting.text else case.now
    if case.now - since >= PATIENCE_SECONDS:
        return None
    own = _size(target, sight)
    for other in case.state.config.targets:
        if other.run != target.run or other.key == target.key or _size(other, sight) <= own:
            continue
        over = any(persists(case.trouble, key, sight, case.now) for key in other.keys)
        if over and _has_its_turn(other, case):
            return case.wait("larger_first", target, other.worker)
    return None


def _has_its_turn(other: Target, case: Case) -> bool:
    heard = [one for one in case.state.incidents if _is_about(one, other, case)]
    return all(not one.resolved and one.said in _ABOUT_TO for one in heard)


def _is_about(incident: Incident, other: Target, case: Case) -> bool:
    return (
        incident.run == other.run
        and incident.worker in {key.worker for key in other.keys}
        and incident.remediation == case.incident.remediation
    )


def _size(target: Target, sight: Sight) -> float:
    seen = (sight.workers.get(key) for key in target.keys)
    return sum(worker.resident_bytes for worker in seen if worker is not None)
