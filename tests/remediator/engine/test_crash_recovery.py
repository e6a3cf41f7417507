"""The real program, killed at the worst moments and started again on the same journal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remediator.forked_program import ForkedProgram
from tests.remediator.live_host import Box
from tests.remediator.live_night import NightBox
from tests.remediator.samples import TOKEN, delivery
from tests.waiting import until

import ports
from trainwarden_exporter.processes.procfs import read_environment
from trainwarden_remediator.actions.spawn import ACTION_VARIABLE

BEFORE_THE_ACT = """
from trainwarden_remediator.actions.process import ProcessAction
ProcessAction.perform = die
"""
AFTER_THE_FIRST_ANNOUNCEMENT = """
from trainwarden_remediator.actions.child_exits import ChildExits
ChildExits.expect_exit = die
"""
BETWEEN_STOP_AND_START = """
from trainwarden_remediator.actions import process
process.start_process = die
"""
AFTER_STOP_BEFORE_ITS_ANNOUNCEMENT = """
from trainwarden_remediator.actions.process import ProcessAction
ProcessAction.finish = die
"""
BETWEEN_START_AND_RESULT = """
from trainwarden_remediator.journal.journal import Journal
Journal.record_result = die
"""
BETWEEN_RESULT_AND_OUTCOME = """
from trainwarden_remediator.journal.journal import Journal
Journal.record_outcome = die
"""
BEFORE_THE_INTENT = """
from trainwarden_remediator.journal.journal import Journal
Journal.record_intent = die
"""


class Program:
    """Runs `trainwarden-remediator run` on the files of a box."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.port = ports.free_port()
        self._log = box.folder / "remediator.log"
        self._log.touch()
        self._started: list[ForkedProgram] = []

    @property
    def log(self) -> str:
        return self._log.read_text()

    def start(self, patch: str = "", *options: str) -> ForkedProgram:
        """The program, with `patch` applied before it runs, once it is ready or has ended."""
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        arguments = ["run", f"--config.file={self.box.config_file}", listen, *options]
        child = ForkedProgram(arguments, self._log, patch)
        self._started.append(child)
        until(lambda: child.poll() is not None or self.ask("/-/ready") == 200)
        return child

    def ask(self, path: str, body: bytes | None = None, *, timeout: float = 60) -> int:
        """The status that is answered; 0 when nobody does."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=body,
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - our own
                status: int = answer.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0
        return status

    def close(self) -> None:
        for child in self._started:
            child.kill()
            child.wait(60)


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def crash(program: Program, patch: str) -> subprocess.Popen[str]:
    """A worker leaks, the program hears of it and is killed where `patch` says."""
    worker = program.box.start_worker()
    alert = program.box.alert()
    child = program.start(patch)
    assert program.ask("/webhook", delivery(alert)) == 200
    assert child.wait(60) == -signal.SIGKILL
    return worker


def test_killed_before_the_intent_it_acts_once_when_it_is_back(program: Program) -> None:
    worker = crash(program, BEFORE_THE_INTENT)
    assert program.box.journaled() == ["alert"]
    program.start()
    until(lambda: "healed" in program.box.journaled())
    assert worker.wait(60) == -signal.SIGTERM
    assert program.box.journaled() == ["alert", "intent", "stop", "start", "done", "healed"]
    assert len(program.box.workers()) == 1


def test_killed_between_intent_and_action_no_action_was_taken_and_no_incident_is_lost(
    program: Program,
) -> None:
    worker = crash(program, BEFORE_THE_ACT)
    assert program.box.journaled() == ["alert", "intent"]
    assert worker.poll() is None
    program.start()
    until(lambda: "healed" in program.box.journaled())
    assert program.box.journaled() == [
        *["alert", "intent", "interrupted"],
        *["intent", "stop", "start", "done", "healed"],
    ]
    (found,) = (e for e in program.box.events() if e.facts.get("result") == "interrupted")
    assert found.facts["found"] == "untouched"
    assert worker.wait(60) == -signal.SIGTERM
    assert len(program.box.workers()) == 1


def test_killed_between_announcement_and_stop_the_worker_goes_on_until_the_next_attempt(
    program: Program,
) -> None:
    worker = crash(program, AFTER_THE_FIRST_ANNOUNCEMENT)
    program.start()
    until(lambda: "interrupted" in program.box.journaled())
    until(lambda: program.box.events()[-1].facts.get("reason") == "cooldown")
    assert program.box.journaled() == ["alert", "intent", "stop", "interrupted"]
    assert [identity.pid for identity in program.box.workers()] == [worker.pid]


@pytest.mark.parametrize(
    "patch",
    [BETWEEN_STOP_AND_START, AFTER_STOP_BEFORE_ITS_ANNOUNCEMENT],
    ids=["start announced", "start not announced"],
)
def test_killed_between_stop_and_start_the_start_is_made_up_for(
    program: Program, patch: str
) -> None:
    worker = crash(program, patch)
    assert worker.wait(60) == -signal.SIGTERM
    assert program.box.workers() == []
    program.start()
    until(lambda: "done" in program.box.journaled())
    until(lambda: len(program.box.workers()) == 1)
    assert program.box.journaled().count("intent") == program.box.journaled().count("done") == 1


def test_the_start_that_is_made_up_for_resumes_from_the_proved_checkpoint(
    program: Program,
) -> None:
    box = program.box
    proved = box.folder / "out" / "step_20"
    box.checkpoints = [
        {
            "name": "default",
            "folder": "out",
            "entry": r"step_(?P<step>\d+)",
            "complete": {"marker": ["DONE"]},
        }
    ]
    box.proved = str(proved)
    box.match(box.mark)
    box.reload_exporter()
    start = [*box.command, "--resume={checkpoint}"]
    process = {"start": start, "grace": "2s", "log": "worker.log"}
    box.configure(targets=[{"run": "demo", "worker": "rollout-0", "process": process}])
    crash(program, AFTER_STOP_BEFORE_ITS_ANNOUNCEMENT)
    assert box.workers() == []
    box.blind = True
    program.start()
    time.sleep(1)
    box.blind = False
    until(lambda: "done" in box.journaled())
    (worker,) = box.workers()
    assert f"--resume={proved}" in Path(f"/proc/{worker.pid}/cmdline").read_text().split("\0")


def test_killed_between_start_and_result_no_action_is_repeated(program: Program) -> None:
    crash(program, BETWEEN_START_AND_RESULT)
    (started,) = program.box.workers()
    program.start()
    until(lambda: "healed" in program.box.journaled())
    assert program.box.journaled() == ["alert", "intent", "stop", "start", "done", "healed"]
    (result,) = (e for e in program.box.events() if e.kind == "result")
    assert result.facts["settled"] == "started"
    assert program.box.workers() == [started]


def test_killed_between_result_and_outcome_the_outcome_is_found_out(program: Program) -> None:
    crash(program, BETWEEN_RESULT_AND_OUTCOME)
    (started,) = program.box.workers()
    program.box.blind = True
    program.start()
    assert program.box.journaled()[-1] == "done"
    program.box.blind = False
    until(lambda: "healed" in program.box.journaled())
    assert program.box.workers() == [started]


# ladders


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Program]:
    """A dead inference server, and a trainer that waits for it."""
    box = NightBox(tmp_path)
    program = Program(box)
    yield program
    program.close()
    box.close()


def climb(night: Program, patch: str) -> NightBox:
    """The server is dead; then its alert is over, and the program is killed where `patch` says."""
    box = night.box
    assert isinstance(box, NightBox)
    box.start_trainer()
    alert = box.alert(ago=20)
    child = night.start(patch)
    assert night.ask("/webhook", delivery(alert)) == 200
    until(lambda: "healed" in box.journaled() or child.poll() is not None)
    box.known = {}
    if child.poll() is None:
        night.ask("/webhook", delivery({**alert, "status": "resolved"}))
    if patch:
        assert child.wait(60) == -signal.SIGKILL
    return box


RESTART = ["intent", "stop", "start", "done", "healed"]
FIRST_RUNG = ["alert", "intent", "start", "done", "healed"]


def journaled(box: Box) -> list[str]:
    return [word for word in box.journaled() if word != "resolved"]


def is_over(box: Box) -> bool:
    reasons = [event.facts.get("reason") for event in box.events()]
    return "resolved" in reasons or "ladder_exhausted" in reasons


def test_a_ladder_is_climbed_to_its_end(night: Program) -> None:
    box = climb(night, "")
    (old,) = box.trainers()
    until(lambda: is_over(box))
    assert journaled(box) == [*FIRST_RUNG, *RESTART]
    assert [event.worker for event in box.events() if event.kind == "outcome"] == [
        "rollout-0",
        "trainer",
    ]
    (resumed,) = box.trainers()
    assert resumed != old
    assert not any("remark" in event.facts for event in box.events())


AT_THE_SECOND = """
from trainwarden_remediator.journal import journal
from trainwarden_remediator.actions import process, termination

