"""The action by Docker, against a real engine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dockerengine import DockerEngine
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.docker import DockerAction, DockerControlClient
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError, NotEligibleError

SECONDS = 60
FOREVER = "exec sleep 100000"
SLOW = 'trap "sleep 5; exit 0" TERM; while :; do sleep 1; done'
DEAF = 'trap "" TERM; while :; do sleep 1; done'


class Yard:
    """Containers of one test, which are removed after it."""

    def __init__(self, engine: DockerEngine) -> None:
        self.engine = engine
        self._made: list[str] = []

    def make(self, name: str, script: str = FOREVER, *options: str) -> str:
        self._made.append(name)
        plain = ("run", "--detach", "--network=none", "--name", name)
        self.engine.docker(*plain, *options, "shell", "sh", "-c", script)
        return name

    def action(self, name: str, **settings: Any) -> DockerAction:
        content = {"container": name, "socket": self.engine.socket, "grace": 3, **settings}
        target = Target.model_validate({"run": "demo", "worker": "w", "docker": content})
        assert target.docker is not None
        return DockerAction(target, target.docker)

    def show(self, name: str, field: str) -> str:
        return self.engine.docker("inspect", "--format", f"{{{{.{field}}}}}", name)

    def starts(self, name: str) -> int:
        """How often it has started, by the engine's own events."""
        shown = ("events", "--since=2000-01-01", f"--until={time.time():.6f}")
        container = self.show(name, "Id")
        filters = (f"--filter=container={container}", "--filter=event=start")
        return len(self.engine.docker(*shown, *filters).splitlines())

    def wait_for(self, seen: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not seen():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def close(self) -> None:
        for name in self._made:
            subprocess.run(
                ["docker", "--host", f"unix://{self.engine.socket}", "rm", "--force", name],
                env=self.engine._programs.environment,
                capture_output=True,
                check=False,
            )


@pytest.fixture
def yard(engine: DockerEngine) -> Iterator[Yard]:
    yard = Yard(engine)
    yield yard
    yard.close()


class RecordedOutput(list[str]):
    """What an action announced, step by step."""

    def __call__(self, step: str, **_: Any) -> None:
        self.append(step)


def test_a_container_is_restarted_once_and_no_other_is(yard: Yard) -> None:
    name, other = yard.make("d-plain"), yard.make("d-plain-other")
    action, message, others = (
        yard.action(name),
        RecordedOutput(),
        yard.action(other).find_instances(),
    )
    before = action.find_instances()
    facts = action.perform("m", message, intended=before)
    assert message == ["restart"]
    assert facts["processes"] == action.find_instances() != before
    assert (yard.starts(name), yard.show(name, "State.Status")) == (2, "running")
    assert yard.action(other).find_instances() == others


@pytest.mark.parametrize("policy", ["no", "on-failure", "unless-stopped", "always"])
@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_container_that_an_operator_has_stopped_is_left_alone(
    yard: Yard, policy: str, way: str
) -> None:
    name = yard.make("d-stopped", FOREVER, f"--restart={policy}")
    action, message = yard.action(name), RecordedOutput()
    before = action.find_instances()
    yard.engine.docker(*((way, "--time=1") if way == "stop" else (way,)), name)
    with pytest.raises(NotEligibleError, match="d-stopped was stopped on request"):
        action.find_instances()
    with pytest.raises(NotEligibleError, match="refused: d-stopped was stopped on request"):
        action.perform("m", message, intended=before)
    assert (message, yard.show(name, "State.Status"), yard.starts(name)) == ([], "exited", 1)


def test_a_container_that_ended_is_started(yard: Yard) -> None:
    name = yard.make("d-ended", "test -e /tmp/again && exec sleep 100000; >/tmp/again; exit 3")
    yard.wait_for(lambda: yard.show(name, "State.Status") == "exited")
    action, message = yard.action(name), RecordedOutput()
    action.perform("m", message, intended=action.find_instances())
    assert (message, yard.show(name, "State.Status"), yard.starts(name)) == (
        ["start"],
        "running",
        2,
    )


def test_a_signal_that_does_not_end_the_container_is_no_stop(yard: Yard) -> None:
    name = yard.make(
        "d-signalled", 'trap ":" USR1; while test ! -e /tmp/end; do sleep 1; done; exit 3'
    )
    yard.engine.docker("kill", "--signal=USR1", name)
    yard.engine.docker("exec", name, "sh", "-c", ">/tmp/end")
    yard.wait_for(lambda: yard.show(name, "State.Status") == "exited")
    assert yard.action(name).find_instances()


def test_a_container_that_docker_itself_restarts_is_not_fought(yard: Yard) -> None:
    name = yard.make("d-loop", "exit 3", "--restart=always")
    # The pauses of the engine grow with each of its own restarts.
    yard.wait_for(
        lambda: (
            int(yard.show(name, "RestartCount")) >= 6
            and yard.show(name, "State.Status") == "restarting"
        )
    )

    def is_refused() -> bool:
        """It runs for a moment between two pauses."""
        try:
            yard.action(name).find_instances()
        except NotEligibleError as error:
            return "by its restart policy" in str(error)
        return False

    yard.wait_for(is_refused)


def test_a_paused_container_is_left_alone(yard: Yard) -> None:
    name = yard.make("d-paused")
    yard.engine.docker("pause", name)
    with pytest.raises(NotEligibleError, match="d-paused is paused"):
        yard.action(name).find_instances()


def test_a_container_whose_end_the_engine_has_forgotten_is_left_alone(engine: DockerEngine) -> None:
    yard = Yard(engine)
    try:
        name = yard.make("d-forgotten", "exit 3")
        yard.wait_for(lambda: yard.show(name, "State.Status") == "exited")
        assert yard.action(name).find_instances()
        engine.stop()
        engine.start()
        with pytest.raises(NotEligibleError, match="no longer knows whether"):
            yard.action(name).find_instances()
    finally:
        yard.close()


def test_a_container_that_ignores_its_stop_signal_is_killed_after_its_grace(yard: Yard) -> None:
    name = yard.make("d-deaf", DEAF)
    action = yard.action(name, grace=2)
    before, began = action.find_instances(), time.monotonic()
    action.perform("m", RecordedOutput(), intended=before)
    assert time.monotonic() - began >= 2
    assert action.find_instances() != before


def test_a_slowly_stopping_container_is_not_killed(yard: Yard, tmp_path: Path) -> None:
    script = 'trap "sleep 3; >/mine/saved; exit 0" TERM; while :; do sleep 1; done'
    name = yard.make("d-slow", script, f"--volume={tmp_path}:/mine")
    yard.action(name, grace=60).perform("m", RecordedOutput())
    assert (tmp_path / "saved").exists()
    assert yard.show(name, "State.Status") == "running"


def test_a_container_recreated_under_the_same_name_is_not_touched(yard: Yard) -> None:
    name = yard.make("d-recreated")
    action, message = yard.action(name), RecordedOutput()
    before = action.find_instances()
    yard.engine.docker("rm", "--force", name)
    yard.make(name)
    restarted = action.find_instances()
    assert restarted != before
    assert action.perform("m", message, intended=before)["started_by"] == "another"
    assert (message, action.find_instances()) == ([], restarted)


def test_one_restarted_since_it_was_looked_at_is_not_touched(yard: Yard) -> None:
    name = yard.make("d-again")
    action, message = yard.action(name), RecordedOutput()
    before = action.find_instances()
    yard.engine.docker("restart", "--time=0", name)
    assert action.perform("m", message, intended=before)["started_by"] == "another"
    assert (message, yard.starts(name)) == ([], 2)


def test_a_removed_container_is_not_recreated(yard: Yard) -> None:
    name = yard.make("d-gone")
    action, message = yard.action(name), RecordedOutput()
    before = action.find_instances()
    yard.engine.docker("rm", "--force", name)
    with pytest.raises(ActionError, match="there is no container d-gone"):
        action.perform("m", message, intended=before)
    assert message == []


CRASH = """
import os, signal, sys, threading
from pathlib import Path
from trainwarden_remediator.actions.docker import DockerAction
from trainwarden_remediator.config.targets import Target
socket, name, delay = sys.argv[1:]
content = {"container": name, "socket": Path(socket), "grace": 30}
target = Target(run="demo", worker="w", docker=content)
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
def record_step(step, **facts):
    if float(delay):
        threading.Timer(float(delay), die).start()
    else:
        die()
DockerAction(target, target.docker).perform("m", record_step)
"""


@pytest.mark.parametrize("delay", ["0", "2"])
def test_killed_in_the_middle_it_is_settled_by_looking_and_started_once(
    yard: Yard, delay: str
) -> None:
    name = yard.make("d-crash", SLOW)
    action = yard.action(name)
    before = action.find_instances()
    command = [sys.executable, "-c", CRASH, str(yard.engine.socket), name, delay]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert action.inspect("m", before) is ActionState.UNTOUCHED
    if delay == "0":  # the engine never got the request
        assert yard.starts(name) == 1
        return
    # The engine was; whether it starts what it has ended is its own affair, then ours.
    yard.wait_for(lambda: action.inspect("m", before) is not ActionState.UNTOUCHED)
    if action.inspect("m", before) is ActionState.ENDED:
        action.finish("m", RecordedOutput())
    yard.wait_for(lambda: action.inspect("m", before) is ActionState.STARTED)
    assert action.finish("m", RecordedOutput())["started_by"] == "another"
    assert (yard.starts(name), yard.show(name, "State.Status")) == (2, "running")


def test_an_engine_that_stopped_it_and_did_not_start_it_is_made_up_for(yard: Yard) -> None:
    name = yard.make("d-half")
    action, message = yard.action(name), RecordedOutput()
    before = action.find_instances()
    yard.engine.docker("stop", "--time=1", name)
    assert action.inspect("m", before) is ActionState.ENDED
    assert action.finish("m", message)["started_by"] == "trainwarden"
    assert (message, yard.starts(name)) == (["start"], 2)


def test_a_start_that_fails_is_reported_with_what_the_engine_says(
    yard: Yard, tmp_path: Path
) -> None:
    bound = tmp_path / "bound"
    bound.touch()
    name = yard.make("d-fails", "exit 3", f"--mount=type=bind,source={bound},target=/bound")
    yard.wait_for(lambda: yard.show(name, "State.Status") == "exited")
    bound.unlink()
    with pytest.raises(ActionError, match=r"docker start d-fails: .*bound"):
        yard.action(name).perform("m", RecordedOutput())


def test_an_engine_that_is_not_there_is_an_error(yard: Yard, tmp_path: Path) -> None:
    with pytest.raises(ActionError, match="cannot query Docker"):
        yard.action("d-none", socket=tmp_path / "none").find_instances()


def test_a_container_that_runs_what_is_protected_is_refused(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trainwarden_remediator.actions.termination.PROTECTED", frozenset({"sleep"})
    )
    name, message = yard.make("d-protected"), RecordedOutput()
    action = yard.action(name)
    before = action.find_instances()
    with pytest.raises(ActionError, match="refused: sleep"):
        action.perform("m", message, intended=before)
    assert (message, action.find_instances()) == ([], before)


def test_a_refused_request_names_the_container_by_id_alone(yard: Yard) -> None:
    """A name in a path would be looked up once more, and may be another's by then."""
    name = yard.make("d-by-id")
    asked: list[str] = []

    class Listening(DockerControlClient):
        def _request(self, path: str, *given: Any, **more: Any) -> tuple[int, bytes]:
            asked.append(path)
            return super()._request(path, *given, **more)

    action = yard.action(name)
    action._engine = Listening(yard.engine.socket)
    action.perform("m", RecordedOutput())
    identifier = yard.show(name, "Id")
    assert f"/containers/{identifier}/restart" in asked
