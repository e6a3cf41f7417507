"""What all actions by a manager have in common, with a manager that is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.process_yard import SLEEP, Steps, Yard
from tests.remediator.samples import ROLLOUT, make_alert
from tests.remediator.stage import Stage

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.base import ActionState, RecordStep
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.config.restart_methods.docker import DockerTarget
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionDeferredError, ActionError, NotEligibleError
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.journal import Journal


class Made(ManagedAction[DockerTarget]):
    """Keeps one thing."""

    restarts_atomically = False

    def __init__(
        self,
        *,
        sleep: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = lambda: 0.0,
        **instance: Any,
    ) -> None:
        content = {"run": "demo", "worker": "rollout-0", "docker": {"container": "pod"}}
        target = Target.model_validate({**content, "max_save_delay": 5})
        super().__init__(target, DockerTarget(container="pod"), sleep=sleep, clock=clock)
        self.instance = replace(ManagedInstance(identity="pod 1", running=True), **instance)
        self.restarts = 0
        self.starts = 0

    def read_instance(self) -> ManagedInstance:
        return self.instance

    def restart(self, instance: ManagedInstance, mark: str, record_step: RecordStep) -> None:
        record_step("restart", manager="made up", what="pod")
        self.restarts += 1
        self.instance = ManagedInstance(
            identity=f"pod {1 + self.restarts + self.starts}", running=True
        )

    def start(self, instance: ManagedInstance, mark: str, record_step: RecordStep) -> None:
        record_step("start", manager="made up", what="pod")
        self.starts += 1
        self.instance = ManagedInstance(
            identity=f"pod {1 + self.restarts + self.starts}", running=True
        )


class InOne(Made):
    restarts_atomically = True


def test_the_target_is_restarted_and_the_outcome_is_reported() -> None:
    action, steps = Made(), Steps()
    facts = action.perform("m", steps, intended=action.find_instances())
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": ["pod 2"]}
    assert steps == [("restart", {"manager": "made up", "what": "pod"})]


def test_another_run_than_was_meant_is_not_touched() -> None:
    action, steps = Made(), Steps()
    assert action.perform("m", steps, intended=["pod 0"])["started_by"] == "another"
    assert (action.restarts, steps) == (0, [])


@pytest.mark.parametrize("running", [True, False])
def test_hands_are_kept_off_before_the_intent_and_at_the_act(*, running: bool) -> None:
    action, steps = Made(blocker="an operator stopped it", running=running), Steps()
    with pytest.raises(NotEligibleError, match="an operator stopped it"):
        action.find_instances()
    with pytest.raises(NotEligibleError, match="refused: an operator stopped it"):
        action.perform("m", steps, intended=["pod 1"])
    assert (action.restarts, action.starts, steps) == (0, 0, [])


def test_a_checkpoint_is_waited_for_but_not_for_ever() -> None:
    naps: list[float] = []
    action, steps = Made(sleep=naps.append, clock=lambda: sum(naps)), Steps()
    action.perform("m", steps, saving=lambda: True)
    assert sum(naps) == 5
    assert [step for step, _ in steps] == ["stop_deferred", "restart"]


@pytest.mark.parametrize("name", ["docker", "systemd", "supervisor"])
def test_a_save_without_its_writer_is_not_waited_for(yard: Yard, name: str) -> None:
    """Its container, unit or program still runs: the first process there may be a shell."""
    own = yard.run(SLEEP)
    method: dict[str, dict[str, Any]] = {
        "docker": {"container": "pod"},
        "systemd": {"unit": "pod.service"},
        "supervisor": {"program": "pod", "socket": yard.folder / "socket"},
    }
    content = {"run": "demo", "worker": "rollout-0", "max_save_delay": 5, name: method[name]}
    target = Target.model_validate(content)
    watched = yard.setup.exporter_config
    action = action_for(
        target, Setup(Config(insecure=True, targets=(target,)), watched), yard.tracker
    )
    assert isinstance(action, ManagedAction)
    naps: list[float] = []
    vars(action).update(_sleep=naps.append, _clock=lambda: sum(naps), restart=lambda *_: None)
    instance = ManagedInstance("pod 1", running=True)
    vars(action)["read_instance"] = lambda: instance
    action.perform("m", Steps(), saving=lambda: True)
    assert sum(naps) == 5
    own.kill()
    own.wait()
    action.perform("m", Steps(), saving=lambda: True)
    assert sum(naps) == 5


def test_the_wait_for_a_checkpoint_ends_in_time_however_slowly_the_exporter_answers() -> None:
    naps: list[float] = []

    def saving() -> bool:
        naps.append(3)  # it takes that long to find out
        return True

    action, steps = Made(sleep=naps.append, clock=lambda: sum(naps)), Steps()
    action.perform("m", steps, saving=saving)
    assert sum(naps) < 10
    assert action.restarts == 1


def test_a_manager_that_does_not_answer_once_during_the_wait_is_asked_again() -> None:
    saving = iter([True, True, False])
    action, steps = Made(), Steps()
    read, reads = action.read_instance, iter([ActionError("no answer")])

    def read_once_without_an_answer() -> ManagedInstance:
        for error in reads:
            raise error
        return read()

    vars(action)["read_instance"] = read_once_without_an_answer
    action.perform("m", steps, saving=lambda: next(saving))
    assert action.restarts == 1


def test_a_stop_by_an_operator_during_the_wait_costs_no_attempt() -> None:
    action, steps = Made(), Steps()
    saving = iter([True, False])

    def stop(_: float) -> None:
        action.instance = replace(action.instance, blocker="it was stopped on request")

    action._sleep = stop
    with pytest.raises(ActionDeferredError, match="refused: it was stopped on request"):
        action.perform("m", steps, saving=lambda: next(saving))
    assert action.restarts == 0


def test_an_operator_who_holds_during_the_wait_for_a_checkpoint_is_heeded() -> None:
    naps: list[float] = []

    def confirm() -> None:
        assert sum(naps) == 5
        raise ActionDeferredError("held")

    action, steps = Made(sleep=naps.append, clock=lambda: sum(naps)), Steps()
    with pytest.raises(ActionDeferredError, match="held"):
        action.perform("m", steps, saving=lambda: True, confirm=confirm)
    assert (action.restarts, action.starts) == (0, 0)


def test_an_operator_who_holds_while_the_manager_is_asked_is_heeded() -> None:
    action, asked = Made(), []
    read_instance = action.read_instance

    def read_slowly() -> ManagedInstance:
        asked.append("manager")
        return read_instance()

    def confirm() -> None:
        asked.append("hold")
        if asked[-3:] == ["hold", "manager", "hold"]:
            raise ActionDeferredError("held")

    vars(action)["read_instance"] = read_slowly
    with pytest.raises(ActionDeferredError, match="held"):
        action.perform("m", Steps(), confirm=confirm)
    assert (action.restarts, action.starts) == (0, 0)


def test_a_process_is_not_started_for_a_container_that_the_file_named_before(yard: Yard) -> None:
    action = yard.acting()
    assert action.inspect("m", ["pod 1"]) is ActionState.REPLACED
    assert action.inspect("m", []) is ActionState.ENDED


@pytest.mark.parametrize(
    ("changes", "before", "state"),
    [
        ({}, ["pod 1"], ActionState.UNTOUCHED),
        ({"running": False}, ["pod 1"], ActionState.ENDED),
        ({}, ["pod 0"], ActionState.STARTED),
        # It came up and ended again: to start it once more is not for who settles.
        ({"running": False}, ["pod 0"], ActionState.STARTED),
        # The configuration had another means for it then.
        ({}, [Identity(11, 100)], ActionState.REPLACED),
    ],
)
def test_how_it_stands_after_a_crash_is_identified_by_its_identity(
    changes: dict[str, Any], before: list[str], state: ActionState
) -> None:
    assert Made(**changes).inspect("m", before) is state


def test_what_was_stopped_in_the_middle_of_a_restart_is_started_where_we_may_have_stopped_it() -> (
    None
):
    stopped: dict[str, Any] = {
        "running": False,
        "stopped": True,
        "blocker": "it was stopped on request",
    }
    action = Made(**stopped)
    assert action.finish("m", Steps())["started_by"] == "trainwarden"
    assert action.starts == 1
    # A manager that carries out a restart alone leaves no target stopped half way.
    action = InOne(**stopped)
    with pytest.raises(NotEligibleError, match="not started: it was stopped on request"):
        action.finish("m", Steps())
    assert action.starts == 0


def test_other_reasons_to_keep_hands_off_hold_after_a_crash_as_well() -> None:
    action = Made(running=False, blocker="the manager is about to start it")
    with pytest.raises(NotEligibleError):
        action.finish("m", Steps())
    assert action.starts == 0


def test_what_runs_already_is_not_started_again() -> None:
    action = Made()
    assert action.finish("m", Steps())["started_by"] == "another"
    assert action.starts == 0


def test_the_journal_tells_runs_of_managers_and_processes_apart(
    journal: Journal, clock: FakeClock
) -> None:
    journal.record_alerts([make_alert(starts_at=clock.now())])
    journal.record_intent(1, ROLLOUT, "restart", ["pod 1", Identity(11, 100), "job 7/2"])
    (left,) = journal.open_actions()
    assert left.processes == {"pod 1", Identity(11, 100), "job 7/2"}
    intent = journal.newest_events(1)[0]
    assert intent.facts["processes"] == [11, "job 7/2", "pod 1"]
    assert event_text.describe(intent) == "action 1: about to restart 11, job 7/2, pod 1"
    journal.record_step(1, "restart", manager="docker", what="pod")
    assert event_text.describe(journal.newest_events(1)[0]) == "docker: restart pod"
    journal.record_result(1, "done", killed=[], started_by="trainwarden", processes=["pod 2"])
    assert event_text.describe(journal.newest_events(1)[0]) == "started pod 2"


async def test_a_target_in_an_operators_hands_is_left_alone_reported_once_and_resumed_later(
    stage: Stage, tmp_path: Path
) -> None:
    del tmp_path
    async with stage() as scene:
        instances = scene.action.find_instances

        def refuse() -> Any:
            raise NotEligibleError("w.service was stopped on request")

        scene.action.find_instances = refuse
        scene.hear()
        await scene.pass_time(300)
        assert scene.journaled().count("managed_elsewhere") == 1
        assert scene.action.restarts == []
        (message,) = [
            e
            for e in scene.journal.newest_events(99)
            if e.facts.get("reason") == "managed_elsewhere"
        ]
        assert event_text.describe(message).endswith(
            "wait: the remediator may not restart it (w.service was stopped on request)"
        )
        scene.action.find_instances = instances
        await scene.pass_time(60)
        assert len(scene.action.restarts) == 1
