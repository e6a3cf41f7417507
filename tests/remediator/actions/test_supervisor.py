"""The action by supervisord, against a real one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import ROLLOUT

import ports
from trainwarden_exporter.processes.procfs import read_command_line
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.supervisor import (
    SupervisedProgram,
    SupervisorAction,
    SupervisordClient,
    SupervisordError,
    managed_instance,
    parse_program,
)
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionError, JournalError, NotEligibleError

PATIENCE = 60.0
SECRET = "a-password-for-a-test"

# `flaky` gives up after two tries; `loop` is between two of its tries for most of the time.
PROGRAMS = """\
[program:steady]
command=sleep 100000
startsecs=0
[program:late]
command=sleep 100000
autostart=false
startsecs=0
[program:once]
command=sh -c "test -e %(here)s/go && exec sleep 100000; exit 3"
autorestart=false
startsecs=0
[program:flaky]
command=sh -c "test -e %(here)s/go && exec sleep 100000; exit 3"
startretries=0
startsecs=1
[program:loop]
command=false
startretries=100
startsecs=1
[group:ranks]
programs=rank
[program:rank]
command=sleep 100000
process_name=rank-%(process_num)d
numprocs=2
startsecs=0
"""


class Running:
    """A supervisord of our own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self.port = ports.free_port()
        (folder / "conf").write_text(
            f"[supervisord]\nnodaemon=true\nlogfile={folder}/log\npidfile={folder}/pid\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory="
            "supervisor.rpcinterface:make_main_rpcinterface\n"
            f"[unix_http_server]\nfile={self.socket}\n"
            f"[inet_http_server]\nport=127.0.0.1:{self.port}\nusername=u\npassword={SECRET}\n"
            f"{PROGRAMS}"
        )
        command = [sys.executable, "-W", "ignore", "-m", "supervisor.supervisord"]
        self.process = subprocess.Popen(
            [*command, "-c", folder / "conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.ask = SupervisordClient(self.socket)
        wait_for(lambda: self.state("steady") == "RUNNING")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def state(self, program: str) -> str:
        try:
            return self.ask.info(program, within=5).state
        except SupervisordError:
            return ""

    def info(self, program: str) -> SupervisedProgram:
        return self.ask.info(program, within=5)

    def action(self, program: str, **settings: Any) -> SupervisorAction:
        content = {"program": program, "socket": self.socket, **settings}
        target = Target.model_validate(
            {"run": ROLLOUT.run, "worker": ROLLOUT.worker, "supervisor": content}
        )
        assert target.supervisor is not None
        return SupervisorAction(target, target.supervisor)


def wait_for(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    folder = Path(tempfile.mkdtemp(prefix="sv-"))  # short, for it holds a socket
    running = Running(folder)
    try:
        yield running
    finally:
        running.close()
        shutil.rmtree(folder)


class RecordedOutput(list[str]):
    """What an action announced, step by step."""

    def __call__(self, step: str, **_: Any) -> None:
        self.append(step)


def test_a_program_is_stopped_and_started_once(running: Running) -> None:
    action, message, before = running.action("steady"), RecordedOutput(), running.info("steady")
    wait_for(lambda: running.info("steady").now > before.start)  # its moments are whole seconds
    facts = action.perform("m", message, intended=action.find_instances())
    after = running.info("steady")
    assert message == ["stop", "start"]
    assert (after.state, facts["started_by"]) == ("RUNNING", "trainwarden")
    assert after.pid != before.pid
    assert action.find_instances() == facts["processes"]


def test_one_process_of_a_group_is_restarted_and_no_other(running: Running) -> None:
    other, before = running.info("ranks:rank-1").pid, running.info("ranks:rank-0").pid
    running.action("ranks:rank-0").perform("m", RecordedOutput())
    assert running.info("ranks:rank-0").pid not in (0, before)
    assert running.info("ranks:rank-1").pid == other


def test_a_program_that_an_operator_has_stopped_is_left_alone(running: Running) -> None:
    action = running.action("steady")
    intended = action.find_instances()
    running.ask.stop("steady", within=30)
    try:
        with pytest.raises(NotEligibleError, match="stopped on request"):
            action.find_instances()
        message = RecordedOutput()
        with pytest.raises(NotEligibleError, match="refused: steady was stopped on request"):
            action.perform("m", message, intended=intended)
        assert (message, running.state("steady")) == ([], "STOPPED")
    finally:
        running.ask.start("steady", within=30)


def test_a_program_that_nobody_has_started_is_left_alone(running: Running) -> None:
    with pytest.raises(NotEligibleError, match="never started"):
        running.action("late").find_instances()


def test_a_program_that_supervisord_itself_is_starting_is_left_alone(running: Running) -> None:
    wait_for(lambda: running.state("loop") in ("BACKOFF", "STARTING"))
    with pytest.raises(NotEligibleError, match="supervisord is already starting loop"):
        running.action("loop").find_instances()


@pytest.mark.parametrize(("program", "state"), [("once", "EXITED"), ("flaky", "FATAL")])
def test_a_program_that_has_ended_for_good_is_started(
    running: Running, program: str, state: str
) -> None:
    wait_for(lambda: running.state(program) == state)
    action = running.action(program)

    def may_be_started() -> bool:
        try:
            return bool(action.find_instances())
        except NotEligibleError:
            return False

    wait_for(may_be_started)
    (running.folder / "go").touch()
    try:
        message = RecordedOutput()
        facts = action.perform("m", message, intended=action.find_instances())
        # its shell may not have looked for the file yet
        wait_for(lambda: read_command_line(running.info(program).pid) == ("sleep", "100000"))
    finally:
        (running.folder / "go").unlink()
    assert (message, running.state(program)) == (["start"], "RUNNING")
    assert facts["started_by"] == "trainwarden"


def test_a_program_that_does_not_come_up_is_reported_and_tried_once(running: Running) -> None:
    running.ask.stop("flaky", within=30) if running.state("flaky") == "RUNNING" else None
    message = RecordedOutput()
    with pytest.raises(ActionError, match="supervisord, start flaky: "):
        running.action("flaky").start(
            managed_instance("flaky", running.info("flaky")), "m", message
        )
    assert message == ["start"]


def test_one_restarted_since_it_was_looked_at_is_not_touched(running: Running) -> None:
    action, before = running.action("steady"), running.info("steady")
    intended = action.find_instances()
    wait_for(lambda: running.info("steady").now > before.start)
    running.ask.stop("steady", within=30)
    running.ask.start("steady", within=30)
    restarted, message = running.info("steady"), RecordedOutput()
    assert action.perform("m", message, intended=intended)["started_by"] == "another"
    assert (message, running.info("steady").pid) == ([], restarted.pid)


CRASH = """
import os, signal, sys
from pathlib import Path
from trainwarden_remediator.actions.supervisor import SupervisorAction
from trainwarden_remediator.config.targets import Target
content = {"program": "steady", "socket": Path(sys.argv[1])}
target = Target(run="demo", worker="rollout-0", supervisor=content)
def record_step(step, **facts):
    if step == "start":
        os.kill(os.getpid(), signal.SIGKILL)
SupervisorAction(target, target.supervisor).perform("m", record_step)
"""


def test_killed_between_stop_and_start_it_is_found_ended_and_started_once(
    running: Running,
) -> None:
    action, before = running.action("steady"), running.info("steady")
    intended = action.find_instances()
    assert action.inspect("m", intended) is ActionState.UNTOUCHED
    wait_for(lambda: running.info("steady").now > before.start)
    crashed = subprocess.run([sys.executable, "-c", CRASH, running.socket], check=False)
    assert crashed.returncode == -signal.SIGKILL
    assert running.state("steady") == "STOPPED"
    assert action.inspect("m", intended) is ActionState.ENDED
    message = RecordedOutput()
    assert action.finish("m", message)["started_by"] == "trainwarden"
    started = running.info("steady")
    assert (message, started.state) == (["start"], "RUNNING")
    assert action.inspect("m", intended) is ActionState.STARTED
    assert action.finish("m", message)["started_by"] == "another"
    assert running.info("steady").pid == started.pid


def test_a_journal_that_fills_up_in_the_middle_leaves_no_worker_stopped(running: Running) -> None:
    def record_step(step: str, **_: Any) -> None:
        if step == "start":
            raise JournalError("no space left on device")

    before = running.info("steady").pid
    running.action("steady").perform("m", record_step)
    assert running.info("steady").pid not in (0, before)


def test_a_checkpoint_that_is_being_written_is_waited_for(running: Running) -> None:
    saving, naps, before = iter([True, True, False]), [], running.info("steady").pid
    action = running.action("steady")

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        assert running.info("steady").pid == before

    action._sleep = sleep
    message = RecordedOutput()
    action.perform("m", message, saving=lambda: next(saving))
    assert (message, len(naps)) == (["stop_deferred", "stop", "start"], 2)


class SlowToStop:
    """A supervisord whose program takes longer to stop than a request may."""

    def __init__(self, *, states: int) -> None:
        self._left = states
        self.state = "RUNNING"
        self.starts = 0

    def info(self, name: str, *, within: float) -> SupervisedProgram:
        del name, within
        if self.state == "STOPPING":
            self._left -= 1
            self.state = "STOPPING" if self._left else "STOPPED"
        content = {"statename": self.state, "start": 100 + self.starts, "stop": 0, "now": 900}
        return SupervisedProgram.model_validate({**content, "pid": 0})

    def stop(self, name: str, *, within: float) -> None:
        self.state = "STOPPING"
        raise SupervisordError(f"{name}: timed out after {within:g} s") from TimeoutError()

    def start(self, name: str, *, within: float) -> None:
        del name, within
        self.starts, self.state = self.starts + 1, "RUNNING"


@pytest.mark.parametrize(("states", "starts"), [(3, 1), (sys.maxsize, 0)])
def test_a_program_that_is_slow_to_stop_is_started_once_it_has(
    tmp_path: Path, *, states: int, starts: int
) -> None:
    content = {"program": "slow", "socket": tmp_path / "s"}
    target = Target.model_validate(
        {"run": ROLLOUT.run, "worker": ROLLOUT.worker, "supervisor": content}
    )
    assert target.supervisor is not None
    naps: list[float] = []
    action = SupervisorAction(target, target.supervisor, sleep=naps.append, clock=lambda: sum(naps))
    slow, message = SlowToStop(states=states), RecordedOutput()
    vars(action)["_supervisord"] = lambda: slow
    with suppress(ActionError):
        action.perform("m", message, intended=action.find_instances())
    assert slow.starts == starts
    assert message == ["stop", *["start"] * starts]


def test_it_is_asked_by_tcp_with_a_password(running: Running, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "wrong").write_text("wrong\n")
    url = f"http://127.0.0.1:{running.port}"

    def action(name: str) -> SupervisorAction:
        settings = {"url": url, "username": "u", "password_file": tmp_path / name}
        content = {"program": "steady", **settings}
        target = Target.model_validate({"run": "demo", "worker": "w", "supervisor": content})
        assert target.supervisor is not None
        return SupervisorAction(target, target.supervisor)

    assert action("password").find_instances() == running.action("steady").find_instances()
    for name, message in (("wrong", "401"), ("absent", "cannot read")):
        with pytest.raises(ActionError, match=message) as raised:
            action(name).find_instances()
        assert SECRET not in str(raised.value)


def test_a_pipe_in_place_of_the_password_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    content = {"program": "steady", "username": "u", "password_file": pipe}
    target = Target.model_validate({"run": "demo", "worker": "w", "supervisor": content})
    assert target.supervisor is not None
    action = SupervisorAction(target, target.supervisor)
    try:
        with pytest.raises(ActionError, match="pipe: not a regular file"):
            run_with_timeout(PATIENCE, action.find_instances)
    finally:  # a thread that waits for a writer would keep the tests from ending
        with suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


def test_what_cannot_be_asked_or_is_not_there_is_not_acted_upon(
    running: Running, tmp_path: Path
) -> None:
    with pytest.raises(ActionError, match="BAD_NAME"):
        running.action("nobody").find_instances()
    with pytest.raises(ActionError, match="cannot query supervisord"):
        running.action("steady", socket=tmp_path / "no").find_instances()


def test_the_stop_of_something_protected_is_refused(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "trainwarden_remediator.actions.termination.PROTECTED", frozenset({"sleep"})
    )
    message, before = RecordedOutput(), running.info("steady").pid
    with pytest.raises(ActionError, match="refused: sleep"):
        running.action("steady").perform("m", message)
    assert (message, running.info("steady").pid) == ([], before)


ANSWER: Mapping[str, Any] = {
    "name": "a",
    "group": "a",
    "statename": "RUNNING",
    "spawnerr": "",
    "start": 90,
    "stop": 80,
    "now": 100,
    "pid": 7,
}


@pytest.mark.parametrize(
    ("changes", "running", "stopped", "blocker"),
    [
        ({}, True, False, ""),
        ({"statename": "STOPPING"}, True, False, "being stopped"),
        ({"statename": "STOPPED", "pid": 0}, False, True, "stopped on request"),
        ({"statename": "EXITED", "stop": 98}, False, False, "has just ended"),
        ({"statename": "EXITED", "stop": 97}, False, False, ""),
        ({"statename": "FATAL"}, False, False, ""),
        ({"statename": "BACKOFF"}, False, False, "already starting"),
        ({"statename": "UNKNOWN"}, False, False, "does not know"),
    ],
)
def test_each_state_says_what_may_be_done(
    changes: Mapping[str, Any], *, running: bool, stopped: bool, blocker: str
) -> None:
    found = managed_instance("a", parse_program({**ANSWER, **changes}))
    assert (found.running, found.stopped) == (running, stopped)
    assert blocker in found.blocker
    assert bool(found.blocker) is bool(blocker)


@pytest.mark.parametrize("answer", [None, [], {}, {**ANSWER, "statename": "NEW"}, "text"])
def test_what_is_no_program_is_no_answer(answer: object) -> None:
    with pytest.raises(SupervisordError):
        parse_program(answer)
