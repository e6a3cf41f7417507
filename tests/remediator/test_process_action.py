from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.conftest import (
    SLEEP,
    TERM_EXITS,
    Steps,
    Yard,
    alive,
    until,
)

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes import matching
from trainwarden_exporter.processes.matching import Selector, WorkerKey
from trainwarden_exporter.processes.procfs import (
    read_environment,
    read_process,
)
from trainwarden_remediator.actions.base import Standing
from trainwarden_remediator.actions.process import MARK, PASSED_ON, start
from trainwarden_remediator.config import ProcessTarget
from trainwarden_remediator.exceptions import ActionError, JournalError

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


def test_a_stop_that_cannot_be_announced_does_not_take_place(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def announce(step: str, **_: Any) -> None:
        raise JournalError(f"disk full: {step}")

    with pytest.raises(JournalError, match="disk full: stop"):
        yard.action.perform(7, announce)
    assert alive(old.pid)
    assert yard.action._children == []


def test_what_was_ended_is_started_also_when_that_cannot_be_announced(yard: Yard) -> None:
    old = yard.run(SLEEP)

    def announce(step: str, **_: Any) -> None:
        if step == "start":
            raise JournalError("disk full")

    (started,) = yard.action.perform(7, announce)["processes"]
    assert not alive(old.pid)
    assert alive(started)


def test_what_has_started_since_it_was_looked_at_is_left_alone(yard: Yard) -> None:
    meant = yard.action.processes()
    assert meant == []
    newcomer = yard.run(SLEEP)
    facts = yard.action.perform(7, Steps(), meant=meant)
    assert facts == {"killed": [], "started_by": "another", "processes": [newcomer.pid]}
    assert alive(newcomer.pid)


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


def test_what_the_selector_does_not_find_is_not_started_again_and_again(yard: Yard) -> None:
    unseen = [sys.executable, "-c", SLEEP, "without-the-mark"]
    yard.acting(start=unseen)
    (pid,) = yard.action.perform(7, Steps())["processes"]
    with pytest.raises(ActionError, match=rf"\[{pid}\] was started before"):
        yard.action.perform(8, Steps())
    assert len(yard.action._children) == 1


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
        start(yard.target(user="nobody").process, "demo/rollout-0/7")


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
    until(lambda: action.standing(7, before) is Standing.STARTED)
    assert (read_environment(pid) or {})[MARK] == "demo/rollout-0/7"
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
