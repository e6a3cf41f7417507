"""A command whose output nobody reads any more, as in `… | head`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainwarden_exporter.__main__ as exporter
import trainwarden_remediator.__main__ as remediator
from trainwarden import cli
from trainwarden.commands import COMMANDS, autopsy
from trainwarden_exporter.discovery import discover_command
from trainwarden_exporter.runtime.closed_output import CLOSED_OUTPUT
from trainwarden_remediator.commands import runbook


def run_unread(*argv: str, folder: Path, unbuffered: bool = False) -> tuple[int, str]:
    """Runs a module whose standard output nobody reads; returns exit status and standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    return run_into(writer, *argv, folder=folder, unbuffered=unbuffered)


def run_into(writer: int, *argv: str, folder: Path, unbuffered: bool = False) -> tuple[int, str]:
    """Runs a module with standard output `writer`, which is closed thereafter."""
    environment = {name: one for name, one in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    environment["TRAINWARDEN_FOLDER"] = str(folder / "state")
    done = subprocess.run(
        [sys.executable, "-m", *argv],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=folder,
        text=True,
        check=False,
        timeout=120,
    )
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        *((name, "--help") for name in (*COMMANDS, "checkpoints", "journal")),
        ("autopsy", "."),
        ("autopsy", "--json", "."),
        ("completion", "bash"),
        ("discover", "."),
        ("runbook", "TrainingStepStalled"),
    ],
)
def test_each_command_ends_quietly_once_nobody_reads_its_output(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    assert run_unread("trainwarden", *arguments, folder=tmp_path) == (CLOSED_OUTPUT, "")


@pytest.mark.parametrize("arguments", [("autopsy", "."), ("runbook", "TrainingStepStalled")])
def test_so_does_a_command_without_a_buffer(arguments: tuple[str, ...], tmp_path: Path) -> None:
    unread = run_unread("trainwarden", *arguments, folder=tmp_path, unbuffered=True)
    assert unread == (CLOSED_OUTPUT, "")


@pytest.mark.parametrize(
    "argv", [("trainwarden_exporter", "discover", "."), ("trainwarden_remediator", "--help")]
)
def test_so_do_the_two_programs(argv: tuple[str, ...], tmp_path: Path) -> None:
    assert run_unread(*argv, folder=tmp_path) == (CLOSED_OUTPUT, "")


@pytest.mark.parametrize(
    "arguments", [("autopsy", "."), ("runbook", "TrainingStepStalled"), ("stop", "nosuch")]
)
def test_an_output_that_is_closed_from_the_start_is_none(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "trainwarden", *arguments],
        stderr=subprocess.PIPE,
        env=os.environ | {"TRAINWARDEN_FOLDER": str(tmp_path / "state")},
        cwd=tmp_path,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert (done.returncode, done.stderr.count("\n")) in ((0, 0), (1, 0), (1, 1))


def test_a_character_that_the_terminal_lacks_is_a_question_mark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwarden", "runbook", "TrainingStepStalled"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        check=True,
        timeout=120,
    )
    assert b"?" in done.stdout
    assert done.stdout.isascii()


def break_connection(*_: object, **__: object) -> int:
    raise BrokenPipeError(32, "Broken pipe")


def test_a_connection_that_breaks_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(discover_command, "discover", break_connection)
    assert exporter.main(["discover", "."]) == 1
    assert capsys.readouterr().err == "trainwarden-exporter: [Errno 32] Broken pipe\n"
    monkeypatch.setattr(runbook, "run", break_connection)
    assert remediator.main(["runbook", "x"]) == 1
    assert capsys.readouterr().err == "[Errno 32] Broken pipe\n"
    monkeypatch.setattr(autopsy, "run", break_connection)
    assert cli.main(["autopsy", "."]) == 1
    assert capsys.readouterr().err == "trainwarden autopsy: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("arguments", [("autopsy", "."), ("runbook", "TrainingStepStalled")])
def test_output_on_a_full_disk_is_an_error(
    arguments: tuple[str, ...], unbuffered: bool, tmp_path: Path
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    status, errors = run_into(
        full, "trainwarden", *arguments, folder=tmp_path, unbuffered=unbuffered
    )
    assert status == 1
    (line,) = errors.splitlines()
    assert "No space left on device" in line
