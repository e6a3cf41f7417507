"""The clock of the host is wrong for a time."""

from __future__ import annotations

from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import ROLLOUT, make_alert
from tests.remediator.stage import Stage

from trainwarden_remediator.engine.maintenance import PRUNE_SECONDS
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


async def test_a_journal_is_not_pruned_because_of_a_jump(
    stage: Stage, journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert(starts_at=clock.now() - 20)])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.REFUSE, "resolved"))])
    journal.record_alerts([make_alert(starts_at=clock.now(), fingerprint="1" * 16)])
    with journal.file.transaction() as db:  # no notification is pending
        db.execute("INSERT INTO notice_cursor SELECT max(id) FROM event")
    clock.set_forward(YEARS)
    async with stage() as scene:
        await scene.clock.advance(3 * PRUNE_SECONDS)
    clock.set_forward(-YEARS)
    assert len(journal.file.read("SELECT id FROM incident WHERE id = 1")) == 1


def test_the_time_of_day_is_bounded_by_the_time_since_the_start(clock: FakeClock) -> None:
    watch = ClockWatch(clock, clock.now())
    clock.pass_by(100)
    assert watch.bounded_now() == clock.now()
    assert watch.jump() == 0
    before = clock.now()
    clock.set_forward(YEARS)
    assert watch.bounded_now() == before + DAY
    assert watch.jump() == YEARS
    assert watch.jump() == 0
