"""Every refusal has its reason, is counted, and is reported when it lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import FINGERPRINT, GIB, NOW, ROLLOUT, make_alert, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.exceptions import ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import NO_ACTION_NEEDED, Decision, Reason, Verdict
from trainwarden_remediator.policy.decide import RELIST_GRACE_SECONDS

HALF_AN_HOUR = 1800


def blind(scene: Scene) -> None:
    scene.observer.blind = ObservationError("nobody answers")


def held(scene: Scene) -> None:
    (scene.folder / "hold").touch()


def doubled(scene: Scene) -> None:
    scene.observer.workers[ROLLOUT] = make_worker(processes=2)


def nothing(scene: Scene) -> None:
    del scene


GUARDS: dict[str, tuple[Callable[[Scene], None], dict[str, Any], dict[str, str]]] = {
    "observation_failed": (blind, {}, {}),
    "held": (held, {}, {}),
    "unknown_target": (nothing, {}, {"worker": "rollout-9"}),
    "unknown_playbook": (nothing, {}, {"remediation": "pray"}),
}


@pytest.mark.parametrize("reason", GUARDS)
async def test_a_guard_that_blocks_everything_is_reported_with_its_reason(
    stage: Any, reason: str
) -> None:
    spoil, settings, labels = GUARDS[reason]
    async with stage(before=spoil, **settings) as scene:
        scene.hear(starts_at=NOW - 20, **labels)
        await scene.pass_time(HALF_AN_HOUR, **labels)
        assert scene.journal.blocked_since() == {reason: NOW}
        counts = scene.journal.counters()["decisions"]
        assert {labels[1] for labels in counts} == {reason}
        assert all(action.restarts == [] for action in scene.actions.values())


async def test_other_processes_than_expected_are_refused_and_the_operator_is_notified(
    stage: Any,
) -> None:
    async with stage(before=doubled) as scene:
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(8)
        assert scene.journaled() == ["alert", "ambiguous_target"]
        await scene.clock.advance(8)
        assert scene.journaled() == ["alert", "ambiguous_target", "processes_differ"]
        assert scene.journal.given_up(NOW) == (ROLLOUT,)
        scene.observer.workers[ROLLOUT] = make_worker()
        await scene.clock.advance(4)
        assert scene.action.restarts != []
        assert scene.journal.given_up(NOW) == ()


async def test_other_processes_than_the_exporter_counts_are_refused(stage: Any) -> None:
    async with stage() as scene:
        scene.action.differs = "the exporter counts 1, the remediator finds 2"
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(16)
        assert scene.journaled() == ["alert", "ambiguous_target", "processes_differ"]
        assert scene.action.restarts == []
        scene.action.differs = ""
        await scene.clock.advance(4)
        assert scene.action.restarts != []


async def test_a_repeated_action_begins_again(stage: Any) -> None:
    async with stage(cooldown=600, attempts=3) as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear(starts_at=NOW - 20)
        await scene.pass_time(300)
        (waits,) = scene.journal.blocked_since().items()
        assert waits[0] == "cooldown"
        assert waits[1] > NOW + 60


@pytest.mark.parametrize("reason", sorted(NO_ACTION_NEEDED))
def test_where_no_action_is_needed_no_alert_is_blocked(journal: Journal, reason: Reason) -> None:
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.WAIT, reason))])
    assert journal.blocked_since() == {}


def test_what_is_resolved_or_closed_is_not_blocked(journal: Journal) -> None:
    journal.record_alerts([make_alert(), make_alert(fingerprint="1" * 16)])
    for incident in journal.open_incidents():
        journal.record_decisions([(incident, Decision(Verdict.WAIT, "cooldown"))])
    assert journal.blocked_since() == {"cooldown": NOW}
    journal.record_alerts([make_alert(firing=False)])
    (other,) = (one for one in journal.open_incidents() if one.fingerprint != FINGERPRINT)
    journal.record_decisions([(other, Decision(Verdict.REFUSE, "attempts_exhausted"))])
    assert journal.blocked_since() == {}


def test_each_reason_tells_of_the_oldest(journal: Journal, clock: FakeClock) -> None:
    for number in range(3):
        journal.record_alerts([make_alert(fingerprint=f"{number:016x}")])
        clock.pass_by(100)
    reasons: tuple[Reason, ...] = ("cooldown", "disk_unusable", "cooldown")
    for incident, reason in zip(journal.open_incidents(), reasons, strict=True):
        journal.record_decisions([(incident, Decision(Verdict.WAIT, reason))])
    assert journal.blocked_since() == {"cooldown": NOW, "disk_unusable": NOW + 100}


def test_an_alert_that_fires_again_is_blocked_since_then(
    journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert()])
    journal.record_alerts([make_alert(firing=False)])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.WAIT, "stall_lasts"))])
    clock.pass_by(HALF_AN_HOUR)
    journal.record_alerts([make_alert(starts_at=clock.now())])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.WAIT, "saving"))])
    assert journal.blocked_since() == {"saving": NOW + HALF_AN_HOUR}


def test_reasons_are_few_enough_for_a_label() -> None:
    assert len(get_args(Reason)) < 60
    assert set(get_args(Reason)) >= NO_ACTION_NEEDED


# holds outlive what they hold back


async def test_a_hold_outlives_an_alertmanager_that_was_away(stage: Any) -> None:
    async with stage() as scene:
        hold = {"fingerprint": "1" * 16, "remediation": "hold_restarts", "starts_at": NOW}
        scene.hear(**hold)
        await scene.clock.advance(10)
        scene.observer.deaf = ObservationError("nobody answers")
        await scene.clock.advance(3600)
        # it is back, knows of the leak, and has not received the alert of the loop again yet
        scene.observer.deaf = None
        scene.observer.known = {FINGERPRINT: AlertState.ACTIVE}
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
        scene.observer.known = {FINGERPRINT: AlertState.ACTIVE}
        await scene.clock.advance(600)
        scene.hear()
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        for _ in range(5):
            scene.hear(starts_at=NOW)
            await scene.clock.advance(60)
        assert scene.action.restarts != []


LOOP: dict[str, Any] = {"fingerprint": "1" * 16, "remediation": "hold_restarts", "starts_at": NOW}


def loop_before_the_start(journal: Journal, clock: FakeClock) -> None:
    """Its end comes while the remediator is down, with all that remembered the alert."""
    journal.record_alerts([make_alert(**LOOP)], heartbeat=True)
    clock.pass_by(30)


async def watched(scene: Scene, seconds: float, *, listed: bool = False) -> None:
    """As a new Alertmanager has it, with a Prometheus that evaluates the rules."""
    scene.observer.known = {FINGERPRINT: AlertState.ACTIVE}
    if listed:
        scene.observer.known["1" * 16] = AlertState.ACTIVE
    for _ in range(int(seconds / 60)):
        scene.journal.record_alerts([], heartbeat=True)
        scene.hear(starts_at=NOW)
        await scene.clock.advance(60)


async def test_a_hold_whose_end_was_missed_while_down_is_over_after_the_grace(
    stage: Any, journal: Journal, clock: FakeClock
) -> None:
    loop_before_the_start(journal, clock)
    async with stage() as scene:
        await clock.advance(20)
        await watched(scene, RELIST_GRACE_SECONDS - 60)
        assert scene.action.restarts == []
        await watched(scene, 120)
        assert scene.action.restarts != []


@pytest.mark.parametrize("case", ["listed", "without a watchdog", "again since"])
async def test_a_hold_from_before_the_start_lasts_while_nothing_shows_its_end(
    stage: Any, journal: Journal, clock: FakeClock, case: str
) -> None:
    loop_before_the_start(journal, clock)
    async with stage() as scene:
        scene.observer.known = {FINGERPRINT: AlertState.ACTIVE}
        await clock.advance(20)
        if case == "without a watchdog":
            await scene.pass_time(420)
        else:
            if case == "again since":
                scene.hear(**LOOP)
            await watched(scene, 420, listed=case == "listed")
        assert scene.action.restarts == []


async def test_the_hours_in_which_no_watchdog_arrives_do_not_count(
    stage: Any, journal: Journal, clock: FakeClock
) -> None:
    loop_before_the_start(journal, clock)
    async with stage(alert_stale_after=3600) as scene:
        await watched(scene, 120)
        await scene.pass_time(600)
        await watched(scene, 120)
        assert scene.action.restarts == []
        await watched(scene, 120)
        assert scene.action.restarts != []
