"""What all actions by a manager have in common, with a manager that is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import ROLLOUT, FakeClock, Stage, Steps, Yard, make_alert

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator import story
from trainwarden_remediator.actions.base import Announce, Standing
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.exceptions import LeftAloneError
from trainwarden_remediator.journal import Journal
from trainwarden_remediator.targets import Target


class Made(ManagedAction):
    """Keeps one thing."""

    in_one = False

    def __init__(self, *, sleep: Callable[[float], None] = lambda _: None, **kept: Any) -> None:
        content = {"run": "demo", "worker": "rollout-0", "docker": {"container": "pod"}}
        super().__init__(Target.model_validate({**content, "save_patience": 5}), sleep=sleep)
        self.kept = replace(Kept(identity="pod 1", running=True), **kept)
        self.restarts = 0
        self.starts = 0

    def look(self) -> Kept:
        return self.kept

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        announce("restart", manager="made up", what="pod")
        self.restarts += 1
        self.kept = Kept(identity=f"pod {1 + self.restarts + self.starts}", running=True)

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        announce("start", manager="made up", what="pod")
        self.starts += 1
        self.kept = Kept(identity=f"pod {1 + self.restarts + self.starts}", running=True)


class InOne(Made):
    in_one = True


def test_what_was_meant_is_restarted_and_what_came_of_it_is_told() -> None:
    action, steps = Made(), Steps()
    facts = action.perform("m", steps, meant=action.processes())
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": ["pod 2"]}
    assert steps == [("restart", {"manager": "made up", "what": "pod"})]


def test_another_run_than_was_meant_is_not_touched() -> None:
    action, steps = Made(), Steps()
    assert action.perform("m", steps, meant=["pod 0"])["started_by"] == "another"
    assert (action.restarts, steps) == (0, [])


@pytest.mark.parametrize("running", [True, False])
def test_hands_are_kept_off_before_the_intent_and_at_the_act(*, running: bool) -> None:
    action, steps = Made(hands_off="a person stopped it", running=running), Steps()
    with pytest.raises(LeftAloneError, match="a person stopped it"):
        action.processes()
    with pytest.raises(LeftAloneError, match="refused: a person stopped it"):
        action.perform("m", steps, meant=["pod 1"])
    assert (action.restarts, action.starts, steps) == (0, 0, [])


def test_a_checkpoint_is_waited_for_but_not_for_ever() -> None:
    naps: list[float] = []
    action, steps = Made(sleep=naps.append), Steps()
    action.perform("m", steps, saving=lambda: True)
    assert sum(naps) == 5
    assert [step for step, _ in steps] == ["spare", "restart"]


def test_a_process_is_not_started_for_a_container_that_the_file_named_before(yard: Yard) -> None:
    action = yard.acting()
    assert action.standing("m", ["pod 1"]) is Standing.REPLACED
    assert action.standing("m", []) is Standing.ENDED


@pytest.mark.parametrize(
    ("changes", "before", "standing"),
    [
        ({}, ["pod 1"], Standing.UNTOUCHED),
        ({"running": False}, ["pod 1"], Standing.ENDED),
        ({}, ["pod 0"], Standing.STARTED),
        # It came up and ended again: to start it once more is not for who settles.
        ({"running": False}, ["pod 0"], Standing.STARTED),
        # The configuration had another means for it then.
        ({}, [Identity(11, 100)], Standing.REPLACED),
    ],
)
def test_how_it_stands_after_a_crash_is_told_by_its_identity(
    changes: dict[str, Any], before: list[str], standing: Standing
) -> None:
    assert Made(**changes).standing("m", before) is standing


def test_what_was_stopped_in_the_middle_of_a_restart_is_started_where_we_may_have_stopped_it() -> (
    None
):
    stopped: dict[str, Any] = {
        "running": False,
        "stopped": True,
        "hands_off": "it was told to stop",
    }
    action = Made(**stopped)
    assert action.finish("m", Steps())["started_by"] == "trainwarden"
    assert action.starts == 1
    # A manager that carries a restart through by itself leaves nothing stopped half way.
    action = InOne(**stopped)
    with pytest.raises(LeftAloneError, match="not started: it was told to stop"):
        action.finish("m", Steps())
    assert action.starts == 0


def test_other_reasons_to_keep_hands_off_hold_after_a_crash_as_well() -> None:
    action = Made(running=False, hands_off="the manager is about to start it")
    with pytest.raises(LeftAloneError):
        action.finish("m", Steps())
    assert action.starts == 0


def test_what_runs_already_is_not_started_again() -> None:
    action = Made()
    assert action.finish("m", Steps())["started_by"] == "another"
    assert action.starts == 0


def test_the_journal_tells_runs_of_managers_and_processes_apart(
    journal: Journal, clock: FakeClock
) -> None:
    journal.hear([make_alert(starts_at=clock.now())])
    journal.intend(1, ROLLOUT, "restart", ["pod 1", Identity(11, 100), "job 7/2"])
    (left,) = journal.unfinished()
    assert left.processes == {"pod 1", Identity(11, 100), "job 7/2"}
    intent = journal.newest_events(1)[0]
    assert intent.facts["processes"] == [11, "job 7/2", "pod 1"]
    assert story.sentence(intent) == "action 1: about to restart 11, job 7/2, pod 1"
    journal.reached(1, "restart", manager="docker", what="pod")
    assert story.sentence(journal.newest_events(1)[0]) == "docker: restart pod"
    journal.finished(1, "done", killed=[], started_by="trainwarden", processes=["pod 2"])
    assert story.sentence(journal.newest_events(1)[0]) == "started pod 2"


async def test_what_a_person_has_in_hand_is_left_alone_said_once_and_gone_on_with_later(
    stage: Stage, tmp_path: Path
) -> None:
    del tmp_path
    async with stage() as scene:
        subjects = scene.action.processes

        def refuse() -> Any:
            raise LeftAloneError("w.service was told to stop")

        scene.action.processes = refuse
        scene.hear()
        await scene.pass_time(300)
        assert scene.told().count("left_alone") == 1
        assert scene.action.restarts == []
        (said,) = [
            e for e in scene.journal.newest_events(99) if e.facts.get("reason") == "left_alone"
        ]
        assert story.sentence(said).endswith("wait: left alone (w.service was told to stop)")
        scene.action.processes = subjects
        await scene.pass_time(60)
        assert len(scene.action.restarts) == 1
