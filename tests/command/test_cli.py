"""The command `trainwarden`: its subcommands, its help, its exit statuses."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden import cli
from trainwarden.commands import COMMANDS, doors

STATUS = {
    "mode": "act",
    "verdict": "no open alerts",
    "alerts": [],
    "actions": [{"run": "demo", "worker": "rollout-1", "doing": "restart", "outcome": "healed"}],
}


@pytest.fixture
def remediator() -> Iterator[str]:
    """The address of a server that answers as the remediator's status page does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/status.json" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(STATUS).encode())

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_help_lists_every_subcommand_and_the_exit_statuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert "exit status:" in text
    for name in (*COMMANDS, *doors.DOORS):
        assert f"\n    {name}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_subcommand_has_examples_and_exit_statuses(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert f"trainwarden {name}" in text.partition("examples:")[2]
    assert "exit status" in text


@pytest.mark.parametrize("name", doors.DOORS)
def test_a_subcommand_of_a_program_is_passed_on_under_the_name_of_the_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: trainwarden {name} ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["status", "--frobnicate"],
        ["run", "--memory-limit", "64", "--", "true"],
        ["run", "--age-limit", "soon", "--", "true"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)


def test_a_folder_is_checked_file_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    (tmp_path / "remediator.yml").write_text("frobnicate: 1\n")
    assert cli.main(["check", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert f"{tmp_path}/exporter.yml: ok" in printed.out
    assert f"{tmp_path}/remediator.yml:1" in printed.err


def test_a_folder_without_configuration_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(tmp_path)]) == 1
    assert "has neither exporter.yml nor remediator.yml" in capsys.readouterr().err


def test_status_shows_what_the_remediator_reports(
    remediator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "--remediator", remediator]) == 0
    text = capsys.readouterr().out
    assert "remediator (act mode): no open alerts" in text
    assert "demo/rollout-1: restart; healed" in text
    assert cli.main(["status", "--remediator", remediator, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == STATUS


def test_status_without_a_remediator_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--remediator", "http://127.0.0.1:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trainwarden status: http://127.0.0.1:1/status.json: ")


def test_the_package_imports_nothing() -> None:
    """A training script imports it."""
    program = (
        "import sys; before = set(sys.modules); import trainwarden;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["trainwarden"]
