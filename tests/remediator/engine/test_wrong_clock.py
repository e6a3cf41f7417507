"""The clock of the host is wrong for a time."""

from __future__ import annotations

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import LATER, ROLLOUT, make_alert, make_worker
from tests.remediator.stage import Stage

from trainwarden_remediator.engine.maintenance import PRUNE_SECONDS
from trainwarden_remediator.holds.hold_file import Hold, add_hold
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import Decision, Verdict
from trainwarden_remediator.runtime.clock import ClockWatch

DAY = 86400.0
YEARS = 10 * 365 * DAY


async def test_actions_recorded_ten_years_ahead_count_from_now(
    stage: Stage, journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert(starts_at=clock.now() - 20)])
    clock.set_forward(YEARS)
    action = journal.record_intent(1, ROLLOUT, "restart", ())
    journal.record_step(action, "start")
    journal.record_result(action, "done")
    journal.record_outcome(action, "healed")
    clock.set_forward(-YEARS)
    async with stage() as scene:
        await scene.clock.advance(10)
        (past,) = journal.past_actions(0)
        assert past.intent_at <= clock.now()
        assert past.ended_at is not None
        assert past.ended_at <= clock.now()


async def test_a_jump_is_recorded_and_a_correction_is_not(stage: Stage) -> None:
    async with stage() as scene:
        await scene.clock.advance(10)
        scene.clock.set_forward(30)
        await scene.clock.advance(10)
        assert "clock_set" not in scene.journaled()
        scene.clock.set_forward(-DAY)
        await scene.clock.advance(10)
        (event,) = [one for one in scene.journal.newest_events(9) if one.kind == "clock_set"]
        assert event.facts == {"seconds": -DAY}


@pytest.mark.parametrize("starts", [1, 3])
async def test_a_journal_is_not_pruned_because_of_a_jump(
    stage: Stage, journal: Journal, clock: FakeClock, starts: int
) -> None:
    journal.record_alerts([make_alert(starts_at=clock.now() - 20)])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, "resolved"))])
    journal.record_alerts([make_alert(starts_at=clock.now(), fingerprint="1" * 16)])
    with journal.file.transaction() as db:  # no notification is pending
        db.execute("INSERT INTO notice_cursor SELECT max(id) FROM event")
    clock.set_forward(YEARS)
    for _ in range(starts):
        async with stage() as scene:
            await scene.clock.advance(1)
            scene.clock.pass_by(PRUNE_SECONDS)
            await scene.clock.advance(1)
        journal.record_alerts([make_alert(starts_at=clock.now(), fingerprint="2" * 16)])
    clock.set_forward(-YEARS)
    assert len(journal.file.read("SELECT id FROM incident WHERE id = 1")) == 1


def test_the_time_of_day_is_bounded_by_what_has_passed(journal: Journal, clock: FakeClock) -> None:
    journal.record_alerts([make_alert(starts_at=clock.now())])
    first = clock.now()
    clock.pass_by(100)
    assert journal.bounded_time(100, "first") == clock.now()
    clock.set_forward(YEARS)
    assert journal.bounded_time(200, "first") == first + DAY + 100
    assert journal.bounded_time(200, "first") == first + DAY + 100
    assert journal.bounded_time(10, "second") == first + 2 * DAY + 100
    clock.set_forward(-YEARS)
    assert journal.bounded_time(20, "second") == clock.now()


def test_a_jump_is_found_once(clock: FakeClock) -> None:
    watch = ClockWatch(clock)
    clock.pass_by(100)
    assert watch.jump() == 0
    clock.set_forward(YEARS)
    assert watch.jump() == YEARS
    assert watch.jump() == 0


@pytest.mark.parametrize("jump", [DAY, -DAY, -3600.0])
async def test_budgets_count_what_has_passed(stage: Stage, jump: float) -> None:
    async with stage(cooldown=600, attempts=9) as scene:
        scene.hear()
        await scene.clock.advance(60)
        assert len(scene.action.restarts) == 1
        scene.clock.set_forward(jump)
        started = scene.clock.now() - 3600
        scene.observer.workers[ROLLOUT] = make_worker(started_at=started)
        alert = make_alert(starts_at=scene.clock.now() - 20, fingerprint=LATER)
        scene.journal.record_alerts([alert])
        await scene.clock.advance(60)
        assert len(scene.action.restarts) == 1
        scene.journal.record_alerts([alert])
        scene.clock.pass_by(1200)
        scene.journal.record_alerts([alert])
        await scene.clock.advance(60)
        assert len(scene.action.restarts) == 2


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_breaker_counts_what_has_passed(stage: Stage, jump: float) -> None:
    breaker = {"actions": 1, "window": "1h"}
    async with stage(cooldown=0, attempts=9, breaker=breaker) as scene:
        scene.hear()
        await scene.clock.advance(60)
        scene.clock.set_forward(jump)
        scene.observer.workers[ROLLOUT] = make_worker(started_at=scene.clock.now() - 3600)
        alert = make_alert(starts_at=scene.clock.now() - 20, fingerprint=LATER)
        scene.journal.record_alerts([alert])
        await scene.clock.advance(60)
        assert len(scene.action.restarts) == 1
        assert "breaker_open" in scene.journaled()


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_an_action_during_which_the_clock_is_set_is_verified(
    stage: Stage, jump: float
) -> None:
    async with stage() as scene:
        scene.action.before = lambda: scene.clock.set_forward(jump)
        scene.hear()
        await scene.clock.advance(60)
        assert "healed" in scene.journaled()
        (outcome,) = [one for one in scene.journal.newest_events(99) if one.kind == "outcome"]
        assert outcome.facts["seconds"] < 60


@pytest.mark.parametrize("jump", [DAY, -DAY])
async def test_a_hold_lasts_as_long_as_it_was_set_for(stage: Stage, jump: float) -> None:
    async with stage() as scene:
        hold = Hold.lasting(7200, scene.clock)
        add_hold(scene.setup.config.hold_file, hold, scene.clock.now())
        scene.clock.set_forward(jump)
        scene.observer.workers[ROLLOUT] = make_worker(started_at=scene.clock.now() - 3600)
        alert = make_alert(starts_at=scene.clock.now() - 20)
        scene.journal.record_alerts([alert])
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        scene.clock.pass_by(7140)
        scene.journal.record_alerts([alert])
        await scene.clock.advance(60)
        assert scene.action.restarts == [1]


@pytest.mark.parametrize(
    ("passed", "since_boot", "held"),
    [(3600, 60, True), (7300, 60, False), (-YEARS, 7100, True), (-YEARS, 7300, False)],
)
def test_after_a_reboot_it_lasts_by_the_time_of_day_and_no_longer_than_was_wanted(
    clock: FakeClock, passed: float, since_boot: float, *, held: bool
) -> None:
    hold = Hold.lasting(7200, clock)
    assert hold.in_force(clock.now() + passed, since_boot, "another boot") is held