def at_the_second(owner, name):
    real, calls = getattr(owner, name), []
    def wrapped(*values, **facts):
        calls.append(1)
        return die() if len(calls) == 2 else real(*values, **facts)
    setattr(owner, name, wrapped)

at_the_second({owner}, "{name}")
"""

KILLED_AT = {
    "before the intent": ("journal.Journal", "record_intent", [*FIRST_RUNG, *RESTART], 1),
    "before the act": (
        "process.ProcessAction",
        "perform",
        [*FIRST_RUNG, "intent", "interrupted", *RESTART],
        1,
    ),
    # it was announced, and may have been done: the snapshot decides, and it is never done twice
    "before SIGTERM": (
        "termination",
        "_send",
        [*FIRST_RUNG, "intent", "stop", "interrupted"],
        0,
    ),
    "before the start": (
        "process",
        "start_process",
        [*FIRST_RUNG, "intent", "stop", "start", *["start", "done", "healed"]],
        1,
    ),
    "before the result": ("journal.Journal", "record_result", [*FIRST_RUNG, *RESTART], 1),
    "before the outcome": ("journal.Journal", "record_outcome", [*FIRST_RUNG, *RESTART], 1),
}


@pytest.mark.parametrize("moment", KILLED_AT)
def test_killed_on_its_second_rung_a_ladder_is_gone_on_with_and_no_rung_repeated(
    night: Program, moment: str
) -> None:
    owner, name, expected, restarted = KILLED_AT[moment]
    # of the first rung there is nothing to end: only the second is the second call there
    nth = AT_THE_SECOND.replace("== 2", "== 1") if name == "_send" else AT_THE_SECOND
    box = climb(night, nth.format(owner=owner, name=name))
    began = len(box.events())
    night.start()
    until(lambda: is_over(box))
    assert journaled(box) == expected, box.events()[began:]
    assert len(box.trainers()) == 1
    marked = [one for one in box.trainers() if ACTION_VARIABLE in (read_environment(one.pid) or {})]
    assert len(marked) == restarted
    gave_up = [e for e in box.events() if e.facts.get("reason") == "ladder_exhausted"]
    assert len(gave_up) == 1 - restarted


def test_killed_at_any_moment_no_rung_is_taken_twice_and_the_ladder_comes_to_its_end(
    night: Program,
) -> None:
    box = night.box
    assert isinstance(box, NightBox)
    box.start_trainer()
    alert, chance = box.alert(ago=20), random.Random(7)  # noqa: S311 - the same moments each time
    kills = 0
    while True:
        child = night.start()
        assert night.ask("/webhook", delivery(alert)) == 200
        # more time with each kill, because how far a start comes in a second is up to the machine
        deadline = time.monotonic() + chance.uniform(0, 1.2 + kills / 20)
        while time.monotonic() < deadline and not is_over(box):
            time.sleep(0.002)
        if "healed" in box.journaled():
            alert, box.known = {**alert, "status": "resolved"}, {}
        if is_over(box):
            break
        os.kill(child.pid, signal.SIGKILL)
        child.wait(60)
        kills += 1
        assert kills < 60
    assert kills > 0
    for rung in (0, 1):
        actions = {e.action for e in box.events() if e.facts.get("rung") == rung}
        touched = {e.action for e in box.events() if e.kind in ("stop", "start")}
        assert len(actions & touched) <= 1, box.journaled()
    assert len(box.trainers()) == 1
    assert len(box.workers()) == 1


def test_what_somebody_started_while_it_was_away_is_left_alone(program: Program) -> None:
    crash(program, BETWEEN_STOP_AND_START)
    helped = program.box.start_worker()
    program.start()
    until(lambda: "interrupted" in program.box.journaled())
    assert [identity.pid for identity in program.box.workers()] == [helped.pid]


def test_its_end_does_not_end_what_it_has_started(program: Program) -> None:
    program.box.start_worker()
    child = program.start()
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    until(lambda: "healed" in program.box.journaled())
    (started,) = program.box.workers()
    child.terminate()
    assert child.wait(60) == 0
    assert program.box.workers() == [started]
    assert "Traceback" not in program.log


def test_asked_to_stop_during_an_action_it_leaves_what_its_successor_needs(
    program: Program,
) -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); " + program.box.command[2]
    program.box.command[2] = stubborn
    program.box.start_worker()
    child = program.start()
    assert program.ask("/webhook", delivery(program.box.alert())) == 200
    until(lambda: "stop" in program.box.journaled())
    child.terminate()
    assert child.wait(60) == 0
    program.start()
    until(lambda: "done" in program.box.journaled() or "interrupted" in program.box.journaled())
    until(lambda: len(program.box.workers()) == 1)
    assert program.box.journaled().count("intent") == 1


def test_a_second_one_on_the_same_journal_is_refused_in_one_line(program: Program) -> None:
    program.start()
    before = program.log
    options = [f"--config.file={program.box.config_file}", "--web.listen-address=127.0.0.1:0"]
    other = subprocess.run(
        [sys.executable, "-m", "trainwarden_remediator", "run", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert other.returncode == 1
    (line,) = other.stderr.splitlines()
    assert line.endswith("state/journal.db: another remediator is using it")
    assert program.log == before
    assert program.ask("/-/ready") == 200


def test_hang_up_reloads_and_a_stopped_program_is_not_ready(program: Program) -> None:
    child = program.start()
    program.box.configure(mode="observe")
    child.send_signal(signal.SIGHUP)
    until(lambda: "msg=reloaded" in program.log)
    program.box.config_file.write_text("mode: perhaps\n")
    child.send_signal(signal.SIGHUP)
    until(lambda: 'msg="reload failed"' in program.log)
    assert program.ask("/-/ready") == 200
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 0


def test_budgets_hold_through_a_crash_loop(program: Program) -> None:
    # what the program starts carries its mark; to go on leaking, the worker must hide it
    hide = (
        "import os, sys; os.environ.pop('TRAINWARDEN_ACTION', 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    hiding = [sys.executable, "-c", hide]
    process = {"start": [*hiding, *program.box.command[1:]], "grace": "1s"}
    target = {"run": "demo", "worker": "rollout-0", "process": process}
    target |= {"cooldown": "1h", "attempts_window": "6h"}
    program.box.configure(targets=[target])
    program.box.start_worker()
    alert = program.box.alert()
    for _ in range(4):
        child = program.start()
        assert program.ask("/webhook", delivery(alert)) == 200
        until(lambda: "done" in program.box.journaled())
        time.sleep(0.1)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(60)
    assert program.box.journaled().count("intent") == 1
    assert len(program.box.workers()) == 1


def test_the_journal_lies_where_the_file_says_and_nobody_else_may_read_its_lock(
    program: Program,
) -> None:
    program.start()
    state = Path(program.box.folder / "state")
    assert (state / "journal.db").is_file()
    assert (state / "journal.db.lock").stat().st_mode & 0o077 == 0
