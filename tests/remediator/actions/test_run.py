"""The restart of a worker through the `trainwarden run` that started it, with real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fakes import NoRecords

from running_runs import Runs, is_alive, wait_for
from trainwarden.run.process_tree import read_start_ticks
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.run_socket import ask_run
from trainwarden_remediator.actions import action_for, run
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.run import RunAction
from trainwarden_remediator.config.exporter_file import ExporterFile
from trainwarden_remediator.config.restart_methods.run import RunTarget
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    NotEligibleError,
    ProcessesDifferError,
)

KEY = WorkerKey("r", "trainer")
SLEEP = ("sleep", "1000")
IGNORES = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(1000)
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    found = Runs(tmp_path / "state")
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(found.folder))
    yield found
    found.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    path = tmp_path / "remediator.yml"
    path.write_text("insecure: true\nmode: act\n")
    return path


@pytest.fixture
def act(path: Path) -> Callable[[], RunAction]:
    """Returns the action on the run as it is announced."""

    def build() -> RunAction:
        setup = load_setup(path)
        target = setup.config.target(KEY)
        assert target is not None
        action = action_for(target, setup, DescendantTracker(NoRecords()))
        assert isinstance(action, RunAction)
        return action

    return build


class Steps:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.facts: dict[str, Any] = {}

    def __call__(self, step: str, **facts: Any) -> None:
        self.taken.append(step)
        self.facts |= facts


def identity(announced: dict[str, Any]) -> Identity:
    return Identity(announced["pid"], announced["start_ticks"])


def test_an_announced_run_is_a_target_without_an_entry(runs: Runs, path: Path) -> None:
    file, before = ExporterFile(path), load_setup(path)
    assert file.read_if_changed(before) is before
    assert before.config.targets == ()
    runs.piped(*SLEEP)
    runs.wait_until(state="running")
    setup = file.read_if_changed(before)
    (target,) = setup.config.targets
    assert isinstance(target.restart_method, RunTarget)
    assert target.key == KEY
    assert setup.is_trainer(KEY)
    runs.request(command="stop")
    setup = file.read_if_changed(setup)
    assert setup.config.targets == ()
    assert setup.is_stopped("r", "trainer")
    runs.piped(*SLEEP)
    runs.wait_until(state="running")
    assert not file.read_if_changed(setup).is_stopped("r", "trainer")


def test_a_target_whose_trainwarden_run_has_ended_cannot_be_restarted(
    runs: Runs, path: Path
) -> None:
    file, setup = ExporterFile(path), load_setup(path)
    process = runs.piped("sh", "-c", "read _; exit 3")
    runs.wait_until(state="failed")
    process.communicate()
    (target,) = file.read_if_changed(setup).config.targets
    assert not target.can_be_restarted


def test_the_end_of_trainwarden_run_is_seen_without_a_change_of_its_announcement(
    runs: Runs, path: Path
) -> None:
    file, setup = ExporterFile(path), load_setup(path)
    runs.piped(*SLEEP)
    announced = runs.wait_until(state="running")
    with subprocess.Popen(SLEEP) as wrapper:
        named = {"wrapper_pid": wrapper.pid, "wrapper_start_ticks": read_start_ticks(wrapper.pid)}
        (runs.folder / "runs.d" / "r@trainer.json").write_text(json.dumps({**announced, **named}))
        setup = file.read_if_changed(file.read_if_changed(setup))
        assert setup.config.targets[0].can_be_restarted
        wrapper.kill()
    assert not file.read_if_changed(setup).config.targets[0].can_be_restarted


def test_a_run_that_is_never_restarted_is_observed_and_no_target(runs: Runs, path: Path) -> None:
    runs.piped(*SLEEP, options=("--name", "r", "--restart", "never"))
    runs.wait_until(state="running")
    setup = load_setup(path)
    assert KEY in setup.selectors
    assert setup.config.targets == ()


def test_a_target_in_the_file_takes_precedence(runs: Runs, path: Path) -> None:
    runs.piped(*SLEEP)
    runs.wait_until(state="running")
    path.write_text(
        "insecure: true\ntargets: [{run: r, worker: trainer, process: {start: [/bin/true]}}]\n"
    )
    (target,) = load_setup(path).config.targets
    assert target.process is not None


def test_it_ends_the_process_and_starts_the_same_command(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    runs.piped(*SLEEP)
    before = runs.wait_until(state="running")
    action, steps = act(), Steps()
    assert action.find_instances() == [identity(before)]
    facts = action.perform("7", steps, intended=[identity(before)])
    now = runs.wait_until(starts=2, state="running")
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": [now["pid"]]}
    assert steps.taken == ["stop", "start"]
    assert steps.facts == {"processes": [before["pid"]], "command": list(SLEEP)}
    assert not is_alive(before["pid"])
    assert action.inspect("7", [identity(before)]) is ActionState.STARTED


def test_a_process_that_was_restarted_since_the_decision_is_left_alone(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    runs.piped(*SLEEP)
    before = runs.wait_until(state="running")
    runs.restart()
    now = runs.wait_until(starts=2, state="running")
    facts = act().perform("7", Steps(), intended=[identity(before)])
    assert facts == {"killed": [], "started_by": "another", "processes": [now["pid"]]}
    assert is_alive(now["pid"])


def test_another_process_than_that_of_trainwarden_run_is_never_ended(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    """Also if the pid file names it."""
    runs.piped(*SLEEP)
    pid = runs.wait_until(state="running")["pid"]
    decoy = subprocess.Popen(SLEEP)
    try:
        (runs.folder / "runs.d" / "r@trainer.pid").write_text(f"{decoy.pid}\n")
        with pytest.raises(ProcessesDifferError, match=f"`match` finds {decoy.pid}"):
            act().perform("7", Steps())
        assert decoy.poll() is None
        assert is_alive(pid)
        assert runs.announced()["starts"] == 1
    finally:
        decoy.kill()
        decoy.wait()


def test_a_socket_of_another_account_is_not_asked(runs: Runs, act: Callable[[], RunAction]) -> None:
    runs.piped(*SLEEP)
    pid = runs.wait_until(state="running")["pid"]
    action = act()
    action._run = action._run.model_copy(update={"owner": os.geteuid() + 1})
    with pytest.raises(ActionError, match="listens at"):
        action.perform("7", Steps())
    assert is_alive(pid)


@pytest.mark.parametrize(
    "changed",
    [
        {"status": {"argv": 5}},
        {"status": {"pid": 1 << 80}},
        {"status": {"start_ticks": -1}},
        {"ok": False, "error": "\x1b[2J\n" + "long " * 100_000},
    ],
)
def test_an_odd_answer_is_an_error_of_one_short_line(
    runs: Runs,
    act: Callable[[], RunAction],
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
) -> None:
    runs.piped(*SLEEP)
    pid = runs.wait_until(state="running")["pid"]

    def answer(path: Path, **request: Any) -> dict[str, Any]:
        if request["command"] == "restart":
            return {"ok": True, **changed}
        found = ask_run(path, **request)
        return {**found, "status": found["status"] | changed.get("status", {})}

    monkeypatch.setattr(run, "ask_run", answer)
    with pytest.raises(ActionError) as caught:
        act().perform("7", Steps())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    assert is_alive(pid)


def test_a_run_whose_wrapper_has_ended_is_not_eligible(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    runs.piped("false").communicate()
    assert runs.announced()["state"] == "failed"
    with pytest.raises(NotEligibleError, match="nobody can start it again: type"):
        act().find_instances()


def test_a_failed_command_is_started_again_where_its_wrapper_waits(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    """It waits where nobody is at the terminal any more."""
    wrapper = runs.piped(*SLEEP)
    runs.wait_until(state="running")
    wrapper.kill()
    wait_for(lambda: runs.announced()["wrapper_pid"] != wrapper.pid)
    os.kill(runs.announced()["pid"], signal.SIGKILL)
    runs.wait_until(state="failed")
    action = act()
    assert action.find_instances() == []
    assert action.inspect("7", []) is ActionState.ENDED
    facts = action.perform("7", Steps(), intended=[])
    assert facts["started_by"] == "trainwarden"
    assert runs.wait_until(starts=2)["state"] == "running"
    assert action.finish("7", Steps())["started_by"] == "another"


def test_a_command_that_failed_is_left_to_its_own_restart_policy_and_a_hung_one_is_not(
    runs: Runs, act: Callable[[], RunAction], tmp_path: Path
) -> None:
    """The attempts of two programs would add up."""
    (tmp_path / "go").touch()
    script = f"test -e {tmp_path}/go && exec sleep 1000; exit 3"
    runs.piped("sh", "-c", script, options=("--name", "r", "--restart", "on-failure"))
    before = runs.wait_until(state="running")
    assert act().perform("7", Steps(), [identity(before)])["started_by"] == "trainwarden"
    now = runs.wait_until(starts=2, state="running")
    (tmp_path / "go").unlink()
    os.kill(now["pid"], signal.SIGKILL)
    runs.wait_until(state="failed", starts=4)  # the next start follows after four seconds
    with pytest.raises(NotEligibleError, match="starts it again after a failure"):
        act().find_instances()
    with pytest.raises(ActionDeferredError, match="starts it again after a failure"):
        act().perform("7", Steps(), [])  # it ended after the decision: no attempt is counted


def test_a_save_defers_the_end(runs: Runs, act: Callable[[], RunAction], tmp_path: Path) -> None:
    folder = tmp_path / "saves"
    folder.mkdir()
    half = folder / "step-9.ckpt"
    saves = f"exec 3> {half}; sleep 2; echo whole >&3; exec 3>&-; exec sleep 1000"
    runs.piped("sh", "-c", saves, options=("--name", "r", "--checkpoints", str(folder)))
    runs.wait_until(state="running")
    wait_for(half.exists)
    steps: dict[str, str] = {}

    def record_step(step: str, **_: object) -> None:
        steps[step] = half.read_text()

    act().perform("7", record_step)
    assert list(steps) == ["stop_deferred", "stop", "start"]
    assert steps["stop"] == "whole\n"


def test_the_kill_of_what_ignores_sigterm_is_a_step_and_the_start_follows_it(
    runs: Runs, act: Callable[[], RunAction], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunAction, "grace", 0.5)
    runs.piped(sys.executable, "-c", IGNORES, str(tmp_path / "ready"))
    before = runs.wait_until(state="running")["pid"]
    wait_for((tmp_path / "ready").exists)
    lived: list[tuple[str, bool]] = []
    steps = Steps()

    def record_step(step: str, **facts: Any) -> None:
        lived.append((step, is_alive(before)))
        steps(step, **facts)

    facts = act().perform("7", record_step)
    assert [step for step, _ in lived] == ["stop", "kill", "start"]
    assert lived[-1] == ("start", False)
    assert (steps.facts["processes"], steps.facts["seconds"]) == ([before], 0.5)
    assert (facts["killed"], facts["started_by"]) == ([before], "trainwarden")


def test_a_run_that_saves_often_is_not_waited_for(
    runs: Runs, act: Callable[[], RunAction], tmp_path: Path
) -> None:
    """A file counts as complete 30 s after its last write, so the exporter always sees a save."""
    (tmp_path / "step-9.ckpt").write_bytes(b"whole")
    os.utime(tmp_path / "step-9.ckpt", (time.time() - 10, time.time() - 10))
    runs.piped(*SLEEP, options=("--name", "r", "--checkpoints", str(tmp_path)))
    runs.wait_until(state="running")
    steps = Steps()
    act().perform("7", steps, saving=lambda: True)
    assert steps.taken == ["stop", "start"]


def test_no_process_ends_if_the_last_confirmation_is_refused(
    runs: Runs, act: Callable[[], RunAction]
) -> None:
    runs.piped(*SLEEP)
    pid = runs.wait_until(state="running")["pid"]

    def refuse() -> None:
        raise ProcessesDifferError("refused")

    with pytest.raises(ProcessesDifferError):
        act().perform("7", Steps(), confirm=refuse)
    assert is_alive(pid)
    assert runs.announced()["starts"] == 1
    steps = Steps()

    def hold() -> None:
        if steps.taken:
            raise ActionDeferredError("held")

    with pytest.raises(ActionDeferredError, match="held"):
        act().perform("7", steps, confirm=hold)
    assert steps.taken == ["stop"]
    assert is_alive(pid)
    assert runs.announced()["starts"] == 1
