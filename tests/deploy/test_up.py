"""What `trainwarden up` runs: the demo, the runs that are announced, or a configuration."""

from __future__ import annotations

import argparse
import os
import pty
from contextlib import suppress
from pathlib import Path

import pytest
from tests.command.conftest import runs

import ports as port_choice
import up
from readiness import PortTakenError
from runfolder import RunFolder
from running_runs import Runs
from stack import PROJECT, StackError
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)

__all__ = ["runs"]


def test_the_demo_does_not_start_unasked_beside_a_run_of_the_users(
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(runs.folder))
    assert up.wants_demo(None, None)
    assert capsys.readouterr().out == ""
    process = runs.piped("sleep", "1000")
    runs.wait_until(state="running")
    assert not up.wants_demo(None, None)
    assert "The stack watches r; `--demo` runs the demo instead." in capsys.readouterr().out
    assert up.wants_demo(True, None)
    process.terminate()
    process.communicate()
    assert up.wants_demo(None, None)
    assert not up.wants_demo(False, None)


def test_up_names_every_run_that_it_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = [
        Announcement(run=run, worker="trainer", pid=7, state=state)
        for run, state in (("failed", "failed"), ("runs", "running"))
    ]
    announced = AnnouncedRuns({one.key: AnnouncedWorker(one, tmp_path / "a", 0) for one in found})
    monkeypatch.setattr(up, "read_announcements", lambda *_: announced)
    assert not up.wants_demo(None, None)
    assert "The stack watches failed, runs;" in capsys.readouterr().out


def test_a_configuration_excludes_the_demo(tmp_path: Path) -> None:
    assert not up.wants_demo(None, tmp_path)
    with pytest.raises(StackError, match="without --config"):
        up.wants_demo(True, tmp_path)


class Attempts:
    """Stands in for the stack: the first `taken` starts find a port taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
        self.any_free: list[bool] = []
        self._taken = taken
        for name in ("find_binaries", "script", "Signals", "check"):
            monkeypatch.setattr(up, name, lambda *_, **__: None)
        monkeypatch.setattr(up, "prepare_announced", self._prepare)
        monkeypatch.setattr(up, "run_stack", self._run)

    def _prepare(self, *_: object, any_free: bool, **__: object) -> None:
        self.any_free.append(any_free)

    def _run(self, *_: object) -> int:
        if len(self.any_free) <= self._taken:
            raise PortTakenError("another program has taken port 10978 of the remediator")
        return 0


def start(folder: Path) -> int:
    options = argparse.Namespace(any_free=False, background=False)
    return up.run_here(folder, None, "act", options, demo=False)


def test_a_mistake_in_the_configuration_is_reported_before_the_start_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = Attempts(monkeypatch, taken=0)

    def refuse(*_: object) -> None:
        raise StackError("remediator.yml:13: notify.receivers[1].ulr: unknown key")

    monkeypatch.setattr(up, "check", refuse)
    with pytest.raises(StackError, match=r"ulr: unknown key\nNothing was started\.$"):
        start(tmp_path / "stack")
    assert (attempts.any_free, capsys.readouterr().out) == ([False], "")
    monkeypatch.setattr(up, "check", lambda *_: None)
    assert start(tmp_path / "stack") == 0
    assert "they are ready in half a minute" in capsys.readouterr().out


def test_a_stack_whose_port_is_taken_meanwhile_starts_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts = Attempts(monkeypatch, taken=1)
    assert start(tmp_path / "stack") == 0
    assert attempts.any_free == [False, True]
    assert "has taken port 10978 of the remediator: starting again" in capsys.readouterr().out


def test_another_stack_that_watches_the_same_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Attempts(monkeypatch, taken=0)
    monkeypatch.setattr(up, "beside", lambda _: [tmp_path / "first one"])
    assert start(tmp_path / "stack") == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"Another stack runs in {tmp_path}/first one: both watch the same runs")
    assert line.endswith(f"`trainwarden down --folder '{tmp_path}/first one'` ends the other.")


def test_a_stack_whose_ports_are_always_taken_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts(monkeypatch, taken=99)
    with pytest.raises(StackError, match="has taken port 10978 of the remediator"):
        start(tmp_path / "stack")
    assert len(attempts.any_free) == up.PORT_ATTEMPTS


@pytest.mark.parametrize("is_found", [True, False])
def test_the_commands_that_it_names_need_an_address_only_where_they_find_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_found: bool,
) -> None:
    ports = {"exporter": 1, "remediator": 2, "prometheus": 3, "alertmanager": 4}
    run = RunFolder(tmp_path, ports, tmp_path / "exporter.yml", tmp_path / "remediator.yml", ())
    monkeypatch.setattr(up, "running_folders", lambda: [tmp_path] * is_found)
    up.announce(run, "act", "Ctrl-C")
    text = capsys.readouterr().out
    for command, more in (
        ("status", "--exporter http://127.0.0.1:1"),
        ("journal", f"--config.file {run.remediator_file}"),
        ("report", f"--config.file {run.remediator_file}"),
    ):
        shown = command if is_found else f"{command} {more}"
        assert f"trainwarden {shown}\n" in text


def test_it_names_the_ports_that_it_has_in_place_of_the_usual_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {"exporter": 1, "remediator": 2, "prometheus": 3, "alertmanager": 4, "inference": 5}
    run = RunFolder(tmp_path, chosen, tmp_path / "exporter.yml", tmp_path / "remediator.yml", ())
    monkeypatch.setattr(port_choice, "_is_free", lambda port: port not in (9090, 8000))
    up.announce(run, "act", "Ctrl-C")
    printed = capsys.readouterr().out
    assert printed.count("is in use") == 1
    assert "  port          9090 (prometheus) is in use: 3 instead\n" in printed
    assert "  from a laptop ssh -L 1:127.0.0.1:1 -L 2:127.0.0.1:2 HOST\n" in printed


def test_it_says_where_it_acts_on_the_runs_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the demo too: the mode is that of the stack, not of a run."""
    parser = argparse.ArgumentParser()
    up.add_arguments(parser)
    assert "also with runs of `trainwarden run` (default: act with the demo" in " ".join(
        parser.format_help().split()
    )
    ports = {"exporter": 1, "remediator": 2, "prometheus": 3, "alertmanager": 4}
    run = RunFolder(tmp_path, ports, tmp_path / "exporter.yml", tmp_path / "remediator.yml", ())
    for mode, words in (("act", "watched and restarted too"), ("observe", "watched too")):
        up.announce(run, mode, "Ctrl-C")
        assert f"Runs that `trainwarden run` starts are {words}," in capsys.readouterr().out


ENDS_BY_CTRL_C = """#!/bin/sh
trap 'sleep 0.5; exit 0' INT
echo is up
while :; do sleep 0.1; done
"""
"""As the stack, it needs a moment to end: make itself fails if its child ends while it handles the
signal."""


def test_make_up_ends_after_ctrl_c_without_an_error_of_make(tmp_path: Path) -> None:
    program = tmp_path / "trainwarden"
    program.write_text(ENDS_BY_CTRL_C)
    program.chmod(0o755)
    pid, terminal = pty.fork()
    if not pid:
        made = ("-o", ".venv/stack.done", f"BIN={tmp_path}")
        os.execvp("make", ["make", "-C", str(PROJECT), *made, "up"])  # noqa: S606 - no shell
    shown = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(terminal, 4096):
            if b"is up" in piece:
                os.write(terminal, b"\x03")
            shown += piece
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"is up" in shown
    assert b"***" not in shown
