"""A command whose output nobody reads any more, as in `… | head`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden.commands import COMMANDS
from trainwarden_exporter.runtime.closed_output import CLOSED_OUTPUT, quiet_on_closed_output


def run_unread(*argv: str, folder: Path, unbuffered: bool = False) -> tuple[int, str]:
    """Runs a module whose standard output nobody reads; returns exit status and standard error."""
    environment = {name: one for name, one in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    environment["TRAINWARDEN_FOLDER"] = str(folder / "state")
    reader, writer = os.pipe()
    os.close(reader)
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


def test_a_connection_that_breaks_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def ask() -> int:
        raise BrokenPipeError(32, "Broken pipe")

    assert quiet_on_closed_output(ask)() == 1
    assert "Broken pipe" in capsys.readouterr().err
