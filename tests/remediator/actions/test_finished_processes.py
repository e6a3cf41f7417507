"""What the remediator has started and ended well is not missed, on any kernel."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.remediator.process_yard import SLEEP, Steps, Yard
from tests.remediator.samples import ROLLOUT, make_worker
from tests.remediator.stage import Scene
from tests.waiting import until

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import finished_workers

ENDS = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit({})); time.sleep(600)"


def started(yard: Yard, *, status: int = 0) -> Any:
    """An action that has started a worker, which ends with `status` on request."""
    action = yard.acting(start=[sys.executable, "-c", ENDS.format(status), yard.mark])
    action.perform("demo/rollout-0/1/x", Steps())
    until(lambda: len(yard.tree().roots) == 1)
    return action


def see(yard: Yard, action: Any) -> None:
    def known() -> bool:
        yard.observe()
        action.reap_children()
        (child,) = action._children
        return bool(action._child_exits.is_worker(child))

    until(known)


def end(action: Any) -> None:
    """Somebody ends the worker."""
    (child,) = action._children
    # once it handles the signal
    until(lambda: _catches(child.pid, signal.SIGTERM))
    os.kill(child.pid, signal.SIGTERM)
    until(lambda: not action.reap_children())


def _catches(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:  # noqa: PTH123
        line = next(line for line in file if line.startswith("SigCgt"))
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(("status", "finished"), [(0, True), (3, False)])
def test_its_status_is_kept(yard: Yard, status: int, *, finished: bool) -> None:
    action = started(yard, status=status)
    see(yard, action)
    assert action.worker_finished() is None
    end(action)
    assert action.worker_finished() is finished


def test_a_program_that_was_never_seen_to_be_the_worker_says_nothing(yard: Yard) -> None:
    action = started(yard)
    end(action)
    assert action.worker_finished() is None


def test_what_the_action_itself_ends_has_not_finished(yard: Yard) -> None:
    action = started(yard)
    see(yard, action)
    (child,) = action._children
    until(lambda: _catches(child.pid, signal.SIGTERM))
    action._child_exits.expect_exit([child.pid])
    end(action)
    assert action.worker_finished() is None


def test_the_journal_keeps_it_once(journal: Journal) -> None:
    for _ in range(2):
        journal.set_worker_finished(ROLLOUT, finished=True)
    assert set(finished_workers(journal.timestamps())) == {ROLLOUT}
    assert [event.kind for event in journal.newest_events(9)] == ["finished"]
    journal.set_worker_finished(ROLLOUT, finished=False)
    assert finished_workers(journal.timestamps()) == {}


def finishes(scene: Scene) -> None:
    """The rollout worker may finish, is gone, and the remediator has seen it end with 0."""
    watched = scene.setup.exporter_config
    run = watched.runs[0]
    worker = run.workers[0].model_copy(update={"finishes": True})
    first = run.model_copy(update={"workers": (worker, *run.workers[1:])})
    runs = (first, *watched.runs[1:])
    scene.context.setup = replace(
        scene.setup, exporter_config=watched.model_copy(update={"runs": runs})
    )
    scene.observer.workers[ROLLOUT] = make_worker(processes=0)
    scene.journal.set_worker_finished(ROLLOUT, finished=True)


async def test_a_worker_that_ended_well_is_not_started_again(stage: Any) -> None:
    async with stage(before=finishes) as scene:
        scene.hear(remediation="start_missing_worker")
        await scene.clock.advance(60)
        assert scene.action.restarts == []
        assert scene.journaled().count("has_finished") == 1
        assert scene.journal.blocked_since() == {}


async def test_a_worker_that_an_operator_started_again_and_that_then_crashed_is(stage: Any) -> None:
    async with stage(before=finishes) as scene:
        vars(scene.engine._executor._tracker)["roots"] = lambda _: [Identity(77, 7)]
        await scene.clock.advance(10)
        vars(scene.engine._executor._tracker)["roots"] = lambda _: []
        scene.hear(remediation="start_missing_worker")
        await scene.clock.advance(60)
        assert scene.action.restarts != []


async def test_a_finished_worker_that_failed_after_a_start_by_hand_is_started(stage: Any) -> None:
    """Also where nobody saw that start: the remediator was down, or too slow."""
    async with stage(before=finishes) as scene:
        gone = make_worker(processes=0, last_exit_code=137.0)
        scene.observer.workers[ROLLOUT] = replace(gone, last_exit_at=scene.clock.now() + 1)
        await scene.clock.advance(10)
        scene.hear(remediation="start_missing_worker")
        await scene.clock.advance(60)
        assert scene.action.restarts != []


def test_the_exit_of_our_own_child_says_nothing_about_a_later_start_by_hand(yard: Yard) -> None:
    action = started(yard)
    see(yard, action)
    end(action)
    assert action.worker_finished()
    until(lambda: not yard.tree().roots)
    yard.run(SLEEP)
    until(lambda: yard.tree().roots)
    yard.observe()
    action.reap_children()
    assert action.worker_finished() is None
