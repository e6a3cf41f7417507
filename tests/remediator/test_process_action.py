from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import (
    ROLLOUT,
    SLEEP,
    TERM_EXITS,
    TERM_IGNORED,
    Steps,
    Yard,
    alive,
    until,
)

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.driver import Sight as DriverSight
from trainwarden_exporter.gpu.reading import GpuKey, GpuReading, ListedProcess, Memory
from trainwarden_exporter.gpu.view import GpuView
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.procfs import (
    read_environment,
    read_process,
)
from trainwarden_remediator import ending
from trainwarden_remediator.actions import gpumemory, process
from trainwarden_remediator.actions.base import Standing
from trainwarden_remediator.actions.starting import MARK, PASSED_ON, start
from trainwarden_remediator.exceptions import ActionError, JournalError
from trainwarden_remediator.means.process import ProcessTarget

# restarting


def test_a_worker_is_ended_and_started_anew(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    steps = Steps()
    facts = yard.action.perform("7", steps)
    assert old.wait(1) == 3
    (root,) = yard.tree().roots
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": [root.pid]}
    assert steps == [
        ("stop", {"processes": [old.pid]}),
        ("start", {"command": [sys.executable, "-c", SLEEP, yard.mark]}),
    ]
    assert root.pid != old.pid


def test_a_worker_that_does_not_run_is_started(yard: Yard) -> None:
    facts = yard.action.perform("7", Steps())
    assert [root.pid for root in yard.tree().roots] == facts["processes"]


def test_each_step_is_announced_before_it_is_taken(yard: Yard) -> None:
    old = yard.run(SLEEP)
    seen: list[tuple[str, bool, int]] = []

    def announce(step: str, **_: Any) -> None:
        seen.append((step, alive(old.pid), len(yard.action._children)))

    yard.action.perform("7", announce)
    assert seen == [("stop", True, 0), ("start", False, 0)]


def test_a_stop_that_cannot_be_announced_does_not_take_place(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def announce(step: str, **_: Any) -> None:
        raise JournalError(f"disk full: {step}")

    with pytest.raises(JournalError, match="disk full: stop"):
        yard.action.perform("7", announce)
    assert alive(old.pid)
    assert yard.action._children == []


def test_what_was_ended_is_started_also_when_that_cannot_be_announced(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def announce(step: str, **_: Any) -> None:
        if step == "start":
            raise JournalError("disk full")

    (started,) = yard.action.perform("7", announce)["processes"]
    assert not alive(old.pid)
    assert alive(started)


def test_what_has_started_since_it_was_looked_at_is_left_alone(yard: Yard) -> None:
    meant = yard.action.processes()
    assert meant == []
    newcomer = yard.run(SLEEP)
    facts = yard.action.perform("7", Steps(), meant=meant)
    assert facts == {"killed": [], "started_by": "another", "processes": [newcomer.pid]}
    assert alive(newcomer.pid)


def test_bystanders_with_similar_command_lines_are_left_alone(yard: Yard) -> None:
    old = yard.run(SLEEP)
    namesakes = [yard.run(SLEEP, mark=f"yard-{uuid.uuid4().hex}") for _ in range(3)]
    yard.action.perform("7", Steps())
    assert not alive(old.pid)
    assert all(alive(namesake.pid) for namesake in namesakes)


def test_what_belongs_to_another_worker_below_is_left_alone(yard: Yard) -> None:
    selector = Selector.model_validate({"command": "the-other-worker"})
    yard.acting(also={WorkerKey("demo", "other"): selector})
    parent, child = yard.run_tree(f"{SLEEP} # the-other-worker")
    # its command line holds the child's program too, so the first worker is the one counted for it
    assert child not in [process.pid for process in yard.tree().members]
    yard.action.perform("7", Steps())
    assert not alive(parent.pid)
    assert alive(child)


def test_nothing_is_started_beside_what_somebody_else_started_first(yard: Yard) -> None:
    steps = Steps()
    quicker = yard.run(SLEEP)
    facts = yard.action.finish("7", steps)
    assert facts == {"started_by": "another", "processes": [quicker.pid]}
    assert steps == []


def test_what_the_selector_does_not_find_is_not_started_again_and_again(yard: Yard) -> None:
    unseen = [sys.executable, "-c", SLEEP, "without-the-mark"]
    yard.acting(start=unseen)
    (pid,) = yard.action.perform("7", Steps())["processes"]
    with pytest.raises(ActionError, match=rf"\[{pid}\] was started before"):
        yard.action.perform("8", Steps())
    assert len(yard.action._children) == 1


# what outlives its root


def orphaned(yard: Yard) -> int:
    """What stood below a root that was killed, and lives on."""
    root, below = yard.run_tree(own_session=True)
    yard.look()
    root.kill()
    root.wait()
    assert alive(below)
    return below


def test_what_outlives_its_root_is_ended_with_it(yard: Yard) -> None:
    below = orphaned(yard)
    assert yard.tree().members == ()
    assert [identity.pid for identity in yard.action.processes()] == [below]
    steps = Steps()
    facts = yard.action.perform("7", steps, meant=yard.action.processes())
    assert not alive(below)
    assert steps[0] == ("stop", {"processes": [below]})
    assert [root.pid for root in yard.tree().roots] == facts["processes"]


def test_it_is_ended_also_where_the_worker_was_started_anew_already(yard: Yard) -> None:
    below = orphaned(yard)
    again = yard.run(SLEEP)
    yard.look()
    yard.action.perform("7", Steps(), meant=yard.action.processes())
    assert not alive(below)
    assert not alive(again.pid)


def test_what_was_never_seen_below_it_is_no_part_of_it(yard: Yard) -> None:
    root, below = yard.run_tree(own_session=True)
    root.kill()
    root.wait()
    yard.look()
    yard.action.perform("7", Steps())
    assert alive(below)


def test_what_outlives_its_root_is_left_alone_unless_it_was_meant(yard: Yard) -> None:
    below = orphaned(yard)
    yard.action.perform("7", Steps(), meant=[])
    assert alive(below)


def test_what_has_become_another_workers_is_left_alone(yard: Yard) -> None:
    selector = Selector.model_validate({"command": "the-other-worker"})
    yard.acting(also={WorkerKey("demo", "other"): selector})
    parent, child = yard.run_tree(f"{SLEEP} # the-other-worker", own_session=True)
    both = [found for pid in (parent.pid, child) if (found := read_process(pid)) is not None]
    members = frozenset(one.identity for one in both)
    yard.kin._kin = {ROLLOUT: {both[0].identity: members}}
    parent.kill()
    parent.wait()
    assert yard.action.processes() == []
    assert alive(child)


# what it held

SERVER = """
import os, socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
if "forks" in sys.argv and os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"])
print(listening.getsockname()[1], flush=True)
time.sleep(60)
"""
"""Listens, and with `forks` leaves a child with the socket, as an API server does its workers."""


def test_a_port_that_a_survivor_holds_is_free_before_anything_is_started(yard: Yard) -> None:
    # the child must keep the socket over exec
    program = SERVER.replace('if "forks"', 'listening.set_inheritable(True)\nif "forks"')
    command = [sys.executable, "-c", program, yard.mark]
    server, line = yard.run_command(*command, "0", "forks")
    port = int(line)
    yard.acting(start=[*command, str(port)])
    yard.look()
    members = {process.pid for process in yard.tree().members}
    server.kill()
    server.wait()
    (below,) = members - {server.pid}
    yard.care_for(below)
    assert reachable(port)
    (started,) = yard.action.perform("7", Steps())["processes"]
    assert not alive(below)
    until(lambda: reachable(port))
    assert alive(started)


def reachable(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_that_something_else_takes_is_told_and_nothing_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, line = yard.run_command(sys.executable, "-c", SERVER, yard.mark, "0")
    yard.acting(port_free_within=0.2)
    strangers = []

    def end_and_be_quicker(*values: Any, **settings: Any) -> Any:
        killed = ending.end(*values, **settings)
        command = (sys.executable, "-c", SERVER, "no-worker", line.strip())
        strangers.append(yard.run_command(*command)[0])
        return killed

    monkeypatch.setattr(process, "end", end_and_be_quicker)
    steps = Steps()
    with pytest.raises(ActionError, match=f"it has ended, and port {line.strip()} is not free"):
        yard.action.perform("7", steps)
    assert [step for step, _ in steps] == ["stop"]
    assert alive(strangers[0].pid)


def test_a_port_that_another_restarter_was_quicker_to_serve_is_no_failure(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-c", SERVER, yard.mark)
    _, line = yard.run_command(*command, "0")
    yard.acting(port_free_within=0.1)
    quicker = []

    def end_and_be_quicker(*values: Any, **settings: Any) -> Any:
        killed = ending.end(*values, **settings)
        quicker.append(yard.run_command(*command, line.strip())[0])
        return killed

    monkeypatch.setattr(process, "end", end_and_be_quicker)
    facts = yard.action.perform("7", Steps())
    assert (facts["started_by"], facts["processes"]) == ("another", [quicker[0].pid])


GPU = GpuKey("0", "GPU-simulated")
GIB = 1 << 30
HOLDS_GPU = f"import sys; held = open(sys.argv[2]); {SLEEP}"


class Gpu:
    """A GPU on which one process holds 10 GiB, and gives them back some looks after its end."""

    def __init__(self, pid: int, late: int) -> None:
        self.pid = pid
        self.late = late
        self.looks = 0
        self.hangs = False

    def look(self, _: ExporterConfig) -> GpuView:
        self.looks += 1
        if self.hangs:
            raise CollectError("the driver is gone")
        held = alive(self.pid)
        used = 10 * GIB if held or self.looks < self.late else 0
        rows = (ListedProcess(self.pid, 10 * GIB),) if held else ()
        memory = Memory(80 * GIB, used, 80 * GIB - used)
        reading = GpuReading(GPU, memory=memory, processes=rows)
        return GpuView(DriverSight("ok", gpus=(reading,)))


def on_gpu(yard: Yard, monkeypatch: pytest.MonkeyPatch, *, late: int = 0, **changes: Any) -> Gpu:
    monkeypatch.setattr(gpumemory, "LOOK_SECONDS", 0.01)
    (yard.folder / "dev").mkdir()
    device = yard.folder / "dev" / "nvidia0"
    device.touch()
    old, _ = yard.run_command(sys.executable, "-c", HOLDS_GPU, yard.mark, device)
    gpu = Gpu(old.pid, late)
    yard.acting(look=gpu.look, **changes)
    return gpu


def test_gpu_memory_is_back_before_anything_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = on_gpu(yard, monkeypatch, late=7)
    at: list[tuple[str, int]] = []
    facts = yard.action.perform("7", lambda step, **_: at.append((step, gpu.looks)))
    assert at == [("stop", 0), ("start", 7)]
    assert "late" not in facts


def test_memory_that_stays_away_is_told_and_what_was_ended_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(yard, monkeypatch, late=sys.maxsize, memory_back_within=0.1)
    facts = yard.action.perform("7", Steps())
    assert facts["late"] == "10.0 GiB on GPU 0"
    assert alive(*facts["processes"])


def test_a_driver_that_cannot_be_asked_is_not_waited_for(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = on_gpu(yard, monkeypatch)
    gpu.hangs = True
    facts = yard.action.perform("7", Steps())
    assert gpu.looks == 1
    assert alive(*facts["processes"])


def test_the_driver_is_not_asked_about_what_holds_no_gpu(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = on_gpu(yard, monkeypatch)
    os.kill(gpu.pid, signal.SIGKILL)
    until(lambda: not alive(gpu.pid))
    yard.run(SLEEP)
    yard.action.perform("7", Steps())
    assert gpu.looks == 0


# a checkpoint that is being written


def test_what_saves_is_not_killed_before_it_has_saved(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    yard.acting(grace=0.1)
    seen: list[bool] = []

    def saving() -> bool:
        seen.append(alive(old.pid))
        return len(seen) < 3

    steps = Steps()
    facts = yard.action.perform("7", steps, saving=saving)
    assert seen == [True, True, True]
    assert facts["killed"] == [old.pid]
    assert [step for step, _ in steps] == ["stop", "spare", "start"]


def test_what_ends_once_it_has_saved_is_not_killed_at_all(yard: Yard) -> None:
    end = "lambda *_: (time.sleep(1), sys.exit(3))"
    saves = f"import signal, sys, time; signal.signal(15, {end}); {SLEEP}"
    old = yard.run(saves)
    yard.acting(grace=0.1)
    facts = yard.action.perform("7", Steps(), saving=lambda: True)
    assert facts["killed"] == []
    assert old.wait(1) == 3


def test_it_is_killed_when_it_has_saved_for_too_long(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    yard.acting(grace=0.1, save_patience=0.3)
    began = time.monotonic()
    facts = yard.action.perform("7", Steps(), saving=lambda: True)
    assert 0.4 <= time.monotonic() - began < 5
    assert facts["killed"] == [old.pid]


def test_a_spared_worker_that_cannot_be_written_down_is_spared_all_the_same(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    yard.acting(grace=0.1, save_patience=0.3)

    def announce(step: str, **_: Any) -> None:
        if step == "spare":
            raise JournalError("disk full")

    assert yard.action.perform("7", announce, saving=lambda: True)["killed"] == [old.pid]


# starting


def test_what_is_started_stands_on_its_own(yard: Yard) -> None:
    (pid,) = yard.action.perform("7", Steps())["processes"]
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    assert Path(f"/proc/{pid}/fd/1").readlink() == Path("/dev/null")
    assert Path(f"/proc/{pid}/cwd").readlink() == yard.folder


STARTER = """
import signal, sys
for number in signal.SIGHUP, signal.SIGINT:  # whoever runs the tests may ignore them
    signal.signal(number, signal.SIG_DFL)
from trainwarden_remediator.actions.starting import start
from trainwarden_remediator.means.process import ProcessTarget
child = start(ProcessTarget(start=sys.argv[1:]), "demo/rollout-0/7")
print(child.pid, flush=True)
import time; time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_what_is_started_survives_the_end_of_its_starter(
    yard: Yard, number: signal.Signals
) -> None:
    worker = [sys.executable, "-c", SLEEP, "survivor"]
    starter, line = yard.run_command(sys.executable, "-c", STARTER, *worker)
    pid = int(line)
    yard.care_for(pid)
    starter.send_signal(number)
    starter.wait(10)
    until(lambda: (found := read_process(pid)) is not None and found.parent_pid != starter.pid)
    assert alive(pid)


def output_of(yard: Yard, process: ProcessTarget) -> str:
    child = start(process, "demo/rollout-0/7")
    yard.action._children.append(child)
    assert child.wait(10) == 0
    return process.log.read_text() if process.log else ""


def test_output_is_appended_to_the_log_whose_folder_is_made(yard: Yard) -> None:
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    target = yard.target(start=[sys.executable, "-c", program], log="logs/deep/worker.log")
    assert output_of(yard, yard.process(target)) == "out\nerr\n"
    assert output_of(yard, yard.process(target)) == "out\nerr\nout\nerr\n"
    assert yard.process(target).log == yard.folder / "logs/deep/worker.log"


SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def test_only_what_is_allowed_is_passed_on(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv(MARK, "999")
    target = yard.target(
        start=[sys.executable, "-E", "-c", SHOW],
        log="log",
        environment={"CUDA_VISIBLE_DEVICES": "0", "TZ": "CET", "$(id)": "`id`"},
    )
    shown = json.loads(output_of(yard, yard.process(target)))
    own = {
        "CUDA_VISIBLE_DEVICES": "0",
        "TZ": "CET",
        "$(id)": "`id`",
        MARK: "demo/rollout-0/7",
        "LC_TIME": "C",
    }
    assert {name: shown.get(name) for name in own} == own
    allowed = {*PASSED_ON, *own, "LC_CTYPE"}
    assert {name for name in shown if not name.startswith("LC_")} <= allowed


def test_no_shell_reads_the_command(yard: Yard) -> None:
    program = "import sys; print(sys.argv[1:])"
    hostile = ["$(touch x)", "; touch x", "a b", "*", "`id`"]
    target = yard.target(start=[sys.executable, "-c", program, *hostile], log="log")
    assert output_of(yard, yard.process(target)) == f"{hostile}\n"
    assert not (yard.folder / "x").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": ["/no/such/program"]}, "/no/such/program"),
        ({"start": ["no-such-program-at-all"]}, "no-such-program-at-all"),
        ({"cwd": "nowhere"}, "nowhere"),
        ({"log": "file/log"}, "cannot start"),
        ({"log": "."}, "cannot start"),
        ({"user": "nobody-of-that-name"}, "no user nobody-of-that-name"),
    ],
)
def test_what_cannot_be_started_is_told(yard: Yard, changes: dict[str, Any], said: str) -> None:
    (yard.folder / "file").touch()
    yard.acting(**changes)
    with pytest.raises(ActionError, match=said):
        yard.action.perform("7", Steps())
    assert yard.action._children == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start something as somebody else")
def test_a_worker_is_started_as_the_user_given(yard: Yard) -> None:
    program = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME'])"
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python that every user may run")
    log = yard.folder / "log"
    target = yard.target(start=[python, "-c", program], user="nobody", log=log, cwd="/")
    uid, gid = output_of(yard, yard.process(target)).split()[:2]
    assert int(uid) != 0
    assert int(gid) != 0
    assert "/nonexistent" in log.read_text()


def test_nobody_else_than_root_starts_as_another_user(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ActionError, match="not permitted"):
        start(yard.process(yard.target(user="nobody")), "demo/rollout-0/7")


# after a crash


def test_tells_how_a_target_stands(yard: Yard) -> None:
    action = yard.action
    assert action.standing("7", []) is Standing.ENDED
    old = yard.run(SLEEP)
    before = action.processes()
    assert [identity.pid for identity in before] == [old.pid]
    assert action.standing("7", before) is Standing.UNTOUCHED
    old.kill()
    until(lambda: not alive(old.pid))
    assert action.standing("7", before) is Standing.ENDED
    other = yard.run(SLEEP)
    assert action.standing("7", before) is Standing.REPLACED
    other.kill()
    until(lambda: not alive(other.pid))
    (pid,) = action.finish("7", Steps())["processes"]
    until(lambda: action.standing("7", before) is Standing.STARTED)
    assert (read_environment(pid) or {})[MARK] == "7"
    assert action.standing("8", before) is Standing.REPLACED
    assert action.standing("70", before) is Standing.REPLACED


def test_a_target_of_which_a_part_lives_on_has_not_ended(yard: Yard) -> None:
    parent, child = yard.run_tree(own_session=True)
    before = yard.action.processes()
    assert {identity.pid for identity in before} == {parent.pid, child}
    parent.kill()
    parent.wait()
    assert yard.action.standing("7", before) is Standing.UNTOUCHED
    assert alive(child)


def test_what_cannot_be_seen_is_told_as_such(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind() -> None:
        raise CollectError("cannot list /proc: too many open files")

    monkeypatch.setattr(process, "read_processes", blind)
    for question in (yard.action.processes, lambda: yard.action.standing("7", [])):
        with pytest.raises(ActionError, match="too many open files"):
            question()


def test_ended_children_are_collected(yard: Yard) -> None:
    (pid,) = yard.action.perform("7", Steps())["processes"]
    assert yard.action.tidy()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not yard.action.tidy())
    assert read_process(pid) is None
