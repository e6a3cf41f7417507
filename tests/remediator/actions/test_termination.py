from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tests.remediator.process_yard import (
    PARENT,
    SLEEP,
    TERM_EXITS,
    TERM_IGNORED,
    Steps,
    Yard,
    alive,
    stop,
)
from tests.waiting import until

from trainwarden_exporter.processes.matching import ProcessTree, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import Process, read_process, read_processes
from trainwarden_remediator.actions import termination
from trainwarden_remediator.actions.termination import protection_reason, terminate
from trainwarden_remediator.exceptions import ActionError


def test_what_honours_sigterm_is_not_killed(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    assert stop(yard.tree(), grace=60) == ()
    assert old.wait(60) == 3


def test_what_ignores_sigterm_is_killed_after_its_grace(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    begun = time.monotonic()
    assert stop(yard.tree(), grace=0.3) == (old.pid,)
    assert 0.3 <= time.monotonic() - begun < 60
    assert old.wait(60) == -signal.SIGKILL


def test_a_checkpoint_being_written_is_finished_within_the_grace(yard: Yard) -> None:
    file = yard.folder / "checkpoint"
    program = f"""
import signal, sys, time, pathlib
def save(*_):
    time.sleep(0.4)
    pathlib.Path({str(file)!r}).write_text("whole")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
{SLEEP}
"""
    yard.run(program)
    assert stop(yard.tree(), grace=60) == ()
    assert file.read_text() == "whole"


@pytest.mark.parametrize("own_session", [False, True])
def test_the_whole_tree_is_ended_also_what_outlives_its_parent(
    yard: Yard, *, own_session: bool
) -> None:
    parent, child = yard.run_tree(own_session=own_session)
    assert stop(yard.tree(), grace=60) == ()
    assert not alive(parent.pid)
    assert not alive(child)


def test_a_stubborn_grandchild_is_killed(yard: Yard) -> None:
    parent, child = yard.run_tree(TERM_IGNORED, own_session=True)
    assert stop(yard.tree(), grace=0.5) == (child,)
    assert not alive(parent.pid)
    assert not alive(child)


def test_what_a_stubborn_worker_forks_while_it_is_being_ended_is_killed_too(yard: Yard) -> None:
    program = f"""
import signal, subprocess, sys, time
def fork(*_):
    command = [sys.executable, "-c", {SLEEP!r}]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    print(child.pid, flush=True)
signal.signal(signal.SIGTERM, fork)
{SLEEP}
"""
    old = yard.run(program)
    roots = [root.identity for root in yard.tree().roots]
    killed = terminate(roots, roots, grace=0.5, find_new=yard.action._new_descendants)
    assert old.stdout is not None
    find_new = int(old.stdout.readline())
    assert set(killed) == {old.pid, find_new}
    assert not alive(find_new)


def test_what_another_worker_is_below_a_stubborn_one_is_spared(yard: Yard) -> None:
    selector = Selector.model_validate({"command": "the-other-worker"})
    yard.acting(also={WorkerKey("demo", "other"): selector}, grace=0.3)
    stubborn = PARENT.replace("import subprocess", "import signal, subprocess").replace(
        "print(child", "signal.signal(15, signal.SIG_IGN); print(child"
    )
    command = (sys.executable, "-c", stubborn, yard.mark, f"{SLEEP} # the-other-worker", "n")
    launcher, line = yard.run_command(*command)
    yard.care_for(int(line))
    assert yard.action.perform("7", Steps())["killed"] == [launcher.pid]
    assert alive(int(line))


def test_a_stopped_worker_hears_that_it_is_to_end(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    old.send_signal(signal.SIGSTOP)
    until(lambda: (found := read_process(old.pid)) is not None and found.state == "T")
    assert stop(yard.tree(), grace=60) == ()
    assert old.wait(60) == 3


def test_a_zombie_does_not_hold_things_up(yard: Yard) -> None:
    old = yard.run(SLEEP)
    tree = yard.tree()
    old.kill()
    until(lambda: (found := read_process(old.pid)) is not None and found.state == "Z")
    begun = time.monotonic()
    assert stop(tree, grace=120) == ()
    assert yard.action.find_instances() == []
    assert time.monotonic() - begun < 60


def test_what_is_gone_already_is_no_trouble(yard: Yard) -> None:
    old = yard.run(SLEEP)
    tree = yard.tree()
    old.kill()
    old.wait()
    assert stop(tree, grace=5) == ()
    assert stop(ProcessTree(), grace=5) == ()


def test_a_pid_that_passed_on_to_a_stranger_is_never_signalled(yard: Yard) -> None:
    stranger = yard.run(TERM_EXITS)
    (root,) = yard.tree().roots
    earlier = replace(
        root, identity=root.identity._replace(start_ticks=root.identity.start_ticks - 1)
    )
    assert stop(ProcessTree((earlier,), (earlier,)), grace=0.1) == ()
    assert alive(stranger.pid)


def test_a_process_that_survives_sigkill_is_reported_and_no_replacement_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = yard.run(SLEEP)
    monkeypatch.setattr(termination, "REAP_SECONDS", 0.1)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    yard.acting(grace=0.1)
    with pytest.raises(ActionError, match=rf"\[{old.pid}\] survived SIGKILL"):
        yard.action.perform("7", Steps())
    assert yard.action._children == []


def test_a_process_that_must_not_be_signalled_is_reported_and_no_replacement_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.run(SLEEP)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(ActionError, match="not allowed to signal process"):
        yard.action.perform("7", Steps())
    assert yard.action._children == []


END_A_TREE = """
import os, subprocess, sys
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_remediator.actions.termination import terminate

command = [sys.executable, "-c", sys.argv[1], "mark", sys.argv[2], "y"]
parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
pids = [parent.pid, int(parent.stdout.readline())]
identities = [read_process(pid).identity for pid in pids]
before = os.listdir("/proc/self/fd")
terminate(identities[:1], identities, grace=0.5)
after = os.listdir("/proc/self/fd")
assert after == before, (before, after)
print([read_process(pid) is None or not read_process(pid).alive for pid in pids])
"""
"""In a process of its own, where no other thread opens or closes files meanwhile."""


@pytest.mark.parametrize("below", [SLEEP, TERM_IGNORED])
def test_no_descriptor_is_left_open(below: str) -> None:
    command = [sys.executable, "-c", END_A_TREE, PARENT, below]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[True, True]\n"), done.stderr


# refusing


@pytest.mark.parametrize("name", ["sshd", "prometheus", "prometheus-alertmanager", "supervisord"])
def test_what_keeps_the_host_or_the_watch_alive_is_never_ended(yard: Yard, name: str) -> None:
    shutil.copy(shutil.which("sleep") or "", yard.folder / name)
    program = "import os, sys; print(flush=True); os.execv(sys.argv[1], sys.argv[1:])"
    guard, _ = yard.run_command(sys.executable, "-c", program, yard.folder / name, "30")
    yard.mark = str(yard.folder / name)
    action = yard.acting()
    until(lambda: (found := read_process(guard.pid)) is not None and found.name == name[:15])
    steps = Steps()
    with pytest.raises(ActionError, match=r"refused: .* is protected"):
        action.perform("7", steps)
    assert steps == []
    assert alive(guard.pid)


def test_a_protected_process_below_a_worker_protects_it(yard: Yard) -> None:
    (yard.folder / "sshd").symlink_to(shutil.which("sleep") or "")
    program = f"""
import subprocess, time
child = subprocess.Popen(["{yard.folder}/sshd", "30"])
print(child.pid, flush=True)
time.sleep(30)
"""
    parent, line = yard.run_command(sys.executable, "-c", program, yard.mark)
    yard.care_for(int(line))
    with pytest.raises(ActionError, match=r"sshd .* is protected"):
        yard.action.perform("7", Steps())
    assert alive(parent.pid)


def fake_process(pid: int, parent: int, name: str = "python") -> Process:
    here = read_process(os.getpid())
    assert here is not None
    return replace(here, identity=here.identity._replace(pid=pid), parent_pid=parent, name=name)


def test_what_the_remediator_runs_under_is_never_ended() -> None:
    own = os.getpid()
    table = {
        own: fake_process(own, 10),
        10: fake_process(10, 1, "bash"),
        1: fake_process(1, 0, "tini"),
        20: fake_process(20, 10, "rollout"),
    }
    for pid in (own, 10, 1):
        assert "an ancestor of the remediator" in protection_reason([table[20], table[pid]], table)
    assert protection_reason([table[20]], table) == ""
    assert protection_reason([], {}) == ""


def test_what_really_runs_this_test_is_refused() -> None:
    processes = read_processes()
    assert protection_reason([processes[os.getppid()]], processes)
