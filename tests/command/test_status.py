"""What `trainwarden status` prints of an answer that another program may have given."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import connected

from ports import free_port
from trainwarden import cli
from trainwarden.commands import status as command
from trainwarden.commands.status import describe

SUPERVISORD = """
[supervisord]
{user}
nodaemon=true
logfile={folder}/supervisord.log
pidfile={folder}/supervisord.pid
[program:exporter]
command={exporter}
"""


def exporter_command(folder: Path, port: int) -> list[str]:
    """The exporter as `trainwarden up` starts it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "exporter.yml"
    config.write_text("state_folder: null\n")
    address = f"--web.listen-address=127.0.0.1:{port}"
    module = [sys.executable, "-m", "trainwarden_exporter"]
    return [*module, "run", f"--config.file={config}", address]


@contextmanager
def answering(arguments: list[str], url: str) -> Iterator[None]:
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        try:
            connected(lambda: urllib.request.urlopen(url).close())  # noqa: S310 - of this test
            yield
        finally:
            one.terminate()


@pytest.fixture
def usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The usual address of an exporter, for an account without a stack."""
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "mine"))
    monkeypatch.setattr(command, "USUAL", f"http://127.0.0.1:{free_port()}")
    return command.USUAL


def test_the_stack_of_another_place_is_not_shown_as_ones_own(
    usual: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "other" / "demo"
    port = int(usual.rpartition(":")[2])
    words = {
        "folder": folder,
        "user": "user=root" if os.geteuid() == 0 else "",
        "exporter": " ".join(exporter_command(folder, port)),
    }
    (folder / "supervisord.conf").write_text(SUPERVISORD.format(**words))
    supervisord = Path(sys.executable).with_name("supervisord")
    arguments = [str(supervisord), "-n", "-s", "-c", str(folder / "supervisord.conf")]
    with answering(arguments, usual):
        assert cli.main(["status"]) == 3
        shown = capsys.readouterr()
        assert not shown.out
        address = usual.removeprefix("http://")
        assert shown.err == (
            f"trainwarden status: no stack of yours runs; one in {folder} listens at {address}:"
            f" `trainwarden status --exporter {usual}` shows it\n"
        )
        assert cli.main(["status", "--exporter", usual]) in (0, 1, 2)


def test_an_exporter_that_no_stack_started_is_shown_at_the_usual_address(
    usual: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of a unit, or of a container."""
    port = int(usual.rpartition(":")[2])
    with answering(exporter_command(tmp_path / "unit", port), usual):
        assert cli.main(["status", "--json"]) in (0, 1, 2)
        assert json.loads(capsys.readouterr().out)["host"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a program of another account")
@pytest.mark.parametrize(("uid", "is_shown"), [(1234, False), (123, True)])
def test_what_another_user_has_there_is_not_shown(
    usual: str, capsys: pytest.CaptureFixture[str], *, uid: int, is_shown: bool
) -> None:
    """A uid below 1000 is that of a service, as of the unit of the exporter."""
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    assert python is not None
    serve = [python, "-m", "http.server", "--bind", "127.0.0.1", usual.rpartition(":")[2]]
    switch = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *serve]
    with answering(switch, usual):
        assert cli.main(["status"]) == 3
        error = capsys.readouterr().err
        named = f"no stack of yours runs; one of {uid} listens at "
        assert (named in error) != is_shown


def test_no_line_has_characters_that_move_the_cursor() -> None:
    status = {
        "host": "host",
        "headline": "\x1b[2Jall is well",
        "who_acts": "Nobody",
        "how": "\x1b]52;c;bHM=\x07",
        "first_steps": {"a\nb": "\r"},
        "problems": [],
        "runs": [{"text": "\u202erun"}],
        "remediator": None,
    }
    lines = describe(status, every=True)
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)


def test_alerts_that_read_alike_are_one_line() -> None:
    """TrainingPersonNotReached fires for each receiver that is not reached."""
    alert = {
        "alert": "TrainingPersonNotReached",
        "run": "",
        "worker": "",
        "who_acts": "You, now",
        "handling": "the remediator takes no action on it",
    }
    remediator = {"holds": [], "firing": [alert, dict(alert)], "actions": []}
    status = {
        "host": "host",
        "headline": "",
        "who_acts": "",
        "how": "",
        "first_steps": {},
        "problems": [],
        "runs": [],
        "remediator": remediator,
    }
    lines = list(describe(status, every=True))
    assert sum("TrainingPersonNotReached" in line for line in lines) == 1
