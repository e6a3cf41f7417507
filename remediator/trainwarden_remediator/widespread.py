"""Judges whether so much looks dead at once that a restart of all of it would be a guess. Pure.

Half of the workers are seldom dead for reasons of their own. Either they share a cause, or whoever
looks does not see; after a restart of the box they share a good one.
"""

from __future__ import annotations

from trainwarden_remediator.case import Case
from trainwarden_remediator.decision import Decision
from trainwarden_remediator.grounds import is_down
from trainwarden_remediator.playbooks import Trouble
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.targets import Target

BOOT_SECONDS = 900.0
"""So long after the box was booted it is no wonder that nothing runs."""

FIRST_SECONDS = 600.0
"""How long the others wait for the first that was brought back and is not well."""

FEWEST = 2
"""One worker is not many, also where it is half of them."""

BLIND_SHARE = 0.5
"""An exporter of which so many collectors fail sees nothing that may be relied on."""

_OF_THE_DEAD = frozenset({Trouble.MISSING, Trouble.INFERENCE_DOWN, Trouble.NO_PROGRESS})
"""Troubles that a broken look would show; of the others a living worker gives evidence."""


def widespread(case: Case, target: Target, sight: Sight) -> Decision | None:
    """Why `target` must not be brought back yet, if that is because too much is dead at once.

    The others are waited with for a while; then, or once the box was booted, one is brought back
    after the other, and the next only when the one before is well, or had its time to be.
    """
    if sight.collectors_failing >= BLIND_SHARE:
        failing = f"{sight.collectors_failing:.0%} of the exporter's collectors fail"
        return case.wait("widespread", target, failing)
    if case.trouble not in _OF_THE_DEAD:
        return None
    config, now = case.state.config, case.now
    coming_back = {action.key for action in case.state.actions if action.ended_at is None}
    gone = [one for one in config.targets if one.key in coming_back or _is_gone(one, sight)]
    if len(gone) < max(FEWEST, len(config.targets) / 2):
        return None
    if coming_back:
        return case.wait("busy", target, "one is brought back after the other")
    if sight.booted_at is not None and now - sight.booted_at < BOOT_SECONDS:
        return None
    said = f"{len(gone)} of {len(config.targets)} targets are down at once"
    waiting = case.wait("widespread", target, said)
    ended = [(a.ended_at or 0.0, a) for a in case.state.actions]
    since = [pair for pair in ended if pair[0] > case.incident.starts_at]
    if not since:
        incident = case.incident
        waited = now - incident.said_at if incident.said == waiting.text else 0.0
        return waiting if waited < config.widespread_patience else None
    at, last = max(since, key=lambda pair: pair[0])
    if last.healed or last.key == target.key or now - at > FIRST_SECONDS:
        return None
    first = f"{said}; {last.key.worker} was brought back first, and is not well"
    return case.wait("widespread", target, first)


def _is_gone(target: Target, sight: Sight) -> bool:
    for key in target.keys:
        worker = sight.workers.get(key)
        if worker is not None and worker.processes < worker.expected and not worker.finished:
            return True
        if any(map(is_down, sight.servers_of(key))):
            return True
    return False
