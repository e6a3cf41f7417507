from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.ended_main_thread import PROGRAM
from tests.remediator.process_yard import SLEEP, TERM_EXITS, TERM_IGNORED, Steps, Yard, alive
from tests.remediator.samples import ROLLOUT, make_worker
from tests.waiting import until

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.driver import DriverReading as DriverSight
from trainwarden_exporter.gpu.model import GpuKey, GpuMemory, GpuReading, ListedProcess
from trainwarden_exporter.gpu.snapshot import GpuSnapshot
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import ProcessTree, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import (
    read_command_line,
    read_environment,
    read_owner,
    read_process,
)
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.actions import (
    gpu_memory,
    process,
    process_count,
    termination,
    worker_processes,
)
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.process_count import selector_problem
from trainwarden_remediator.actions.spawn import (
    ACTION_VARIABLE,
    INHERITED_VARIABLES,
    UNBUFFERED,
    runs_command,
    start_process,
)
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    JournalError,
    ProcessesDifferError,
)
from trainwarden_remediator.observation.model import ExporterState, RunState

# restarting


def test_a_worker_is_ended_and_restarted(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    steps = Steps()
    facts = yard.action.perform("7", steps)
    assert old.wait(60) == 3
    until(lambda: yard.tree().roots)  # its command line is that of the test until it has executed
    (root,) = yard.tree().roots
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": [root.pid]}
    assert steps == [
        ("stop", {"processes": [old.pid]}),
        ("start", {"command": [sys.executable, "-c", SLEEP, yard.mark]}),
    ]
    assert root.pid != old.pid


def test_a_worker_that_does_not_run_is_started(yard: Yard) -> None:
    facts = yard.action.perform("7", Steps())
    until(lambda: [root.pid for root in yard.tree().roots] == facts["processes"])


@pytest.mark.parametrize("runs", [True, False])
def test_a_hold_after_the_decision_is_heeded(yard: Yard, *, runs: bool) -> None:
    own = yard.run(SLEEP) if runs else None
    steps = Steps()

    def confirm() -> None:
        raise ActionDeferredError("held")

    with pytest.raises(ActionDeferredError, match="held"):
        yard.action.perform("7", steps, confirm=confirm)
    assert steps == []
    assert own is None or alive(own.pid)


def test_a_hold_while_the_stop_is_recorded_is_heeded(yard: Yard) -> None:
    own, recorded = yard.run(SLEEP), Steps()

    def confirm() -> None:
        if recorded:
            raise ActionDeferredError("held")

    with pytest.raises(ActionDeferredError, match="held"):
        yard.action.perform("7", recorded, confirm=confirm)
    assert [step for step, _ in recorded] == ["stop"]
    assert alive(own.pid)


def test_each_step_is_announced_before_it_is_taken(yard: Yard) -> None:
    old = yard.run(SLEEP)
    seen: list[tuple[str, bool, int]] = []

    def record_step(step: str, **_: Any) -> None:
        seen.append((step, alive(old.pid), len(yard.action._children)))

    yard.action.perform("7", record_step)
    assert seen == [("stop", True, 0), ("start", False, 0)]


def test_a_stop_that_cannot_be_announced_does_not_take_place(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def record_step(step: str, **_: Any) -> None:
        raise JournalError(f"disk full: {step}")

    with pytest.raises(JournalError, match="disk full: stop"):
        yard.action.perform("7", record_step)
    assert alive(old.pid)
    assert yard.action._children == []


def test_what_was_ended_is_started_also_when_that_cannot_be_announced(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def record_step(step: str, **_: Any) -> None:
        if step == "start":
            raise JournalError("disk full")

    (started,) = yard.action.perform("7", record_step)["processes"]
    assert not alive(old.pid)
    assert alive(started)


def test_what_has_started_since_it_was_looked_at_is_left_alone(yard: Yard) -> None:
    intended = yard.action.find_instances()
    assert intended == []
    newcomer = yard.run(SLEEP)
    facts = yard.action.perform("7", Steps(), intended=intended)
    assert facts == {"killed": [], "started_by": "another", "processes": [newcomer.pid]}
    assert alive(newcomer.pid)


FORKS_LATE = """
import pathlib, subprocess, sys, time
print("up", flush=True)
while not pathlib.Path("fork").exists():
    time.sleep(0.01)
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
print(subprocess.Popen(sleep, start_new_session=True).pid, flush=True)
time.sleep(60)
"""


def test_a_child_that_starts_while_a_save_is_waited_for_is_ended_with_its_root(yard: Yard) -> None:
    old = yard.run(FORKS_LATE)
    children: list[int] = []

    def confirm() -> None:
        if children:
            return
        (yard.folder / "fork").touch()
        assert old.stdout is not None
        children.append(int(old.stdout.readline()))
        yard.care_for(children[0])

    yard.action.perform("7", Steps(), confirm=confirm)
    assert not alive(children[0])


# the remediator's own count


def test_no_process_is_signalled_while_more_match_than_expected(yard: Yard) -> None:
    own, decoy = yard.run(SLEEP), yard.run(SLEEP)
    steps = Steps()
    with pytest.raises(ProcessesDifferError, match=r"2 processes match rollout-0 \(.*1 expected"):
        yard.action.perform("7", steps, intended=yard.action.find_instances())
    assert steps == []
    assert (alive(own.pid), alive(decoy.pid)) == (True, True)


def test_a_match_that_starts_after_the_decision_is_refused(yard: Yard) -> None:
    own = yard.run(SLEEP)
    intended = yard.action.find_instances()
    decoy = yard.run(SLEEP)
    with pytest.raises(ProcessesDifferError, match=f"process {decoy.pid} has started since"):
        yard.action.perform("7", Steps(), intended=intended)
    assert (alive(own.pid), alive(decoy.pid)) == (True, True)


def test_a_match_that_starts_right_before_the_signal_is_refused(yard: Yard) -> None:
    own = yard.run(SLEEP)
    decoys: list[subprocess.Popen[str]] = []
    with pytest.raises(ProcessesDifferError, match="has started since"):
        yard.action.perform(
            "7",
            lambda *_, **__: decoys.append(yard.run(SLEEP)),
            intended=yard.action.find_instances(),
        )
    assert [alive(one.pid) for one in (own, *decoys)] == [True, True]
    assert yard.action._children == []


def test_a_worker_that_has_ended_since_the_decision_is_not_started(yard: Yard) -> None:
    own = yard.run(SLEEP)
    intended = yard.action.find_instances()
    own.kill()
    own.wait()
    with pytest.raises(ProcessesDifferError, match=f"process {own.pid} has ended since"):
        yard.action.perform("7", Steps(), intended=intended)
    assert yard.action._children == []


def test_a_process_of_another_folder_is_refused(yard: Yard, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    yard.acting(cwd=mine)
    stranger = yard.run(SLEEP, folder=other)
    with pytest.raises(ProcessesDifferError, match=f"process {stranger.pid} runs in {other}"):
        yard.action.perform("7", Steps())
    assert alive(stranger.pid)
    assert yard.action._children == []


def test_a_process_that_runs_below_the_folder_belongs_to_it(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outputs := tmp_path / "mine" / "outputs").mkdir(parents=True)
    yard.acting(cwd=tmp_path / "mine")
    monkeypatch.delenv("PWD", raising=False)
    old = yard.run(TERM_EXITS, folder=outputs)
    yard.action.perform("7", Steps())
    assert old.wait(60) == 3


def test_a_process_that_changed_its_folder_is_of_the_folder_it_was_started_in(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "elsewhere"):
        (tmp_path / name).mkdir()
    yard.acting(cwd=tmp_path / "mine")
    monkeypatch.setenv("PWD", str(tmp_path / "mine"))
    old = yard.run(TERM_EXITS, folder=tmp_path / "elsewhere")
    yard.action.perform("7", Steps())
    assert old.wait(60) == 3


def test_a_worker_that_was_restarted_and_changed_its_folder_is_restarted_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "outputs"):
        (yard.folder / name).mkdir()
    program = f"import os; os.chdir('../outputs'); {SLEEP}"
    yard.acting(cwd=yard.folder / "mine", start=[sys.executable, "-c", program, yard.mark])
    monkeypatch.delenv("PWD", raising=False)
    (first,) = yard.action.perform("7", Steps())["processes"]
    until(lambda: Path(f"/proc/{first}/cwd").readlink().name == "outputs")
    (second,) = yard.action.perform("8", Steps())["processes"]
    assert second != first


def test_a_process_whose_folder_cannot_be_read_is_refused(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = yard.run(SLEEP)

    def denied(path: str) -> str:
        if path == f"/proc/{own.pid}/cwd":
            raise PermissionError(errno.EACCES, "Permission denied")
        return os.readlink(path)  # noqa: PTH115 - the function that is replaced

    links = SimpleNamespace(**{**vars(os), "readlink": denied})
    monkeypatch.setattr("trainwarden_exporter.processes.procfs.os", links)
    monkeypatch.delenv("PWD", raising=False)
    with pytest.raises(
        ProcessesDifferError, match=f"folder of process {own.pid} cannot be read: narrow"
    ):
        yard.action.perform("7", Steps())
    assert alive(own.pid)
    assert yard.action._children == []


def test_a_process_that_has_ended_meanwhile_needs_no_proof(yard: Yard) -> None:
    own = yard.run(SLEEP)
    process = read_process(own.pid)
    assert process is not None
    own.kill()
    own.wait()
    trees = {ROLLOUT: ProcessTree((process,), (process,))}
    worker = WorkerConfig(name="rollout-0", match=Selector(command=yard.mark))
    assert selector_problem(trees, {ROLLOUT: worker}, yard.process(yard.target())) == ""


def test_a_process_of_another_account_is_refused(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = yard.run(SLEEP)
    me = os.getpid()
    monkeypatch.setattr(
        process_count, "read_owner", lambda pid: read_owner(me) if pid == me else "alice"
    )
    with pytest.raises(ProcessesDifferError, match=f"process {own.pid} runs as alice, not as"):
        yard.action.perform("7", Steps())
    assert alive(own.pid)
    yard.acting(user="alice")
    yard.action.find_instances()
    assert "exporter" in yard.action.proof_problem(exporter_showing(2, own))
    assert yard.action.proof_problem(exporter_showing(1, own)) == ""


def exporter_showing(processes: int, oldest: subprocess.Popen[str]) -> ExporterState:
    found = read_process(oldest.pid)
    assert found is not None
    worker = make_worker(processes=processes, started_at=start_timestamp(found.identity))
    return ExporterState({ROLLOUT: worker}, GIB, 0)


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        (1, ""),
        (0, "the exporter counts 0 processes of rollout-0, the remediator finds 1"),
        (2, "the exporter counts 2 processes of rollout-0, the remediator finds 1"),
    ],
)
def test_the_exporter_counts_the_same_processes(yard: Yard, shown: int, problem: str) -> None:
    own = yard.run(SLEEP)
    assert problem in yard.action.proof_problem(exporter_showing(shown, own))
    assert bool(yard.action.proof_problem(exporter_showing(shown, own))) == bool(problem)


def test_the_exporter_shows_the_same_start(yard: Yard) -> None:
    own = yard.run(SLEEP)
    worker = make_worker(started_at=time.time() - 60)
    problem = yard.action.proof_problem(ExporterState({ROLLOUT: worker}, GIB, 0))
    assert "the exporter shows a process of rollout-0 that started at" in problem
    assert f"({own.pid})" in problem


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


def test_no_process_is_started_beside_a_running_replacement(yard: Yard) -> None:
    steps = Steps()
    quicker = yard.run(SLEEP)
    facts = yard.action.finish("7", steps)
    assert facts == {"started_by": "another", "processes": [quicker.pid]}
    assert steps == []


def test_what_the_selector_does_not_find_is_not_started_again_and_again(yard: Yard) -> None:
    unseen = [sys.executable, "-c", SLEEP, f"without-{uuid.uuid4().hex}"]
    yard.acting(start=unseen, grace=0.1)
    (pid,) = yard.action.perform("7", Steps())["processes"]
    with pytest.raises(ActionError, match=rf"already started \[{pid}\]"):
        yard.action.perform("8", Steps())
    assert len(yard.action._children) == 1


LAUNCHER = """
import pathlib, subprocess, sys, time
subprocess.call([sys.executable, "-c", sys.argv[1], "".join(sys.argv[2:])])
while not pathlib.Path("clean").exists():
    time.sleep(0.01)
"""


def test_a_launcher_may_clean_up_after_its_worker_was_ended(yard: Yard) -> None:
    # `match` does not find the mark in two parts.
    start = [sys.executable, "-c", LAUNCHER, SLEEP, yard.mark[:9], yard.mark[9:]]
    yard.acting(start=start, grace=60)
    (first,) = yard.action.perform("demo/rollout-0/7/journal", Steps())["processes"]
    until(lambda: yard.tree().roots)
    find, looks = yard.action._find_processes, []

    def look() -> Any:
        found = find()
        looks.append(bool(found.roots))
        if looks.count(False) == 2:
            (yard.folder / "clean").touch()
        return found

    yard.action._find_processes = look
    facts = yard.action.perform("demo/rollout-0/8/journal", Steps())
    assert facts["started_by"] == "trainwarden"
    assert facts["processes"] != [first]
    assert not alive(first)
    until(lambda: yard.tree().roots)
    yard.care_for(yard.tree().roots[0].pid)


def test_nor_after_a_restart_of_the_remediator(yard: Yard) -> None:
    unseen = [sys.executable, "-c", SLEEP, f"without-{uuid.uuid4().hex}"]
    yard.acting(start=unseen, grace=0.1)
    (pid,) = yard.action.perform("demo/rollout-0/7/journal", Steps())["processes"]
    # right after its exec a process shows no command line yet
    until(lambda: "without-" in str(read_command_line(pid)))
    children = yard.action._children
    yard.acting(start=unseen, grace=0.1)  # knows nothing of the first
    with pytest.raises(ActionError, match=rf"already started \[{pid}\]"):
        yard.action.perform("demo/rollout-0/8/journal", Steps())
    assert yard.action._children == []
    yard.action._children = children


def test_nor_a_script_of_the_path_which_shows_its_interpreter_and_folder(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = yard.folder / "mytrain"
    script.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(yard.folder), prepend=os.pathsep)
    start = ["mytrain", f"without-{uuid.uuid4().hex}"]
    yard.acting(start=start, grace=0.1)
    (pid,) = yard.action.perform("demo/rollout-0/7/journal", Steps())["processes"]
    # right after its exec a process shows no command line yet
    until(lambda: "without-" in str(read_command_line(pid)))
    children = yard.action._children
    yard.acting(start=start, grace=0.1)  # after a restart of the remediator
    with pytest.raises(ActionError, match=rf"already started \[{pid}\]"):
        yard.action.perform("demo/rollout-0/8/journal", Steps())
    yard.action._children += children


# what outlives its root


def orphaned(yard: Yard) -> int:
    """What stood below a root that was killed, and lives on."""
    root, below = yard.run_tree(own_session=True)
    yard.observe()
    root.kill()
    root.wait()
    assert alive(below)
    return below


def test_what_outlives_its_root_is_ended_with_it(yard: Yard) -> None:
    below = orphaned(yard)
    assert yard.tree().members == ()
    assert [identity.pid for identity in yard.action.find_instances()] == [below]
    steps = Steps()
    facts = yard.action.perform("7", steps, intended=yard.action.find_instances())
    assert not alive(below)
    assert steps[0] == ("stop", {"processes": [below]})
    until(lambda: [root.pid for root in yard.tree().roots] == facts["processes"])


def test_it_is_ended_also_where_the_worker_was_restarted_already(yard: Yard) -> None:
    below = orphaned(yard)
    again = yard.run(SLEEP)
    yard.observe()
    yard.action.perform("7", Steps(), intended=yard.action.find_instances())
    assert not alive(below)
    assert not alive(again.pid)


def test_what_was_never_seen_below_it_is_no_part_of_it(yard: Yard) -> None:
    root, below = yard.run_tree(own_session=True)
    root.kill()
    root.wait()
    yard.observe()
    yard.action.perform("7", Steps())
    assert alive(below)


def test_what_outlives_its_root_is_left_alone_unless_it_was_meant(yard: Yard) -> None:
    below = orphaned(yard)
    yard.action.perform("7", Steps(), intended=[])
    assert alive(below)


def test_what_has_become_another_workers_is_left_alone(yard: Yard) -> None:
    selector = Selector.model_validate({"command": "the-other-worker"})
    yard.acting(also={WorkerKey("demo", "other"): selector})
    parent, child = yard.run_tree(f"{SLEEP} # the-other-worker", own_session=True)
    both = [found for pid in (parent.pid, child) if (found := read_process(pid)) is not None]
    members = frozenset(one.identity for one in both)
    yard.tracker._descendants = {ROLLOUT: {both[0].identity: members}}
    parent.kill()
    parent.wait()
    assert yard.action.find_instances() == []
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
    yard.observe()
    members = {process.pid for process in yard.tree().members}
    server.kill()
    server.wait()
    (below,) = members - {server.pid}
    yard.care_for(below)
    # with the mark, which it has until its exec, it would be no survivor but a worker
    until(lambda: yard.mark.encode() not in Path(f"/proc/{below}/cmdline").read_bytes())
    assert reachable(port)
    (started,) = yard.action.perform("7", Steps())["processes"]
    assert not alive(below)
    until(lambda: reachable(port))
    assert alive(started)


def reachable(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_that_another_process_takes_is_reported_and_no_process_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, line = yard.run_command(sys.executable, "-c", SERVER, yard.mark, "0")
    yard.acting(port_release_timeout=0.2)
    strangers = []

    def end_and_be_quicker(*values: Any, **settings: Any) -> Any:
        killed = termination.terminate(*values, **settings)
        command = (sys.executable, "-c", SERVER, "no-worker", line.strip())
        strangers.append(yard.run_command(*command)[0])
        return killed

    monkeypatch.setattr(process, "terminate", end_and_be_quicker)
    steps = Steps()
    with pytest.raises(ActionError, match=f"port {line.strip()} is taken"):
        yard.action.perform("7", steps)
    assert [step for step, _ in steps] == ["stop"]
    assert alive(strangers[0].pid)


def test_a_port_that_another_restarter_was_quicker_to_serve_is_no_failure(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (sys.executable, "-c", SERVER, yard.mark)
    _, line = yard.run_command(*command, "0")
    yard.acting(port_release_timeout=0.1)
    quicker = []

    def end_and_be_quicker(*values: Any, **settings: Any) -> Any:
        killed = termination.terminate(*values, **settings)
        quicker.append(yard.run_command(*command, line.strip())[0])
        return killed

    monkeypatch.setattr(process, "terminate", end_and_be_quicker)
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

    def look(self, *_: object) -> GpuSnapshot:
        self.looks += 1
        if self.hangs:
            raise CollectError("the driver is gone")
        held = alive(self.pid)
        used = 10 * GIB if held or self.looks < self.late else 0
        rows = (ListedProcess(self.pid, 10 * GIB),) if held else ()
        memory = GpuMemory(80 * GIB, used, 80 * GIB - used)
        reading = GpuReading(GPU, memory=memory, processes=rows)
        return GpuSnapshot(DriverSight("ok", gpus=(reading,)))


def on_gpu(yard: Yard, monkeypatch: pytest.MonkeyPatch, *, late: int = 0, **changes: Any) -> Gpu:
    monkeypatch.setattr(gpu_memory, "POLL_SECONDS", 0.01)
    (yard.folder / "dev").mkdir()
    device = yard.folder / "dev" / "nvidia0"
    device.touch()
    old, _ = yard.run_command(sys.executable, "-c", HOLDS_GPU, yard.mark, device)
    gpu = Gpu(old.pid, late)
    yard.acting(gpu_reader=gpu.look, **changes)
    return gpu


def test_gpu_memory_is_back_before_anything_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = on_gpu(yard, monkeypatch, late=7)
    at: list[tuple[str, int]] = []
    facts = yard.action.perform("7", lambda step, **_: at.append((step, gpu.looks)))
    assert at == [("stop", 1), ("start", 7)]
    assert "late" not in facts


def test_memory_that_stays_away_is_reported_and_what_was_ended_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu(yard, monkeypatch, late=sys.maxsize, gpu_memory_release_timeout=0.1)
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
    assert [step for step, _ in steps] == ["stop", "kill_deferred", "kill", "start"]


def test_what_ends_once_it_has_saved_is_not_killed_at_all(yard: Yard) -> None:
    end = "lambda *_: (time.sleep(1), sys.exit(3))"
    saves = f"import signal, sys, time; signal.signal(15, {end}); {SLEEP}"
    old = yard.run(saves)
    yard.acting(grace=0.1)
    facts = yard.action.perform("7", Steps(), saving=lambda: True)
    assert facts["killed"] == []
    assert old.wait(60) == 3


def test_it_is_killed_when_it_has_saved_for_too_long(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    yard.acting(grace=0.1, max_save_delay=0.3)
    began = time.monotonic()
    facts = yard.action.perform("7", Steps(), saving=lambda: True)
    assert 0.4 <= time.monotonic() - began < 60
    assert facts["killed"] == [old.pid]


def test_a_spared_worker_that_cannot_be_written_down_is_spared_all_the_same(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    yard.acting(grace=0.1, max_save_delay=0.3)

    def record_step(step: str, **_: Any) -> None:
        if step.startswith("kill"):
            raise JournalError("disk full")

    assert yard.action.perform("7", record_step, saving=lambda: True)["killed"] == [old.pid]


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
for number in signal.SIGHUP, signal.SIGINT:  # the parent of the tests may ignore them
    signal.signal(number, signal.SIG_DFL)
from trainwarden_remediator.actions.spawn import start_process
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
child = start_process(ProcessTarget(start=sys.argv[1:]), "demo/rollout-0/7")
print(child.pid, flush=True)
import time; time.sleep(600)
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
    starter.wait(60)
    until(lambda: (found := read_process(pid)) is not None and found.parent_pid != starter.pid)
    assert alive(pid)


def output_of(yard: Yard, process: ProcessTarget) -> str:
    child = start_process(process, "demo/rollout-0/7")
    yard.action._children.append(child)
    assert child.wait(60) == 0
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
    monkeypatch.setenv(ACTION_VARIABLE, "999")
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
        ACTION_VARIABLE: "demo/rollout-0/7",
        "LC_TIME": "C",
        "PWD": str(yard.folder),
    }
    assert {name: shown.get(name) for name in own} == own
    allowed = {*INHERITED_VARIABLES, *UNBUFFERED, *own, "LC_CTYPE"}
    assert {name for name in shown if not name.startswith("LC_")} <= allowed


RESUME = """
import json, os, sys, time
print(json.dumps([sys.argv[2:], os.environ.get("TRAINWARDEN_CHECKPOINT")]), flush=True)
time.sleep(30)
"""


KEPT = [
    {
        "name": "default",
        "folder": "out",
        "entry": r"step_(?P<step>\d+)",
        "complete": {"marker": ["DONE"]},
    }
]


def exporter_proving(path: str) -> ExporterState:
    runs = {"demo": RunState(proved_checkpoint=path)}
    return ExporterState({ROLLOUT: make_worker(processes=0)}, GIB, 0, runs=runs)


@pytest.mark.parametrize("argument", ["{checkpoint}", "--resume={checkpoint}"])
def test_a_restart_resumes_from_the_newest_proved_checkpoint(yard: Yard, argument: str) -> None:
    command = [sys.executable, "-c", RESUME, yard.mark, argument]
    proved = f"{yard.folder}/out/step_20"
    yard.acting(start=command, log="log", checkpoints=KEPT)
    assert yard.action.proof_problem(exporter_proving(proved)) == ""
    steps = Steps()
    yard.action.perform("7", steps)
    log = yard.folder / "log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    resumed = argument.replace("{checkpoint}", proved)
    assert json.loads(log.read_text()) == [[resumed], proved]
    assert steps[-1][1]["command"][-1] == resumed
    # it is recognised as started, whatever the newest one is by then
    assert runs_command(command, [*command[:-1], resumed])
    assert not runs_command([*command[:-1], "--resume={checkpoint}"], [*command[:-1], "--fresh"])


@pytest.mark.parametrize("path", ["", "/srv/step_20", "{folder}/../step_20"])
def test_no_worker_is_started_with_a_checkpoint_that_is_not_the_run_s(
    yard: Yard, path: str
) -> None:
    yard.acting(start=[sys.executable, "-c", SLEEP, yard.mark, "{checkpoint}"], checkpoints=KEPT)
    yard.action.proof_problem(exporter_proving(path.format(folder=yard.folder)))
    with pytest.raises(ActionError, match="not known"):
        yard.action.perform("7", Steps())
    assert not yard.tree().roots


@pytest.mark.parametrize("wanted", [True, False])
def test_a_damaged_checkpoint_is_set_aside_before_the_start_if_the_target_wants_it(
    yard: Yard, *, wanted: bool
) -> None:
    for step in (10, 20):
        entry = yard.folder / f"out/step_{step}"
        entry.mkdir(parents=True)
        (entry / "DONE").touch()
        os.utime(entry / "DONE", (step, step))
    damaged = yard.folder / "out/step_20"
    command = [sys.executable, "-c", SLEEP, yard.mark]
    yard.acting(start=command, set_damaged_aside=wanted, checkpoints=KEPT)
    shown = exporter_proving(f"{yard.folder}/out/step_10")
    run = replace(shown.runs["demo"], damaged_checkpoints=frozenset({str(damaged)}))
    assert yard.action.proof_problem(replace(shown, runs={"demo": run})) == ""
    steps = Steps()
    yard.action.perform("7", steps)
    assert [step for step, _ in steps] == ["set_aside"] * wanted + ["start"]
    assert damaged.exists() is not wanted


def test_without_a_proved_checkpoint_the_variable_is_not_set(yard: Yard) -> None:
    process = yard.process(yard.target(start=[sys.executable, "-E", "-c", SHOW], log="log"))
    assert "TRAINWARDEN_CHECKPOINT" not in json.loads(output_of(yard, process.with_checkpoint("")))


@pytest.mark.parametrize(("environment", "shown"), [({}, "1"), ({"PYTHONUNBUFFERED": ""}, "")])
def test_output_is_not_held_back_unless_the_target_says_so(
    yard: Yard, environment: dict[str, str], shown: str
) -> None:
    """A log in blocks is late by minutes, and loses its end when the process is killed."""
    target = yard.target(
        start=[sys.executable, "-E", "-c", SHOW], log="log", environment=environment
    )
    assert json.loads(output_of(yard, yard.process(target)))["PYTHONUNBUFFERED"] == shown


def test_no_shell_reads_the_command(yard: Yard) -> None:
    program = "import sys; print(sys.argv[1:])"
    hostile = ["$(touch x)", "; touch x", "a b", "*", "`id`"]
    target = yard.target(start=[sys.executable, "-c", program, *hostile], log="log")
    assert output_of(yard, yard.process(target)) == f"{hostile}\n"
    assert not (yard.folder / "x").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": ["/no/such/program"]}, "/no/such/program"),
        ({"start": ["no-such-program-at-all"]}, "no-such-program-at-all"),
        ({"cwd": "nowhere"}, "nowhere"),
        ({"log": "file/log"}, "cannot start"),
        ({"log": "."}, "cannot start"),
        ({"user": "nobody-of-that-name"}, "no user nobody-of-that-name"),
    ],
)
def test_what_cannot_be_started_is_reported(
    yard: Yard, changes: dict[str, Any], message: str
) -> None:
    (yard.folder / "file").touch()
    yard.acting(**changes)
    with pytest.raises(ActionError, match=message):
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


def test_a_start_as_the_own_account_needs_no_capability() -> None:
    """The shipped unit has neither CAP_SETUID nor CAP_SETGID, and starts systemctl as root."""
    start = (
        "import os, pwd; from pathlib import Path;"
        "from trainwarden_remediator.actions.spawn import start_process;"
        "from trainwarden_remediator.config.restart_methods.process import ProcessTarget;"
        "user = pwd.getpwuid(os.geteuid()).pw_name;"
        "target = ProcessTarget(start=['true'], cwd=Path('/'), user=user);"
        "print('exit status', start_process(target, 'demo/rollout-0/7').wait())"
    )
    command = [sys.executable, "-c", start]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv")
        command = ["setpriv", "--bounding-set=-setuid,-setgid", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout == "exit status 0\n", result.stderr


def test_nobody_else_than_root_starts_as_another_user(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(ActionError, match="not permitted"):
        start_process(yard.process(yard.target(user="nobody")), "demo/rollout-0/7")


# after a crash

TOKEN = uuid.uuid4().hex
"""The processes of other tests carry tokens too."""


def test_tells_how_a_target_stands(yard: Yard) -> None:
    action = yard.action
    assert action.inspect(TOKEN, []) is ActionState.ENDED
    old = yard.run(SLEEP)
    before = action.find_instances()
    assert [identity.pid for identity in before] == [old.pid]
    assert action.inspect(TOKEN, before) is ActionState.UNTOUCHED
    old.kill()
    until(lambda: not alive(old.pid))
    assert action.inspect(TOKEN, before) is ActionState.ENDED
    other = yard.run(SLEEP)
    assert action.inspect(TOKEN, before) is ActionState.REPLACED
    other.kill()
    until(lambda: not alive(other.pid))
    (pid,) = action.finish(TOKEN, Steps())["processes"]
    until(lambda: action.inspect(TOKEN, before) is ActionState.STARTED)
    assert (read_environment(pid) or {})[ACTION_VARIABLE] == TOKEN
    assert action.inspect(f"8{TOKEN}", before) is ActionState.REPLACED
    assert action.inspect(f"{TOKEN}0", before) is ActionState.REPLACED


def test_a_target_with_a_surviving_part_has_not_ended(yard: Yard) -> None:
    parent, child = yard.run_tree(own_session=True)
    before = yard.action.find_instances()
    assert {identity.pid for identity in before} == {parent.pid, child}
    parent.kill()
    parent.wait()
    assert yard.action.inspect(TOKEN, before) is ActionState.UNTOUCHED
    assert alive(child)


def test_what_cannot_be_seen_is_reported_as_such(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind() -> None:
        raise CollectError("cannot list /proc: too many open files")

    monkeypatch.setattr(worker_processes, "read_processes", blind)
    for question in (yard.action.find_instances, lambda: yard.action.inspect(TOKEN, [])):
        with pytest.raises(ActionError, match="too many open files"):
            question()


def test_ended_children_are_collected(yard: Yard) -> None:
    (pid,) = yard.action.perform("7", Steps())["processes"]
    assert yard.action.reap_children()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not yard.action.reap_children())
    assert read_process(pid) is None


# a worker whose main thread has ended


def test_a_worker_that_lives_on_without_its_main_thread_is_ended_before_another_starts(
    yard: Yard,
) -> None:
    old = yard.run(PROGRAM)
    intended = yard.action.find_instances()
    assert [one.pid for one in intended] == [old.pid]
    steps = Steps()
    facts = yard.action.perform("7", steps, intended=intended)
    assert [step for step, _ in steps] == ["stop", "start"]
    assert facts["started_by"] == "trainwarden"
    assert not alive(old.pid)


def test_no_worker_is_started_beside_a_living_thread(yard: Yard) -> None:
    old = yard.run(PROGRAM)
    facts = yard.action.finish(TOKEN, Steps())
    assert facts == {"started_by": "another", "processes": [old.pid]}
