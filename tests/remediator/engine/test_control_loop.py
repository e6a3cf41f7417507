from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.fakes import FakeAction
from tests.remediator.samples import (
    FINGERPRINT,
    GIB,
    LATER,
    NOW,
    OTHER,
    ROLLOUT,
    TRAINER,
    is_held,
    make_alert,
    make_setup,
    make_worker,
)
from tests.remediator.stage import Scene, Stage

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_remediator.actions.base import ActionState, health_problem
from trainwarden_remediator.alertmanager.api import AlertState
from trainwarden_remediator.engine import control_loop
from trainwarden_remediator.engine.control_loop import (
    CYCLE_SECONDS,
    STORM_YIELD_SECONDS,
    YIELD_EVERY,
)
from trainwarden_remediator.exceptions import ActionError, JournalError, ObservationError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.model import TargetInstance
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.decide import decide

HEALED = ["alert", "intent", "stop", "start", "done", "healed"]


async def test_acts_verifies_and_tells(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(10)
        assert scene.done() == HEALED
        assert scene.journaled()[1] == "restart"
        assert scene.action.restarts == [1]
        assert scene.journal.counters()["outcomes"] == {("demo", "rollout-0", "healed"): 1}


async def test_acts_at_once_and_not_at_the_next_turn(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear()
        await scene.clock.settle()
        assert scene.action.restarts == [1]


async def test_a_worker_counts_as_healed_only_when_it_stays_well(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(4)
        scene.observer.workers[ROLLOUT] = make_worker(started_at=scene.clock.now())
        await scene.clock.advance(4)
        scene.observer.workers[ROLLOUT] = make_worker(started_at=NOW, memory_bytes=GIB)
        await scene.clock.advance(4)
        assert "healed" not in scene.journaled()
        await scene.clock.advance(2)
        assert "healed" in scene.journaled()


async def test_resolved_alerts_are_let_go(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(10)
        scene.hear(firing=False, starts_at=NOW - 20)
        await scene.clock.settle()
        assert scene.journaled()[-2:] == ["resolved", "resolved"]
        assert scene.journal.open_incidents() == ()


async def test_what_does_not_help_is_tried_again_more_slowly_then_given_up(stage: Stage) -> None:
    async with stage(attempts=2) as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        await scene.pass_time(66)
        assert scene.journaled()[-2:] == ["not_healed", "cooldown"]
        await scene.pass_time(50)
        assert scene.action.restarts == [1]
        await scene.pass_time(8)  # the cooldown counts from the act
        assert scene.action.restarts == [1, 2]
        await scene.pass_time(300)
        assert scene.journaled()[-1] == "attempts_exhausted"
        await scene.pass_time(600)
        assert scene.action.restarts == [1, 2]
        assert scene.journal.given_up(scene.clock.now() - 60) == (ROLLOUT,)


async def test_a_healed_last_attempt_calls_nobody(stage: Stage) -> None:
    async with stage(attempts=1) as scene:
        scene.hear()
        await scene.pass_time(180)
        assert "attempts_exhausted" not in scene.journaled()
        assert scene.journal.given_up(0) == ()


async def test_the_same_alert_many_times_is_one_action(stage: Stage) -> None:
    async with stage() as scene:
        for _ in range(50):
            scene.hear(starts_at=NOW - 20)
        await scene.pass_time(300)
        assert scene.action.restarts == [1]


async def test_two_rules_about_one_worker_are_one_action(stage: Stage) -> None:
    async with stage() as scene:
        scene.observer.workers[ROLLOUT] = make_worker(age_limit_seconds=60)
        scene.hear()
        scene.hear(fingerprint=LATER, remediation="recycle_aged_worker")
        await scene.pass_time(30)
        assert len(scene.action.restarts) == 1


async def test_a_hundred_alerts_at_once_restart_one_worker_of_a_run_at_a_time(stage: Stage) -> None:
    async with stage() as scene:
        alerts = []
        for index in range(100):
            fingerprint = f"{index:016x}"
            scene.observer.known[fingerprint] = AlertState.ACTIVE
            worker = "rollout-0" if index % 2 else "trainer"
            alerts.append(make_alert(fingerprint=fingerprint, worker=worker))
        scene.journal.record_alerts(alerts)
        scene.engine.wake()
        await scene.clock.settle()
        assert len(scene.action.restarts) + len(scene.actions[TRAINER].restarts) == 1
        await scene.clock.advance(30)
        assert len(scene.action.restarts) == len(scene.actions[TRAINER].restarts) == 1


async def test_runs_do_not_wait_for_each_other(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear(worker="trainer")
        scene.hear(run="second", worker="trainer", fingerprint=LATER)
        await scene.clock.settle()
        assert scene.actions[TRAINER].restarts
        assert scene.actions[OTHER].restarts


async def test_a_run_is_acted_upon_once_at_a_time(stage: Stage) -> None:
    async with stage() as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        scene.hear(worker="trainer", fingerprint=LATER)
        await scene.clock.advance(64)
        assert scene.actions[TRAINER].restarts == []
        assert "busy" in scene.journaled()
        await scene.clock.advance(4)
        assert scene.actions[TRAINER].restarts == [2]


async def test_an_action_is_alone_in_its_run_however_long_it_takes(stage: Stage) -> None:
    async with stage(attempts_window=10, cooldown=1) as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        scene.hear(worker="trainer", fingerprint=LATER)
        await scene.clock.advance(60)
        assert scene.action.restarts == [1]
        assert scene.actions[TRAINER].restarts == []


# reasons not to act


async def test_no_action_starts_while_a_hold_file_is_there(stage: Stage) -> None:
    async with stage() as scene:
        (scene.folder / "hold").touch()
        scene.hear()
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "held"]
        (scene.folder / "hold").unlink()
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


async def test_a_hold_that_comes_while_the_world_is_asked_is_heeded(stage: Stage) -> None:
    async with stage() as scene:

        async def look_and_be_held() -> ExporterState:
            (scene.folder / "hold").touch()
            return ExporterState(scene.observer.workers, 1, 1)

        scene.observer.observe = look_and_be_held
        scene.hear()
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        assert scene.journaled() == ["alert", "held"]


async def test_a_hold_after_the_confirming_decision_is_heeded(stage: Stage) -> None:
    async with stage() as scene:

        def find_and_be_held() -> Collection[TargetInstance]:
            (scene.folder / "hold").touch()
            return [scene.action.identity]

        scene.action.find_instances = find_and_be_held
        scene.hear()
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        assert scene.journaled() == ["alert", "restart", "intent", "interrupted", "held"]


async def test_a_hold_while_the_action_waits_for_a_save_is_heeded_and_costs_no_attempt(
    stage: Stage,
) -> None:
    async with stage() as scene:
        scene.action.wait = (scene.folder / "hold").touch
        scene.hear()
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        assert scene.journaled() == ["alert", "restart", "intent", "interrupted", "held"]
        scene.action.wait = lambda: None
        (scene.folder / "hold").unlink()
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [2]


async def test_observing_touches_nothing_until_the_mode_is_changed(stage: Stage) -> None:
    async with stage(mode="observe") as scene:
        scene.hear()
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "observe_mode"]
        assert scene.journal.open_actions() == ()
        scene.engine.reconfigure(scene.configured(mode="act"), scene.observer)
        await scene.clock.settle()
        assert scene.action.restarts == [1]


async def test_an_alert_that_holds_lets_nothing_be_done_while_it_lasts(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear(fingerprint=LATER, remediation="hold_restarts", starts_at=NOW)
        scene.hear()
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        scene.hear(fingerprint=LATER, remediation="hold_restarts", starts_at=NOW, firing=False)
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


async def test_an_unknown_worker_is_reported_and_left_alone(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear(worker="-oProxyCommand=x", run="$(reboot)")
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "unknown_target"]
        assert scene.observer.looks == 0


class Counting:
    """A journal that keeps how many incidents were asked of it each time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.counts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def open_incidents(self, **which: Any) -> Any:
        found = self._journal.open_incidents(**which)
        self.counts.append(len(found))
        return found


async def test_what_is_nobody_s_is_looked_at_once_however_much_of_it_there_is(
    stage: Stage,
) -> None:
    async with stage() as scene:
        counting = Counting(scene.journal)
        scene.spoil(counting)
        for number in range(20):
            playbook = "no-such-playbook" if number % 2 else "restart_leaking_worker"
            scene.hear(worker="stranger", fingerprint=f"{number:016x}", remediation=playbook)
        await scene.clock.settle()
        assert counting.counts[-1] == 20
        await scene.clock.advance(10 * CYCLE_SECONDS)
        assert len(counting.counts) > 10
        assert counting.counts[-10:] == [0] * 10
        assert scene.journal.count_open() == 20
        assert scene.journaled().count("unknown_target") == 10
        assert scene.journaled().count("unknown_playbook") == 10


async def test_while_more_is_accepted_it_leaves_time_for_that(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undecided() -> int:
        return sum(not one.last_decision for one in scene.journal.open_incidents())

    async with stage() as scene:

        def decide_while_more_arrives(*about: Any) -> Any:
            scene.engine.wake()
            return decide(*about)

        monkeypatch.setattr(control_loop, "decide", decide_while_more_arrives)
        alerts = [
            make_alert(worker="stranger", starts_at=NOW - 20, fingerprint=f"{number:016x}")
            for number in range(YIELD_EVERY + 5)
        ]
        scene.journal.record_alerts(alerts)
        scene.engine.wake()
        await scene.clock.settle()
        assert undecided() == 5
        await scene.clock.advance(STORM_YIELD_SECONDS)
        assert undecided() == 0


async def test_what_was_nobody_s_is_somebody_s_when_the_configuration_says_so(
    stage: Stage,
) -> None:
    async with stage(targets=[]) as scene:
        scene.hear()
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "unknown_target"]
        scene.engine.reconfigure(make_setup(scene.folder, "demo/rollout-0"), scene.observer)
        await scene.clock.advance(10)
        assert scene.done()[-5:] == HEALED[1:]


async def test_what_is_nobody_s_is_let_go_once_it_is_over(stage: Stage) -> None:
    async with stage() as scene:
        scene.hear(worker="stranger")
        scene.hear(worker="another", fingerprint=LATER)
        await scene.clock.advance(30)
        scene.journal.record_alerts(
            [make_alert(worker="stranger", starts_at=NOW - 20, firing=False)]
        )
        await scene.clock.advance(30)
        assert [one.worker for one in scene.journal.open_incidents()] == ["another"]
        await scene.clock.advance(scene.setup.config.alert_stale_after)
        assert scene.journal.open_incidents() == ()
        assert scene.journaled()[-2:] == ["resolved", "alert_stale"]


async def test_a_worker_that_somebody_else_restarted_is_left_alone(stage: Stage) -> None:
    async with stage() as scene:
        scene.observer.workers[ROLLOUT] = make_worker(started_at=NOW - 5)
        scene.hear(starts_at=NOW - 20)
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        assert scene.journaled() == ["alert", "already_restarted"]


async def test_without_an_observation_no_action_starts_until_one_succeeds(stage: Stage) -> None:
    async with stage() as scene:
        scene.observer.blind = ObservationError("the exporter is away")
        scene.hear()
        await scene.clock.advance(30)
        assert scene.journaled() == ["alert", "observation_failed"]
        scene.observer.blind, scene.observer.deaf = None, ObservationError("Alertmanager is away")
        await scene.clock.advance(30)
        assert scene.action.restarts == []
        scene.observer.deaf = None
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


async def test_a_silence_during_a_cooldown_is_heeded(stage: Stage) -> None:
    async with stage() as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        await scene.pass_time(100)
        scene.observer.known[FINGERPRINT] = AlertState.SILENCED
        await scene.pass_time(600)
        assert scene.action.restarts == [1]
        assert scene.journaled()[-1] == "silenced"


async def test_an_alert_that_is_not_received_any_more_is_forgotten(stage: Stage) -> None:
    async with stage(alert_stale_after=60) as scene:
        scene.observer.blind = ObservationError("the exporter is away")
        scene.hear()
        await scene.clock.advance(70)
        scene.observer.blind = None
        await scene.clock.advance(70)
        assert scene.journaled() == ["alert", "observation_failed", "alert_stale"]
        assert scene.action.restarts == []


async def test_a_backlog_of_days_is_not_acted_upon(stage: Stage) -> None:
    def hear_long_ago(scene: Scene) -> None:
        scene.hear()
        scene.clock.pass_by(3 * 86_400)

    async with stage(before=hear_long_ago) as scene:
        await scene.clock.advance(60)
        assert scene.journaled() == ["alert", "alert_stale"]


# relieving memory


async def test_memory_is_relieved_by_one_worker_at_a_time_and_slowly(stage: Stage) -> None:
    async with stage() as scene:
        sizes = {ROLLOUT: 2, TRAINER: 7, OTHER: 5}
        for key, size in sizes.items():
            scene.observer.workers[key] = make_worker(memory_bytes=size * GIB)
        scene.observer.available = GIB
        relief = {"run": "", "worker": "", "remediation": "relieve_memory"}
        scene.hear(**relief)
        await scene.clock.settle()
        assert scene.actions[TRAINER].restarts == [1]
        await scene.pass_time(120, **relief)
        assert scene.actions[OTHER].restarts == []
        await scene.pass_time(10, **relief)
        assert scene.actions[OTHER].restarts == [2]
        scene.observer.available = 20 * GIB
        await scene.pass_time(600, **relief)
        assert scene.action.restarts == []
        assert scene.journaled()[-1] == "condition_cleared"


async def test_memory_that_no_restart_brings_back_does_not_cost_every_worker(stage: Stage) -> None:
    async with stage(attempts=2) as scene:
        scene.observer.available = GIB
        relief = {"run": "", "worker": "", "remediation": "relieve_memory"}
        scene.hear(**relief)
        await scene.pass_time(900, **relief)
        assert sum(len(action.restarts) for action in scene.actions.values()) == 2
        assert scene.journaled()[-1] == "attempts_exhausted"


# what goes wrong


@pytest.mark.parametrize(
    "error", [ActionError("cannot start it"), RuntimeError("unforeseen"), OSError("EMFILE")]
)
async def test_an_action_that_fails_is_reported_and_the_engine_goes_on(
    stage: Stage, error: Exception
) -> None:
    async with stage() as scene:
        scene.action.error = error
        scene.hear()
        await scene.clock.advance(4)
        assert scene.journaled() == [
            *["alert", "restart", "intent", "stop", "failed", "not_healed", "cooldown"]
        ]
        assert scene.journal.counters()["actions"] == {
            ("demo", "rollout-0", "restart", "failed"): 1
        }
        scene.action.error = None
        await scene.pass_time(121)
        assert scene.action.restarts == [1, 2]


async def test_processes_that_cannot_be_seen_are_no_ground_to_act(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as scene:

        def blind(_: FakeAction) -> Any:
            raise ActionError("too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(FakeAction, "find_instances", blind)
            scene.hear()
            await scene.clock.advance(10)
            assert scene.journal.open_actions() == ()
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


class Faulty:
    """A journal with some methods that fail for a while."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.failing: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        def call(*values: Any, **facts: Any) -> Any:
            if name in self.failing:
                raise JournalError("disk full")
            return getattr(self._journal, name)(*values, **facts)

        return call


@pytest.mark.parametrize(
    "method", ["open_incidents", "past_actions", "record_decisions", "record_intent"]
)
async def test_what_cannot_be_written_down_is_not_done(stage: Stage, method: str) -> None:
    async with stage() as scene:
        faulty = Faulty(scene.journal)
        scene.spoil(faulty)
        faulty.failing = {method}
        scene.hear()
        await scene.clock.advance(20)
        assert scene.action.restarts == []
        faulty.failing = set()
        await scene.clock.advance(CYCLE_SECONDS)
        assert scene.action.restarts == [1]


async def test_a_step_that_cannot_be_announced_is_not_taken(stage: Stage) -> None:
    async with stage() as scene:
        faulty = Faulty(scene.journal)
        scene.spoil(faulty)
        faulty.failing = {"record_step"}
        scene.hear()
        await scene.clock.advance(4)
        assert scene.observer.workers[ROLLOUT].started_at == NOW - 3600
        assert scene.journaled()[2:5] == ["intent", "failed", "not_healed"]


@pytest.mark.parametrize("method", ["record_result", "record_outcome"])
async def test_a_result_is_written_as_soon_as_the_disk_takes_it(stage: Stage, method: str) -> None:
    async with stage() as scene:
        faulty = Faulty(scene.journal)
        scene.spoil(faulty)
        faulty.failing = {method}
        scene.hear()
        scene.hear(worker="trainer", fingerprint=LATER)
        await scene.clock.advance(30)
        assert scene.actions[TRAINER].restarts == []
        faulty.failing = set()
        await scene.clock.advance(12)
        journaled = scene.journaled()
        assert (journaled.count("done"), journaled.count("healed")) == (2, 2)
        assert scene.action.restarts == [1]


# reloading


async def test_an_action_under_way_ends_as_it_began_when_the_configuration_changes(
    stage: Stage,
) -> None:
    async with stage() as scene:
        scene.hear()
        await scene.clock.advance(2)
        scene.engine.reconfigure(scene.configured(mode="observe"), scene.observer)
        scene.hear(worker="trainer", fingerprint=LATER)
        await scene.clock.advance(10)
        journaled = scene.journaled()
        assert journaled.count("healed") == 1
        assert journaled.count("busy") == 1
        assert journaled[-1] == "observe_mode"
        assert scene.actions[TRAINER].restarts == []


async def test_children_of_a_retired_action_are_collected_to_the_last(stage: Stage) -> None:
    async with stage() as scene:
        left = [3]

        def reap_children() -> bool:
            left[0] -= 1
            return left[0] > 0

        scene.action.reap_children = reap_children
        scene.hear()
        await scene.clock.settle()
        scene.engine.reconfigure(scene.configured(), scene.observer)
        await scene.clock.advance(60)
        assert left[0] <= 0


# after a crash


def cut_short(
    reached: str | None,
    stands: ActionState,
    *,
    result: Literal["done", "failed"] | None = None,
    later: float = 3,
) -> Callable[[Scene], None]:
    """The journal entries that a crash left of an action, a while ago."""

    def leave(scene: Scene) -> None:
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20)])
        number = scene.journal.record_intent(1, ROLLOUT, "restart", [Identity(4242, 17)])
        if reached:
            scene.journal.record_step(number, reached, command=[], processes=[])
        if result:
            scene.journal.record_result(number, result)
        if stands is ActionState.STARTED:
            scene.observer.workers[ROLLOUT] = make_worker(started_at=NOW + 1, memory_bytes=GIB)
        if stands is ActionState.ENDED:
            gone = make_worker(processes=0, memory_bytes=0, started_at=None)
            scene.observer.workers[ROLLOUT] = gone
        scene.clock.pass_by(later)
        scene.action.stands = stands
        scene.observer.known = {}

    return leave


SETTLED = [
    (None, ActionState.UNTOUCHED, ["interrupted"]),
    (None, ActionState.ENDED, ["interrupted"]),
    (None, ActionState.REPLACED, ["interrupted"]),
    (None, ActionState.STARTED, ["done", "healed"]),
    # The trainer ended while its save was waited for, perhaps because it had finished.
    ("stop_deferred", ActionState.ENDED, ["interrupted"]),
    ("stop", ActionState.UNTOUCHED, ["interrupted"]),
    ("stop", ActionState.ENDED, ["start", "done", "healed"]),
    ("stop", ActionState.REPLACED, ["interrupted"]),
    ("stop", ActionState.STARTED, ["done", "healed"]),
    ("start", ActionState.UNTOUCHED, ["interrupted"]),
    ("start", ActionState.ENDED, ["start", "done", "healed"]),
    ("start", ActionState.REPLACED, ["interrupted"]),
    ("start", ActionState.STARTED, ["done", "healed"]),
]


@pytest.mark.parametrize(("reached", "stands", "journaled"), SETTLED)
async def test_an_action_cut_short_is_settled_by_looking(
    stage: Stage, reached: str | None, stands: ActionState, journaled: list[str]
) -> None:
    async with stage(before=cut_short(reached, stands)) as scene:
        await scene.clock.advance(20)
        begun = ["alert", "intent", *([reached] if reached else [])]
        assert scene.done() == [*begun, *journaled]
        assert scene.action.restarts == []
        assert scene.action.finishes == ([1] if journaled[0] == "start" else [])
        assert scene.journal.open_actions() == ()


async def test_a_worker_terminated_before_the_crash_is_given_its_time(stage: Stage) -> None:
    def leave(scene: Scene) -> None:
        cut_short("stop", ActionState.UNTOUCHED, later=0)(scene)
        scene.action.patience = 30.0

    async with stage(before=leave) as scene:
        await scene.clock.advance(20)
        assert scene.journaled() == ["alert", "intent", "stop"]
        scene.action.stands = ActionState.ENDED
        await scene.clock.advance(2)
        assert scene.action.finishes == [1]


@pytest.mark.parametrize(
    ("result", "stands", "outcome"),
    [
        ("done", ActionState.STARTED, "healed"),
        ("done", ActionState.ENDED, "not_healed"),
        ("failed", ActionState.ENDED, "not_healed"),
    ],
)
async def test_an_action_whose_result_was_written_is_only_verified(
    stage: Stage, result: Literal["done", "failed"], stands: ActionState, outcome: str
) -> None:
    async with stage(before=cut_short("start", stands, result=result)) as scene:
        await scene.clock.advance(70)
        assert scene.done() == ["alert", "intent", "start", result, outcome]
        assert (scene.action.restarts, scene.action.finishes) == ([], [])


@pytest.mark.parametrize("obstacle", ["observe", "hold", "too late"])
async def test_what_was_ended_is_not_started_against_the_will_of_an_operator_or_too_late(
    stage: Stage, obstacle: str
) -> None:
    later = 601 if obstacle == "too late" else 3

    def leave(scene: Scene) -> None:
        cut_short("stop", ActionState.ENDED, later=later)(scene)
        if obstacle == "hold":
            (scene.folder / "hold").touch()

    mode = "observe" if obstacle == "observe" else "act"
    async with stage(before=leave, mode=mode) as scene:
        await scene.clock.advance(20)
        assert "interrupted" in scene.journaled()
        assert scene.action.finishes == []


async def test_an_action_on_what_is_no_target_any_more_is_at_its_end(stage: Stage) -> None:
    def leave(scene: Scene) -> None:
        cut_short("stop", ActionState.ENDED)(scene)
        scene.context.setup = make_setup(scene.folder, "demo/trainer")

    async with stage(before=leave) as scene:
        await scene.clock.advance(4)
        assert "interrupted" in scene.journaled()
        assert scene.action.finishes == []


async def test_a_run_with_an_action_to_be_settled_is_busy(stage: Stage) -> None:
    def leave(scene: Scene) -> None:
        cut_short("start", ActionState.STARTED)(scene)
        scene.observer.known = {LATER: AlertState.ACTIVE}
        scene.hear(worker="trainer", fingerprint=LATER)

    async with stage(before=leave) as scene:
        await scene.clock.advance(3)
        assert scene.actions[TRAINER].restarts == []
        await scene.clock.advance(10)
        assert len(scene.actions[TRAINER].restarts) == 1


async def test_a_standing_that_cannot_be_seen_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(*_: object) -> ActionState:
        raise ActionError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(FakeAction, "inspect", blind)
        async with stage(before=cut_short("stop", ActionState.ENDED)) as scene:
            await scene.clock.advance(20)
            assert scene.journaled()[:3] == ["alert", "intent", "stop"]
            assert scene.action.finishes == []
            patch.undo()
            await scene.clock.advance(2)
            assert scene.action.finishes == [1]


async def test_budgets_survive_a_restart_of_the_remediator(stage: Stage) -> None:
    async with stage() as scene:
        scene.action.heal = {"memory_bytes": 9 * GIB}
        scene.hear()
        await scene.pass_time(66)
    for _ in range(5):
        async with stage() as again:
            await again.pass_time(10)
            assert again.action.restarts == []
            assert again.journaled()[-1] == "cooldown"


# threads


async def test_while_an_action_takes_its_time_others_are_decided(
    tmp_path: Path, journal: Journal, clock: FakeClock
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    scene = Scene(tmp_path, journal, clock)
    scene.context.thread_factory = SerialThread
    released, begun = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert released.wait(60)

    scene.action.before = block
    running = asyncio.create_task(scene.engine.run())
    scene.hear()
    assert await asyncio.to_thread(begun.wait, 60)
    scene.hear(run="second", worker="trainer", fingerprint=LATER)
    await _until(lambda: "done" in scene.journaled())
    assert scene.actions[OTHER].restarts == [2]
    assert scene.journaled().count("done") == 1
    released.set()
    await _until(lambda: scene.journaled().count("done") == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - threads of the engine set no event
            await asyncio.sleep(0.01)


# what is seen


@pytest.mark.parametrize(
    ("changes", "ill"),
    [
        ({"started_at": NOW, "memory_bytes": GIB}, ""),
        ({"started_at": NOW - 1.9, "memory_bytes": GIB}, ""),
        ({"started_at": NOW, "memory_limit_bytes": None}, ""),
        ({"started_at": NOW - 2.1, "memory_bytes": GIB}, "it has not restarted"),
        ({"started_at": None, "memory_bytes": GIB}, "it has not restarted"),
        ({"processes": 0}, "0 of 1 processes run"),
        ({"processes": 2}, "2 of 1 processes run"),
        ({"started_at": NOW}, "it holds 9.0 GiB, above its limit"),
    ],
)
def test_tells_what_keeps_a_worker_from_being_healed(changes: dict[str, Any], ill: str) -> None:
    exporter = ExporterState({ROLLOUT: make_worker(**changes)}, 1, 1)
    assert health_problem(exporter, ROLLOUT, NOW) == ill


def test_a_worker_that_is_not_shown_is_not_healed() -> None:
    assert health_problem(ExporterState({}, 1, 1), ROLLOUT, NOW) == "the exporter does not show it"


def test_a_hold_file_of_any_kind_holds_also_where_it_cannot_be_looked_for(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "hold")
    (tmp_path / "hold").symlink_to("nowhere")
    assert is_held(tmp_path / "hold")
    (tmp_path / "file").touch()
    assert is_held(tmp_path / "file" / "hold")
    assert is_held(tmp_path / ("x" * 300))


async def test_an_odd_process_does_not_end_the_loop_of_all_targets(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage() as scene:

        def fail() -> None:
            raise RuntimeError("Symlink loop")

        with monkeypatch.context() as moment:
            moment.setattr(scene.action, "find_instances", fail)
            scene.hear(starts_at=NOW - 20)
            await scene.clock.advance(60)
            assert scene.action.restarts == []
        await scene.clock.advance(600)
        assert scene.action.restarts
