"""The breaker: counted over all targets, latched in the journal, closed by an operator only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import (
    FINGERPRINT,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    make_alert,
    make_config,
    make_worker,
)
from tests.remediator.stage import Scene

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.config.limits import BreakerSettings
from trainwarden_remediator.config.playbooks import Condition, Rung
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.targets import AnnouncedTarget
from trainwarden_remediator.journal.database import connect, offline_transaction
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import read_events
from trainwarden_remediator.journal.transitions import reset_breaker
from trainwarden_remediator.model import BreakerState, Decision, Incident, Verdict
from trainwarden_remediator.policy.blockers import check_breaker
from trainwarden_remediator.policy.context import DecisionContext, PolicyState

BUSY = {"breaker": {"actions": 2, "window": 3600}, "cooldown": 0, "attempts": 50}


def leak(scene: Scene, key: WorkerKey, number: int) -> None:
    """A worker leaks, and an alert about it is received."""
    fingerprint = f"{number:016x}"
    scene.observer.known[fingerprint] = AlertState.ACTIVE
    scene.observer.workers[key] = make_worker(started_at=scene.clock.now() - 3600)
    scene.hear(fingerprint=fingerprint, run=key.run, worker=key.worker)


async def open_it(scene: Scene) -> None:
    for number, key in enumerate((ROLLOUT, TRAINER, OTHER)):
        leak(scene, key, number)
        await scene.clock.advance(30)


def restarts(scene: Scene) -> int:
    return sum(len(action.restarts) for action in scene.actions.values())


async def test_one_more_action_than_is_allowed_on_the_host_opens_it(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        assert restarts(scene) == 2
        assert scene.actions[OTHER].restarts == []
        assert scene.journal.breaker().opened_at is not None
        assert scene.journaled().count("breaker_opened") == 1


async def test_open_it_stays_open_when_the_window_has_passed(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        for _ in range(100):
            await scene.clock.advance(60)
            scene.hear(fingerprint=f"{2:016x}", run="second", worker="trainer", starts_at=NOW)
        assert restarts(scene) == 2
        assert scene.journaled().count("breaker_opened") == 1


async def test_an_operator_closes_it_and_all_is_counted_again(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        await open_it(scene)
        assert scene.close_breaker()
        await scene.clock.advance(10)
        assert scene.actions[OTHER].restarts != []
        # and one more
        leak(scene, ROLLOUT, 10)
        await scene.clock.advance(30)
        assert restarts(scene) == 4
        assert scene.journal.breaker().opened_at is None
        leak(scene, TRAINER, 11)
        await scene.clock.advance(30)
        assert restarts(scene) == 4
        assert scene.journal.breaker().opened_at is not None
        assert scene.journaled().count("breaker_opened") == 2


def test_it_survives_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    journal.record_decisions(
        [(incident, Decision(Verdict.WAIT, "breaker_open", detail="3 actions"))]
    )
    journal.close()
    clock.pass_by(90_000)
    journal = Journal(tmp_path / "journal.db", clock=clock)
    assert journal.breaker().opened_at == NOW
    journal.close()


def test_the_command_closes_it_beside_a_remediator_that_runs(
    tmp_path: Path, clock: FakeClock
) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    journal.record_decisions([(incident, Decision(Verdict.WAIT, "breaker_open"))])
    with offline_transaction(tmp_path / "journal.db") as db:
        assert reset_breaker(db, NOW + 5)
    with offline_transaction(tmp_path / "journal.db") as db:
        assert not reset_breaker(db, NOW + 6)
    assert journal.breaker() == BreakerState(None, NOW + 6)
    # what it stopped is news again
    (incident,) = journal.open_incidents()
    assert incident.last_decision == ""
    reader = connect(tmp_path / "journal.db", mode="ro")
    assert [event.kind for event in read_events(reader)][-2:] == ["breaker_opened", "breaker_reset"]
    reader.close()
    journal.close()


def test_a_clock_set_back_makes_no_room() -> None:
    begun = [NOW + 7200, NOW - 10, NOW - 4000]
    assert BreakerState().count_actions(begun, 3600, NOW) == 2
    assert BreakerState(reset_at=NOW - 5).count_actions(begun, 3600, NOW) == 1


@pytest.mark.parametrize(("targets", "limit"), [(0, 6), (1, 6), (3, 6), (4, 8), (100, 200)])
def test_each_worker_may_be_restarted_twice_an_hour_by_default(targets: int, limit: int) -> None:
    assert BreakerSettings().limit(targets) == limit
    assert BreakerSettings(actions=3).limit(targets) == 3


@pytest.mark.parametrize("content", [{"actions": 0}, {"window": 0}, {"actions": -1}])
def test_a_breaker_that_would_stop_everything_or_count_no_action_is_refused(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        make_config(tmp_path, breaker=content)


async def test_leftovers_are_not_counted(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        for _ in range(5):
            number = scene.journal.record_intent(
                _incident(scene), WorkerKey("", "gpus"), "gpu_cleanup", ()
            )
            scene.journal.record_result(number, "done")
            scene.journal.record_outcome(number, "healed")
        assert scene.journal.count_breaker_actions(3600) == 0
        scene.hear(fingerprint=FINGERPRINT)
        await scene.clock.advance(30)
        assert restarts(scene) == 1
        assert scene.journal.count_breaker_actions(3600) == 1


ACCOUNT = 61234
FOREIGN = WorkerKey("greedy", "w")


async def test_runs_of_another_account_open_no_breaker_but_their_own(stage: Any) -> None:
    async with stage(**BUSY) as scene:
        target = AnnouncedTarget(
            run=FOREIGN.run,
            worker=FOREIGN.worker,
            announced=RunTarget(run="greedy/w", socket=Path("/run/a.sock"), owner=ACCOUNT),
        )
        assert target.account == ACCOUNT
        for _ in range(2):
            number = scene.journal.record_intent(
                _incident(scene), FOREIGN, "restart", (), account=target.account
            )
            scene.journal.record_result(number, "done")
            scene.journal.record_outcome(number, "healed")
        setup = scene.setup
        config = setup.config.model_copy(update={"targets": (*setup.config.targets, target)})
        assert (config.breaker_limit(), scene.journal.count_breaker_actions(3600)) == (2, 0)
        state = PolicyState(
            replace(setup, config=config), (), (), scene.journal.past_actions(NOW - 3600)
        )
        context = DecisionContext(
            incident=as_incident_of(FOREIGN),
            condition=Condition.OVER_MEMORY_LIMIT,
            rung=Rung(action="restart"),
            index=0,
            state=state,
            now=scene.clock.now(),
            condition_started_at=NOW - 60,
        )
        refusal = check_breaker(context, target)
        assert refusal is not None
        assert (refusal.text, "account 61234" in refusal.detail) == (
            "wait account_limit",
            True,
        )
        await open_it(scene)
        assert restarts(scene) == 2
        assert scene.journal.count_breaker_actions(3600) == 2


def test_each_account_has_a_limit_of_its_own(tmp_path: Path) -> None:
    config = make_config(tmp_path, *(f"demo/w{number}" for number in range(5)))
    assert (config.breaker_limit(), config.breaker_limit(ACCOUNT)) == (10, 6)


def as_incident_of(key: WorkerKey) -> Incident:
    return Incident(
        id=9,
        fingerprint=FINGERPRINT,
        starts_at=NOW,
        alert="TrainingWorkerMemoryOverLimit",
        run=key.run,
        worker=key.worker,
        remediation="restart_leaking_worker",
        last_received_at=NOW,
        resolved=False,
    )


def _incident(scene: Scene) -> int:
    scene.journal.record_alerts([make_alert(fingerprint="e" * 16, remediation="")])
    found = next(one for one in scene.journal.open_incidents() if one.fingerprint == "e" * 16)
    return found.id
