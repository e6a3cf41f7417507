from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import ROLLOUT

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes import matching
from trainwarden_exporter.processes.matching import Selector, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    Process,
    read_environment,
    read_process,
    read_processes,
)
from trainwarden_remediator import ending
from trainwarden_remediator.actions.base import Standing
from trainwarden_remediator.actions.process import MARK, PASSED_ON, ProcessAction, start
from trainwarden_remediator.config import ProcessTarget, Target
from trainwarden_remediator.ending import end, protected
from trainwarden_remediator.exceptions import ActionError

SLEEP = "import time; print('up', flush=True); time.sleep(30)"
TERM_EXITS = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); {SLEEP}"
TERM_IGNORED = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"
PARENT = """
import subprocess, sys, time
command = [sys.executable, "-c", sys.argv[2]]
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=sys.argv[3] == "y")
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(30)
"""


def stop(tree: Tree, *, grace: float) -> tuple[int, ...]:
    roots, members = ([process.identity for process in part] for part in (tree.roots, tree.members))
    return end(roots, members, grace=grace)


class Yard:
    """Starts processes that carry a mark of this test in their command line, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"yard-{uuid.uuid4().hex}"
        self._children: list[subprocess.Popen[str]] = []
        self._strangers: list[int] = []
        self.action = self.acting()

    def run(self, program: str, *arguments: str, mark: str | None = None) -> subprocess.Popen[str]:
        """A python that runs `program`, once it has printed its first line."""
        return self.run_command(sys.executable, "-c", program, mark or self.mark, *arguments)[0]

    def run_command(self, *command: str | Path) -> tuple[subprocess.Popen[str], str]:
        """A process, and the first line it prints."""
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline()

    def run_tree(
        self, below: str = SLEEP, *, own_session: bool = False
    ) -> tuple[subprocess.Popen[str], int]:
        """A parent, and the pid of the child it has started."""
        session = "y" if own_session else "n"
        parent, line = self.run_command(*(sys.executable, "-c", PARENT, self.mark, below, session))
        self.care_for(int(line))
        return parent, int(line)

    def care_for(self, pid: int) -> None:
        """End a process that is no child of the test, too."""
        self._strangers.append(os.pidfd_open(pid))

    def target(self, **process: Any) -> Target:
        command = [sys.executable, "-c", SLEEP, self.mark]
        content = {"start": command, "grace": 5, "cwd": self.folder, **process}
        target = {"run": "demo", "worker": "rollout-0", "process": content}
        return Target.model_validate(target, context={"folder": self.folder})

    def acting(self, *, also: Mapping[WorkerKey, Selector] | None = None, **changes: Any) -> Any:
        selectors = {ROLLOUT: Selector.model_validate({"command": self.mark}), **(also or {})}
        self.action = ProcessAction(self.target(**changes), selectors)
        return self.action

    def tree(self) -> Tree:
        tree: Tree = self.action._tree()
        return tree

    def close(self) -> None:
        for child in (*self._children, *self.action._children):
            child.kill()
            child.wait(10)
            if child.stdout:
                child.stdout.close()
        for pidfd in self._strangers:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.alive


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.005)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()


class Steps(list[tuple[str, dict[str, Any]]]):
    """What was announced."""

    def __call__(self, step: str, **facts: Any) -> None:
        self.append((step, facts))


# restarting


def test_a_worker_is_ended_and_started_anew(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    steps = Steps()
    facts = yard.action.perform(7, steps)
    assert old.wait(1) == 3
    (root,) = yard.tree().roots
    assert facts == {"killed": [], "started_by": "trainwarden", "processes": [root.pid]}
    assert steps == [
        ("stop", {"processes": [old.pid]}),
        ("start", {"command": [sys.executable, "-c", SLEEP, yard.mark]}),
    ]
    assert root.pid != old.pid


def test_a_worker_that_does_not_run_is_started(yard: Yard) -> None:
    facts = yard.action.perform(7, Steps())
    assert [root.pid for root in yard.tree().roots] == facts["processes"]


def test_each_step_is_announced_before_it_is_taken(yard: Yard) -> None:
    old = yard.run(SLEEP)
    seen: list[tuple[str, bool, int]] = []

    def announce(step: str, **_: Any) -> None:
        seen.append((step, alive(old.pid), len(yard.action._children)))

    yard.action.perform(7, announce)
    assert seen == [("stop", True, 0), ("start", False, 0)]


@pytest.mark.parametrize("refused", ["stop", "start"])
def test_a_step_that_cannot_be_announced_is_not_taken(yard: Yard, refused: str) -> None:
    old = yard.run(SLEEP)

    def announce(step: str, **_: Any) -> None:
        if step == refused:
            raise ActionError("disk full")

    with pytest.raises(ActionError, match="disk full"):
        yard.action.perform(7, announce)
    assert alive(old.pid) == (refused == "stop")
    assert yard.action._children == []


def test_bystanders_with_similar_command_lines_are_left_alone(yard: Yard) -> None:
    old = yard.run(SLEEP)
    namesakes = [yard.run(SLEEP, mark=f"yard-{uuid.uuid4().hex}") for _ in range(3)]
    yard.action.perform(7, Steps())
    assert not alive(old.pid)
    assert all(alive(namesake.pid) for namesake in namesakes)


def test_what_belongs_to_another_worker_below_is_left_alone(yard: Yard) -> None:
    selector = Selector.model_validate({"command": "the-other-worker"})
    yard.acting(also={WorkerKey("demo", "other"): selector})
    parent, child = yard.run_tree(f"{SLEEP} # the-other-worker")
    # its command line holds the child's program too, so the first worker is the one counted for it
    assert child not in [process.pid for process in yard.tree().members]
    yard.action.perform(7, Steps())
    assert not alive(parent.pid)
    assert alive(child)


def test_nothing_is_started_beside_what_somebody_else_started_first(yard: Yard) -> None:
    steps = Steps()
    quicker = yard.run(SLEEP)
    facts = yard.action.finish(7, steps)
    assert facts == {"started_by": "another", "processes": [quicker.pid]}
    assert steps == []


# ending


def test_what_honours_sigterm_is_not_killed(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    assert stop(yard.tree(), grace=10) == ()
    assert old.wait(1) == 3


def test_what_ignores_sigterm_is_killed_after_its_grace(yard: Yard) -> None:
    old = yard.run(TERM_IGNORED)
    begun = time.monotonic()
    assert stop(yard.tree(), grace=0.3) == (old.pid,)
    assert 0.3 <= time.monotonic() - begun < 3
    assert old.wait(1) == -signal.SIGKILL


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
    assert stop(yard.tree(), grace=10) == ()
    assert file.read_text() == "whole"


@pytest.mark.parametrize("own_session", [False, True])
def test_the_whole_tree_is_ended_also_what_outlives_its_parent(
    yard: Yard, *, own_session: bool
) -> None:
    parent, child = yard.run_tree(own_session=own_session)
    assert stop(yard.tree(), grace=10) == ()
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
    child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
    print(child.pid, flush=True)
signal.signal(signal.SIGTERM, fork)
{SLEEP}
"""
    old = yard.run(program)
    killed = stop(yard.tree(), grace=0.5)
    assert old.stdout is not None
    late = int(old.stdout.readline())
    assert set(killed) == {old.pid, late}
    assert not alive(late)


