"""Every refusal has its reason, is counted, and is told when it lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from tests.remediator.conftest import (
    FINGERPRINT,
    GIB,
    NOW,
    ROLLOUT,
    FakeClock,
    Scene,
    make_alert,
    make_worker,
)

from trainwarden_remediator.alertmanager import AlertState
from trainwarden_remediator.decision import AT_PEACE, Decision, Reason, Verdict
from trainwarden_remediator.exceptions import UnknownError
from trainwarden_remediator.journal import Journal

HALF_AN_HOUR = 1800


def blind(scene: Scene) -> None:
    scene.eyes.blind = UnknownError("nobody answers")


def held(scene: Scene) -> None:
    (scene.folder / "hold").touch()


def doubled(scene: Scene) -> None:
    scene.eyes.workers[ROLLOUT] = make_worker(processes=2)


def nothing(scene: Scene) -> None:
    del scene


GUARDS: dict[str, tuple[Callable[[Scene], None], dict[str, Any], dict[str, str]]] = {
    "world_unknown": (blind, {}, {}),
    "held": (held, {}, {}),
    "ambiguous_target": (doubled, {}, {}),
    "unknown_target": (nothing, {}, {"worker": "rollout-9"}),
    "unknown_playbook": (nothing, {}, {"remediation": "pray"}),
}


@pytest.mark.parametrize("reason", GUARDS)
async def test_a_guard_that_lets_nothing_through_is_told_by_its_reason(
    stage: Any, reason: str
) -> None:
    spoil, settings, labels = GUARDS[reason]
    async with stage(before=spoil, **settings) as scene:
        scene.hear(starts_at=NOW - 20, **labels)
        await scene.pass_time(HALF_AN_HOUR, **labels)
        assert scene.journal.blocked_since() == {reason: NOW}
        counts = scene.journal.tallies()["decisions"]
        assert {labels[1] for labels in counts} == {reason}
        assert all(action.restarts == [] for action in scene.actions.values())


async def test_what_is_done_begins_anew(stage: Any) -> None:
    async with stage(cooldown=600, attempts=3) as scene:
        scene.action.heal = {"resident_bytes": 9 * GIB}
        scene.hear(starts_at=NOW - 20)
        await scene.pass_time(300)
        (waits,) = scene.journal.blocked_since().items()
        assert waits[0] == "cooldown"
        assert waits[1] > NOW + 60


@pytest.mark.parametrize("reason", sorted(AT_PEACE))
def test_where_nothing_need_be_done_nothing_is_blocked(journal: Journal, reason: Reason) -> None:
    journal.hear([make_alert()])
    (incident,) = journal.open_incidents()
    journal.decided(incident, Decision(Verdict.WAIT, reason))
    assert journal.blocked_since() == {}


def test_what_is_resolved_or_closed_is_not_blocked(journal: Journal) -> None:
    journal.hear([make_alert(), make_alert(fingerprint="1" * 16)])
    for incident in journal.open_incidents():
        journal.decided(incident, Decision(Verdict.WAIT, "cooldown"))
    assert journal.blocked_since() == {"cooldown": NOW}
    journal.hear([make_alert(firing=False)])
    (other,) = (one for one in journal.open_incidents() if one.fingerprint != FINGERPRINT)
    journal.decided(other, Decision(Verdict.REFUSE, "attempts_exhausted"))
    assert journal.blocked_since() == {}


def test_each_reason_tells_of_the_oldest(journal: Journal, clock: FakeClock) -> None:
    for number in range(3):
        journal.hear([make_alert(fingerprint=f"{number:016x}")])
        clock.pass_by(100)
    reasons: tuple[Reason, ...] = ("cooldown", "disk_trouble", "cooldown")
    for incident, reason in zip(journal.open_incidents(), reasons, strict=True):
        journal.decided(incident, Decision(Verdict.WAIT, reason))
    assert journal.blocked_since() == {"cooldown": NOW, "disk_trouble": NOW + 100}


def test_reasons_are_few_enough_for_a_label() -> None:
    assert len(get_args(Reason)) < 60
    assert set(get_args(Reason)) >= AT_PEACE


# holds outlive what they hold back


async def test_a_hold_outlives_an_alertmanager_that_was_away(stage: Any) -> None:
    async with stage() as scene:
        hold = {"fingerprint": "1" * 16, "remediation": "hold_restarts", "starts_at": NOW}
        scene.hear(**hold)
        await scene.clock.advance(10)
        scene.eyes.deaf = UnknownError("nobody answers")
        await scene.clock.advance(3600)
        # it is back, knows of the leak, and has not been told of the loop again yet
        scene.eyes.deaf = None
        scene.eyes.known = {FINGERPRINT: AlertState.ACTIVE}
        scene.hear()
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        scene.hear(**hold)
        await scene.clock.advance(300)
        assert scene.action.restarts == []


async def test_a_step_of_the_clock_drops_no_hold(stage: Any) -> None:
    async with stage() as scene:
        scene.hear(fingerprint="1" * 16, remediation="hold_restarts", starts_at=NOW)
        await scene.clock.advance(10)
        scene.clock.set_forward(86_400)
        scene.hear()
        await scene.clock.advance(600)
        assert scene.action.restarts == []


async def test_a_hold_that_alertmanager_has_forgotten_is_over_in_the_end(stage: Any) -> None:
    async with stage() as scene:
        scene.hear(fingerprint="1" * 16, remediation="hold_restarts", starts_at=NOW)
        await scene.clock.advance(10)
        scene.eyes.known = {FINGERPRINT: AlertState.ACTIVE}
        await scene.clock.advance(600)
        scene.hear()
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        for _ in range(5):
            scene.hear(starts_at=NOW)
            await scene.clock.advance(60)
        assert scene.action.restarts != []
