"""`trainwarden stop` ends the runs of a name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tests.waiting import until

from running_runs import Runs, is_alive
from trainwarden import cli
from trainwarden.autopsy import announced
from trainwarden.commands import status
from trainwarden.commands.stop import DISMISSED
from trainwarden.run.announcement import end_of, running_pid
from trainwarden.run.claim import next_name
from trainwarden.run.policy import failed_at_once
from trainwarden.run.process_tree import find_processes
from trainwarden.stack import load_script
from trainwarden_exporter.processes.announcement_files import read_announcements


@pytest.mark.parametrize("command", ["stop", "attach", "autopsy"])
def test_a_misspelt_run_is_answered_with_the_meant_one(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    runs.piped("false", options=("--name", "plain")).communicate()
    assert cli.main([command, "plian"]) == 1
    assert "; did you mean plain?" in capsys.readouterr().err


def test_a_run_is_stopped_with_all_its_workers(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    process = runs.piped("sleep", "1000")
    pid = runs.wait_until(state="running")["pid"]
    assert cli.main(["stop", "r", "--worker", "other"]) == 1
    assert "no run named r/other is running; running: r/trainer" in capsys.readouterr().err
    assert cli.main(["stop", "q"]) == 1
    assert "no run named q is running; running: r/trainer" in capsys.readouterr().err
    assert cli.main(["stop", "r", "--worker=trianer"]) == 1
    assert "; did you mean r/trainer?" in capsys.readouterr().err
    assert is_alive(pid)
    assert cli.main(["stop", "r"]) == 0
    assert capsys.readouterr().out == "r/trainer: stopped\n"
    process.communicate()
    assert runs.announced()["state"] == "stopped"
    assert cli.main(["stop", "r"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("trainwarden stop: r/trainer is stopped, since ")
    typed = f"cd {Path.cwd()} && trainwarden run --name r --detach -- sleep 1000"
    assert error.endswith(f"; `{typed}` starts it again\n")


def test_a_run_that_has_failed_is_dismissed_once(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    runs.piped("false").communicate()
    assert runs.announced()["state"] == "failed"
    assert cli.main(["stop", "r"]) == 0
    assert capsys.readouterr().out == f"r/trainer: had failed; {DISMISSED}\n"
    announced = runs.announced()
    assert (announced["state"], announced["exit_status"]) == ("stopped", 1 << 8)
    assert cli.main(["stop", "r"]) == 1
    assert "trainwarden stop: r/trainer has failed, since " in capsys.readouterr().err


def test_what_lives_of_a_run_whose_programs_were_all_killed_is_named(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the ranks of a launcher, in sessions of their own."""
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    process = runs.piped("sh", "-c", "setsid sleep 1000 & setsid sleep 1001 & wait")
    announced = runs.wait_until(state="running")
    until(lambda: len(find_processes(-1, announced["run_id"])) == 3)
    family = dict(find_processes(-1, announced["run_id"]))
    ranks = sorted(family.keys() - {announced["pid"]})
    parent = int(Path(f"/proc/{announced['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in (announced["wrapper_pid"], parent, announced["pid"]):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not running_pid(runs.folder / "runs.d" / "r@trainer.json"))
    try:
        assert cli.main(["stop", "r"]) == 1
        printed = capsys.readouterr().out
        assert f"; {DISMISSED}; of an earlier attempt" in printed
        assert printed.endswith(f"`kill {ranks[0]} {ranks[1]}` ends what is left\n")
        assert all(map(is_alive, ranks)), "stop ends none of them"
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_a_command_that_does_not_exist_was_never_started(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    runs.piped("./nosuch").communicate()
    assert cli.main(["stop", "r"]) == 1
    error = "trainwarden stop: r/trainer has not started: No such file or directory\n"
    assert capsys.readouterr().err == error


def test_several_runs_are_stopped_at_once_or_none(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    runs.piped("false", options=("--name", "failed")).communicate()
    runs.piped("true", options=("--name", "over")).communicate()
    process = runs.piped("sleep", "1000")
    pid = runs.wait_until(state="running")["pid"]

    assert cli.main(["stop", "failed", "r", "q"]) == 1
    assert "no run named q is running" in capsys.readouterr().err
    assert is_alive(pid)

    assert cli.main(["stop", "failed", "over", "r"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, third) == (f"failed/trainer: had failed; {DISMISSED}", "r/trainer: stopped")
    assert second == f"over/trainer: had finished; {DISMISSED}"
    process.communicate()


def test_a_run_that_has_finished_is_dismissed_and_remains_finished(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    """What is still shown about it ends; a new start gets another name, as of a finished run."""
    runs.piped("true").communicate()
    assert runs.announced()["state"] == "finished"
    assert cli.main(["stop", "r"]) == 0
    assert capsys.readouterr().out == f"r/trainer: had finished; {DISMISSED}\n"
    assert runs.announced()["state"] == "stopped"
    read = read_announcements(runs.folder / "runs.d", time.time())
    assert (read.workers, len(read.stopped), len(read.problems)) == ({}, 1, 0)
    assert cli.main(["stop", "r"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("trainwarden stop: r/trainer has finished, since ")
    assert error.endswith(" -- true` starts it again\n")
    assert next_name(runs.folder / "runs.d", "r") == "r-2"
    (found,) = announced.read_announced(runs.folder / "logs", runs.folder / "runs.d", running_pid)
    assert found.state == "finished"


def test_the_runs_that_go_on_are_listed_where_no_stack_watches_them(
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """None is stopped: not by `stop` without a name, and not by `down`."""
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.setattr(status, "USUAL", "http://127.0.0.1:1")
    runs.piped("false", options=("--name", "failed")).communicate()
    assert cli.main(["stop"]) == 2
    assert capsys.readouterr().out == "no run of `trainwarden run` goes on\n"
    assert cli.main(["down"]) == 0
    assert capsys.readouterr().out == "no stack runs\n"

    process = runs.piped("sleep", "1000")
    pid = runs.wait_until(state="running")["pid"]
    line = f"  trainwarden stop r             (trainer, in {Path.cwd()})\n"
    assert cli.main(["stop"]) == 2
    assert capsys.readouterr().out == f"none is stopped without its name; these go on:\n{line}"
    assert cli.main(["status"]) == 3
    printed = capsys.readouterr().err
    assert printed.endswith(f"; these runs go on:\n{line}")
    assert cli.main(["down"]) == 0
    last = "your runs go on; to end each: `trainwarden stop r`\n"
    assert capsys.readouterr().out == f"no stack runs\n{last}"
    with load_script("claims").claimed(tmp_path / "stacks" / "demo"):
        assert cli.main(["down", "--folder", str(tmp_path / "other")]) == 0
        last = "your runs go on; to end each: `trainwarden stop r`"
        assert capsys.readouterr().out.splitlines()[-1] == last
    assert is_alive(pid)
    assert cli.main(["stop", "r"]) == 0
    process.communicate()


@pytest.mark.parametrize("name", ["*", "../r", "r@x"])
def test_a_name_that_is_none_stops_no_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stop", name]) == 1
    assert "a name has" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[" * 100_000, '{"pid": Infinity, "start_ticks": 1}', "[]"])
def test_a_damaged_announcement_names_no_running_process(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r@trainer.json"
    path.write_text(content)
    assert running_pid(path) == 0


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("exit 2", "stopped"),
        ("echo step 3; exit 2", "failed"),
        ("kill -9 $$", "failed"),
    ],
)
def test_who_sees_a_command_fail_at_once_in_the_terminal_is_not_called(
    runs: Runs, script: str, state: str
) -> None:
    """Its announcement keeps the end it had. After a step, or a kill, somebody is called."""
    session = runs.in_terminal("sh", "-c", script)
    session.wait()
    announced = runs.announced()
    assert (announced["state"], end_of(announced)) == (state, "failed")
    assert b"nobody starts it again" in session.output


@pytest.mark.parametrize("options", [("--detach",), ("--restart", "on-failure")])
def test_what_fails_at_once_and_is_started_again_remains_failed(
    runs: Runs, options: tuple[str, ...]
) -> None:
    runs.in_terminal("sh", "-c", "exit 2", options=("--name", "r", *options))
    assert "dismissed" not in runs.wait_until(state="failed")


def test_only_the_first_seconds_of_a_run_are_watched() -> None:
    assert failed_at_once(9.9, 2 << 8, b"usage: train.py")
    assert not failed_at_once(10.0, 2 << 8, b"usage: train.py")