def test_a_stopped_worker_hears_that_it_is_to_end(yard: Yard) -> None:
    old = yard.run(TERM_EXITS)
    old.send_signal(signal.SIGSTOP)
    until(lambda: (found := read_process(old.pid)) is not None and found.state == "T")
    assert stop(yard.tree(), grace=10) == ()
    assert old.wait(1) == 3


def test_a_zombie_does_not_hold_things_up(yard: Yard) -> None:
    old = yard.run(SLEEP)
    tree = yard.tree()
    old.kill()
    until(lambda: (found := read_process(old.pid)) is not None and found.state == "Z")
    begun = time.monotonic()
    assert stop(tree, grace=5) == ()
    assert yard.action.processes() == []
    assert time.monotonic() - begun < 2


def test_what_is_gone_already_is_no_trouble(yard: Yard) -> None:
    old = yard.run(SLEEP)
    tree = yard.tree()
    old.kill()
    old.wait()
    assert stop(tree, grace=5) == ()
    assert stop(Tree(), grace=5) == ()


def test_a_pid_that_passed_on_to_a_stranger_is_never_signalled(yard: Yard) -> None:
    stranger = yard.run(TERM_EXITS)
    (root,) = yard.tree().roots
    earlier = replace(
        root, identity=root.identity._replace(start_ticks=root.identity.start_ticks - 1)
    )
    assert stop(Tree((earlier,), (earlier,)), grace=0.1) == ()
    assert alive(stranger.pid)


