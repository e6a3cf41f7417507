"""The breaker: counted over all targets, latched in the journal, opened again by a person only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.remediator.conftest import (
    FINGERPRINT,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    FakeClock,
    Scene,
    make_alert,
    make_config,
    make_worker,
)

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager import AlertState
from trainwarden_remediator.breaker import Breaker, BreakerState
from trainwarden_remediator.decision import Decision, Verdict
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.journalfile import connect
from trainwarden_remediator.latch import reopen_at
from trainwarden_remediator.records import read_events

BUSY = {"breaker": {"actions": 2, "within": 3600}, "cooldown": 0, "attempts": 50}


def leak(scene: Scene, key: WorkerKey, number: int) -> None:
    """A worker leaks, and an alert about it is heard."""
    fingerprint = f"{number:016x}"
    scene.eyes.known[fingerprint] = AlertState.ACTIVE
    scene.eyes.workers[key] = make_worker(started_at=scene.clock.now() - 3600)
    scene.hear(fingerprint=fingerprint, run=key.run, worker=key.worker)


async def open_it(scene: Scene) -> None:
    for number, key in enumerate((ROLLOUT, TRAINER, OTHER)):
        leak(scene, key, number)
        await scene.clock.advance(30)


def restarts(scene: Scene) -> int:
    return sum(len(action.restarts) for action in scene.actions.values())


async def test_one_more_action_than_is_allowed_on_the_box_opens_it(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        assert restarts(scene) == 2
        assert scene.actions[OTHER].restarts == []
        assert scene.journal.latched() is not None
        assert scene.told().count("breaker") == 1


async def test_open_it_stays_open_when_the_window_has_passed(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        for _ in range(100):
            await scene.clock.advance(60)
            scene.hear(fingerprint=f"{2:016x}", run="second", worker="trainer", starts_at=NOW)
        assert restarts(scene) == 2
        assert scene.told().count("breaker") == 1


async def test_a_person_closes_it_and_all_is_counted_anew(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        assert scene.journal.reopen()
        await scene.clock.advance(10)
        assert scene.actions[OTHER].restarts != []
        # and one more
        leak(scene, ROLLOUT, 10)
        await scene.clock.advance(30)
        assert restarts(scene) == 4
        assert scene.journal.latched() is None
        leak(scene, TRAINER, 11)
        await scene.clock.advance(30)
        assert restarts(scene) == 4
        assert scene.journal.latched() is not None
        assert scene.told().count("breaker") == 2


def test_it_survives_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.hear([make_alert()])
    (incident,) = journal.open_incidents()
    journal.decided(incident, Decision(Verdict.WAIT, "breaker_open", detail="3 actions"))
    journal.close()
    clock.pass_by(90_000)
    journal = Journal(tmp_path / "journal.db", clock=clock)
    assert journal.latched() == NOW
    assert journal.reopen()
    assert not journal.reopen()
    assert journal.breaker() == BreakerState(None, NOW + 90_000)
    journal.close()


def test_the_command_closes_it_beside_a_remediator_that_runs(
    tmp_path: Path, clock: FakeClock
) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.hear([make_alert()])
    (incident,) = journal.open_incidents()
    journal.decided(incident, Decision(Verdict.WAIT, "breaker_open"))
    assert reopen_at(tmp_path / "journal.db", NOW + 5)
    assert not reopen_at(tmp_path / "journal.db", NOW + 6)
    assert journal.latched() is None
    # what it stopped is news again
    (incident,) = journal.open_incidents()
    assert incident.said == ""
    reader = connect(tmp_path / "journal.db", mode="ro")
    assert [event.kind for event in read_events(reader)][-2:] == ["breaker", "reopened"]
    reader.close()
    journal.close()


def test_a_clock_set_back_makes_no_room() -> None:
    begun = [NOW + 7200, NOW - 10, NOW - 4000]
    assert BreakerState().counted(begun, 3600, NOW) == 2
    assert BreakerState(reopened_at=NOW - 5).counted(begun, 3600, NOW) == 1


@pytest.mark.parametrize(("targets", "limit"), [(0, 6), (1, 6), (3, 6), (4, 8), (100, 200)])
def test_each_worker_may_be_restarted_twice_an_hour_unless_it_is_said(
    targets: int, limit: int
) -> None:
    assert Breaker().limit(targets) == limit
    assert Breaker(actions=3).limit(targets) == 3


@pytest.mark.parametrize("content", [{"actions": 0}, {"within": 0}, {"actions": -1}])
def test_one_that_would_stop_everything_or_count_nothing_is_refused(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        make_config(tmp_path, breaker=content)


async def test_leftovers_are_not_counted(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        for _ in range(5):
            number = scene.journal.intend(
                _incident(scene), WorkerKey("", "gpus"), "gpu_cleanup", ()
            )
            scene.journal.finished(number, "done")
            scene.journal.verified(number, "healed")
        assert scene.journal.counted_actions(3600) == 0
        scene.hear(fingerprint=FINGERPRINT)
        await scene.clock.advance(30)
        assert restarts(scene) == 1
        assert scene.journal.counted_actions(3600) == 1


def _incident(scene: Scene) -> int:
    scene.journal.hear([make_alert(fingerprint="e" * 16, remediation="")])
    found = next(one for one in scene.journal.open_incidents() if one.fingerprint == "e" * 16)
    return found.id