def test_what_not_even_sigkill_ends_is_told_and_nothing_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = yard.run(SLEEP)
    monkeypatch.setattr(ending, "REAP_SECONDS", 0.1)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: None)
    yard.acting(grace=0.1)
    with pytest.raises(ActionError, match=rf"not even SIGKILL ended \[{old.pid}\]"):
        yard.action.perform(7, Steps())
    assert yard.action._children == []


def test_what_must_not_be_signalled_is_told_and_nothing_is_started(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.run(SLEEP)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(ActionError, match="not allowed to signal process"):
        yard.action.perform(7, Steps())
    assert yard.action._children == []


def test_no_descriptor_is_left_open(yard: Yard) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    yard.run_tree()
    stop(yard.tree(), grace=5)
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 2  # the pipe, and the yard's own


def test_what_the_selector_does_not_find_is_not_started_again_and_again(yard: Yard) -> None:
    unseen = [sys.executable, "-c", SLEEP, "without-the-mark"]
    yard.acting(start=unseen)
    (pid,) = yard.action.perform(7, Steps())["processes"]
    with pytest.raises(ActionError, match=rf"\[{pid}\] was started before"):
        yard.action.perform(8, Steps())
    assert len(yard.action._children) == 1


# refusing


@pytest.mark.parametrize("name", ["sshd", "prometheus", "prometheus-alertmanager", "supervisord"])
def test_what_keeps_the_box_or_the_watch_alive_is_never_ended(yard: Yard, name: str) -> None:
    shutil.copy(shutil.which("sleep") or "", yard.folder / name)
    program = "import os, sys; print(flush=True); os.execv(sys.argv[1], sys.argv[1:])"
    guard, _ = yard.run_command(sys.executable, "-c", program, yard.folder / name, "30")
    action = ProcessAction(
        yard.target(), {ROLLOUT: Selector.model_validate({"command": str(yard.folder / name)})}
    )
    until(lambda: (found := read_process(guard.pid)) is not None and found.name == name[:15])
    steps = Steps()
    with pytest.raises(ActionError, match=r"refused: .* is protected"):
        action.perform(7, steps)
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
        yard.action.perform(7, Steps())
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
        assert "runs under" in protected([table[20], table[pid]], table)
    assert protected([table[20]], table) == ""
    assert protected([], {}) == ""


def test_what_really_runs_this_test_is_refused() -> None:
    processes = read_processes()
    assert protected([processes[os.getppid()]], processes)


# starting


def test_what_is_started_stands_on_its_own(yard: Yard) -> None:
    (pid,) = yard.action.perform(7, Steps())["processes"]
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    assert Path(f"/proc/{pid}/fd/1").readlink() == Path("/dev/null")
    assert Path(f"/proc/{pid}/cwd").readlink() == yard.folder


STARTER = """
import sys
from trainwarden_remediator.actions.process import start
from trainwarden_remediator.config import ProcessTarget
child = start(ProcessTarget(start=sys.argv[1:]), 7)
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
    child = start(process, 7)
    yard.action._children.append(child)
    assert child.wait(10) == 0
    return process.log.read_text() if process.log else ""


def test_output_is_appended_to_the_log_whose_folder_is_made(yard: Yard) -> None:
    program = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    target = yard.target(start=[sys.executable, "-c", program], log="logs/deep/worker.log")
    assert output_of(yard, target.process) == "out\nerr\n"
    assert output_of(yard, target.process) == "out\nerr\nout\nerr\n"
    assert target.process.log == yard.folder / "logs/deep/worker.log"


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
    shown = json.loads(output_of(yard, target.process))
    own = {"CUDA_VISIBLE_DEVICES": "0", "TZ": "CET", "$(id)": "`id`", MARK: "7", "LC_TIME": "C"}
    assert {name: shown.get(name) for name in own} == own
    allowed = {*PASSED_ON, *own, "LC_CTYPE"}
    assert {name for name in shown if not name.startswith("LC_")} <= allowed


def test_no_shell_reads_the_command(yard: Yard) -> None:
    program = "import sys; print(sys.argv[1:])"
    hostile = ["$(touch x)", "; touch x", "a b", "*", "`id`"]
    target = yard.target(start=[sys.executable, "-c", program, *hostile], log="log")
    assert output_of(yard, target.process) == f"{hostile}\n"
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
        yard.action.perform(7, Steps())
    assert yard.action._children == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start something as somebody else")
def test_a_worker_is_started_as_the_user_given(yard: Yard) -> None:
    program = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.environ['HOME'])"
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no python that every user may run")
    log = yard.folder / "log"
    target = yard.target(start=[python, "-c", program], user="nobody", log=log, cwd="/")
    uid, gid = output_of(yard, target.process).split()[:2]
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
        start(yard.target(user="nobody").process, 7)


# after a crash


def test_tells_how_a_target_stands(yard: Yard) -> None:
    action = yard.action
    assert action.standing(7, []) is Standing.ENDED
    old = yard.run(SLEEP)
    before = action.processes()
    assert [identity.pid for identity in before] == [old.pid]
    assert action.standing(7, before) is Standing.UNTOUCHED
    old.kill()
    until(lambda: not alive(old.pid))
    assert action.standing(7, before) is Standing.ENDED
    other = yard.run(SLEEP)
    assert action.standing(7, before) is Standing.REPLACED
    other.kill()
    until(lambda: not alive(other.pid))
    (pid,) = action.finish(7, Steps())["processes"]
    assert (read_environment(pid) or {})[MARK] == "7"
    assert action.standing(7, before) is Standing.STARTED
    assert action.standing(8, before) is Standing.REPLACED
    assert action.standing(70, before) is Standing.REPLACED


def test_a_target_of_which_a_part_lives_on_has_not_ended(yard: Yard) -> None:
    parent, child = yard.run_tree(own_session=True)
    before = yard.action.processes()
    assert {identity.pid for identity in before} == {parent.pid, child}
    parent.kill()
    parent.wait()
    assert yard.action.standing(7, before) is Standing.UNTOUCHED
    assert alive(child)


def test_what_cannot_be_seen_is_told_as_such(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(_: object) -> None:
        raise CollectError("cannot list /proc: too many open files")

    monkeypatch.setattr(matching.Matcher, "find", blind)
    for question in (yard.action.processes, lambda: yard.action.standing(7, [])):
        with pytest.raises(ActionError, match="too many open files"):
            question()


def test_ended_children_are_collected(yard: Yard) -> None:
    (pid,) = yard.action.perform(7, Steps())["processes"]
    assert yard.action.tidy()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not yard.action.tidy())
    assert read_process(pid) is None
