"""The command `trainwarden`: its subcommands, its help, its exit statuses."""

from __future__ import annotations

import copy
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from trainwarden import cli
from trainwarden.commands import COMMANDS, forwarded, status
from trainwarden.stack import load_script
from trainwarden_exporter.config_file.types import NAME_RULE
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU

STATUS: dict[str, Any] = {
    "host": "box-3",
    "seen_at": 1_800_000_000.0,
    "tone": "good",
    "headline": "All is well: demo trains, step 216.",
    "who_acts": "Nobody needs to",
    "how": "",
    "first_steps": {},
    "problems": [],
    "runs": [{"run": "demo", "text": "demo trains, step 216"}],
    "remediator": {
        "mode": "act",
        "holds": [],
        "firing": [],
        "actions": [
            {"run": "demo", "worker": "rollout-1", "action": "restart", "outcome": "healed"}
        ],
    },
}
ALERT = {
    "alert": "TrainingOomKill",
    "run": "",
    "worker": "",
    "who_acts": "You, now",
    "handling": "the remediator takes no action on it",
}


@pytest.fixture
def shown() -> dict[str, Any]:
    """What the exporter answers; a test may change it."""
    return copy.deepcopy(STATUS)


@pytest.fixture
def exporter(shown: dict[str, Any]) -> Iterator[str]:
    """The address of a server that answers as the exporter does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/status.json" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(shown).encode())

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
    for name in (*COMMANDS, *forwarded.FORWARDED):
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


@pytest.mark.parametrize("name", forwarded.FORWARDED)
def test_a_subcommand_of_a_program_is_passed_on_under_the_name_of_the_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: trainwarden {name} ")
    assert f"examples:\n  trainwarden {name}" in text
    assert "exit status:" in text


def test_wrong_usage_of_a_program_names_the_help_of_the_subcommand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["hold", "--config.file=x", "--why", "driver"])
    assert capsys.readouterr().err.endswith("`trainwarden hold --help` has its options\n")


@pytest.mark.parametrize("command", sorted(forwarded.FORWARDED))
def test_what_a_program_prints_names_the_command_as_typed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / "nothing"
    rest = {
        "discover": [str(nothing)],
        "runbook": ["Nothing"],
        "approve": [f"--config.file={nothing}", "1"],
    }
    typed = [command, *rest.get(command, [f"--config.file={nothing}"])]
    assert cli.main(typed) in (1, 2)
    assert capsys.readouterr().err.startswith(f"trainwarden {command}: ")
    with pytest.raises(SystemExit, match="2"):
        cli.main([*typed, "--frobnicate"])
    printed = capsys.readouterr().err
    assert printed.startswith(f"usage: trainwarden {command} ")
    assert f"\ntrainwarden {command}: error: unrecognized arguments: --frobnicate\n" in printed


def test_the_files_that_discover_proposes_name_the_command_as_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["discover", str(tmp_path), "--output", str(tmp_path / "made")])
    for file in map(Path, capsys.readouterr().out.splitlines()):
        assert file.read_text().startswith("# Proposed by `trainwarden discover` for this host.")


def test_the_file_of_the_running_stack_is_used_where_the_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.chdir(tmp_path)
    claims, runfolder = load_script("claims"), load_script("runfolder")
    assert cli.main(["journal"]) == 1
    nothing = (
        "Trainwarden does not run here: `trainwarden up` starts it, or name a file: --config.file"
    )
    assert capsys.readouterr().err == f"trainwarden journal: {nothing} FILE\n"
    with ExitStack() as running:
        for name in ("run-announced", "run-other-123456"):
            folder = tmp_path / "stacks" / name
            running.enter_context(claims.claimed(folder))
            (folder / runfolder.REMEDIATOR_LINK).write_text(str(folder / "their.yml"))
            if name == "run-announced":
                assert cli.main(["journal"]) == 1
                assert "run-announced/their.yml: No such file" in capsys.readouterr().err
        assert cli.main(["journal"]) == 1
        assert "several stacks run; choose one:" in capsys.readouterr().err
        (tmp_path / "remediator.yml").write_text("insecure: sure\n")
        assert cli.main(["journal"]) == 1
        assert "several stacks run; choose one:" in capsys.readouterr().err
    assert cli.main(["journal"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"trainwarden journal: uses {tmp_path / 'remediator.yml'}\n")
    assert "remediator.yml:1: insecure" in error
    (tmp_path / "remediator.yml").unlink()
    left = f"  --config.file {tmp_path / 'stacks' / 'run-announced' / 'their.yml'}\n"
    for command, is_named in (("report", True), ("resume", False)):
        assert cli.main([command]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"trainwarden {command}: {nothing}")
        assert (left in error) == is_named


def test_the_file_of_the_running_stack_is_preferred_to_that_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.chdir(tmp_path)
    here, its = tmp_path / "remediator.yml", tmp_path / "its.yml"
    here.write_text("here: 1\n")
    claims, folder = load_script("claims"), tmp_path / "stacks" / "run-announced"
    its.write_text("its: 1\n")
    with claims.claimed(folder):
        link = folder / load_script("runfolder").REMEDIATOR_LINK
        for used in (its, here):
            link.write_text(str(used))
            assert cli.main(["hold"]) == 1
            error = capsys.readouterr().err
            assert f"{used}:1: " in error
            assert (f"uses {its}, of the stack that runs, and not {here}" in error) == (used is its)


@pytest.mark.parametrize(("what", "mode"), [("", 0o777), ("remediator.yml", 0o602)])
def test_a_file_in_the_folder_that_others_can_write_is_used_only_where_it_is_named(
    what: str,
    mode: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "remediator.yml").write_text("insecure: sure\n")
    (folder / what).chmod(mode)
    assert cli.main(["hold"]) == 1
    assert f"other accounts can write {folder / what}".rstrip("/") in capsys.readouterr().err
    assert cli.main(["hold", "--config.file=remediator.yml"]) == 1
    assert "remediator.yml:1: insecure" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["journal", "--config.file=x", "-n", "many"], "'many': expected a number"),
        (["stop", "a", "--grace", "inf"], "'inf': expected a number of seconds up to 3600"),
        (["stop", "a", "--grace", "nan"], "'nan': expected a number of seconds up to 3600"),
        (["stop", "a", "--grace", "long"], "'long': expected a number of seconds up to 3600"),
        (["report", "--config.file=x", "newest"], "'newest': expected a number, as in `journal`"),
    ],
)
def test_a_number_that_is_none_is_named(
    typed: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed)
    assert message in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the number of no account")
@pytest.mark.parametrize("typed", [["run", "--", "true"], ["stop", "a"], ["attach", "a"]])
def test_an_account_without_a_home_learns_what_to_set(typed: list[str]) -> None:
    without_account = "import os, sys; from trainwarden import cli; os.setresuid(4_000_000, 0, 0)"
    homes = ("HOME", "XDG_STATE_HOME", "TRAINWARDEN_FOLDER")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{without_account}; sys.exit(cli.main({typed}))",
        ],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in homes},
        timeout=60,
        check=False,
    )
    message = "this account has no home: set HOME or TRAINWARDEN_FOLDER"
    assert (done.returncode, done.stderr) == (1, f"trainwarden {typed[0]}: {message}\n")


def test_a_folder_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", "/proc/nowhere")
    assert cli.main(["run", "--", "true"]) == 1
    assert capsys.readouterr().err == "trainwarden run: /proc/nowhere: No such file or directory\n"


@pytest.mark.parametrize("typed", [["run"], ["run", "--", "true"], ["discover", "."]])
def test_a_working_folder_that_was_removed_is_named(
    typed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "state"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(typed) == 1
    message = "the working folder was removed: `cd` into another"
    assert capsys.readouterr().err == f"trainwarden {typed[0]}: {message}\n"


def test_a_mistyped_subcommand_is_answered_with_a_similar_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["stauts"])
    assert "no command has the name stauts; did you mean `status`?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["frobnicate"])
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["run", "--memory-limt", "1GiB", "--", "true"], "--memory-limit"),
        (["run", "--memory=1GiB", "--", "true"], "--memory-limit"),
        (["run", "--detatch", "-name", "--", "true"], "--detach --name"),
        (["run", "--checkpoint", "out", "--", "true"], "--checkpoints"),
        (["status", "--jsno"], "--json"),
        (["up", "--no-dmeo"], "--no-demo"),
        (["preflight", "--gpu.memroy-free", "1GiB"], "--gpu.memory-free"),
        (["hold", "--config.file=x", "--fro", "2h"], "--for"),
    ],
)
def test_a_mistyped_option_is_answered_with_a_similar_one(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed)
    assert f"; did you mean {meant}?\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed", [["journal", "--folow"], ["hold", "--fro", "2h"], ["approve"], ["report", "x"]]
)
def test_a_mistake_in_the_options_is_reported_before_that_no_stack_runs(
    typed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed)
    error = capsys.readouterr().err
    assert f"trainwarden {typed[0]}: error: " in error
    assert "does not run here" not in error


@pytest.mark.parametrize("typed", ["--frobnicate", "-x", "--background-colour"])
def test_an_option_like_no_other_suggests_none(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["up", typed])
    assert capsys.readouterr().err.endswith(f"unrecognized arguments: {typed}\n")


def test_the_runs_of_the_only_stack_are_known_and_errors_name_the_command_as_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.setenv("TRAINWARDEN_FOLDER", str(tmp_path / "tw"))
    claims, folder = load_script("claims"), tmp_path / "stacks" / "demo"
    error = "trainwarden stacks: no run has the name nosuch; runs: "
    assert cli.main(["stacks", "nosuch"]) == 2
    assert capsys.readouterr().err == f"{error}none, `trainwarden run` starts one\n"
    with claims.claimed(folder):
        (folder / "exporter.yml").write_text(
            "runs: [{name: demo, workers: [{name: trainer, match: {command: x}}]}]\n"
        )
        (folder / "remediator.yml").write_text(
            "insecure: true\nexporter: {url: 'http://127.0.0.1:1', config: exporter.yml}\n"
        )
        link = folder / load_script("runfolder").REMEDIATOR_LINK
        link.write_text(str(folder / "remediator.yml"))
        assert cli.main(["stacks", "nosuch"]) == 2
        assert capsys.readouterr().err == f"{error}demo\n"


def test_a_folder_is_checked_file_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    (tmp_path / "remediator.yml").write_text("frobnicate: 1\n")
    assert cli.main(["check", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert f"{tmp_path}/exporter.yml: ok" in printed.out
    assert f"{tmp_path}/remediator.yml:1" in printed.err


def test_a_program_reads_the_mistakes_of_a_folder_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once, though the remediator reads the exporter's file, too."""
    (tmp_path / "exporter.yml").write_text("runs: []\nfrobnicate: 1\n")
    (tmp_path / "remediator.yml").write_text("insecure: true\n")
    assert cli.main(["check", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    mistake = {"path": f"{tmp_path}/exporter.yml", "line": 2, "where": "frobnicate"}
    assert found == {"valid": False, "problems": [mistake | {"message": "unknown key"}]}
    (tmp_path / "exporter.yml").write_text("runs: []\n")
    assert cli.main(["check", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ({"valid": True, "problems": []}, "")


def test_the_file_of_several_commands_is_checked_with_all_its_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("trainwarden.yml")
    file.write_text("commands: {trainer: python train.py, server: [serve]}\n")
    for path in (".", "trainwarden.yml"):
        assert cli.main(["check", path]) == 0
        assert capsys.readouterr().out == f"{file}: ok (run {tmp_path.name}, 2 commands)\n"
    file.write_text(
        "name: a b\n"
        "commands:\n"
        "  server: {command: serve, role: inference}\n"
        "  a/b: python train.py\n"
        "  trainer: {command: train, memory_limit: much}\n"
    )
    size = "write bytes as a whole number, or units such as 512MiB, 8GiB"
    address = "the command does not show where the server answers"
    mistakes = [
        f"{file}:1: name: {NAME_RULE}",
        f"{file}:3: commands.server.ready: required: {address}",
        f"{file}:4: commands.a/b: {NAME_RULE}",
        f"{file}:5: commands.trainer.memory_limit: not a size: {size}",
    ]
    assert cli.main(["check", str(file)]) == 1
    assert capsys.readouterr().err.splitlines() == mistakes
    assert cli.main(["check", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [one["line"] for one in found] == [1, 3, 4, 5]
    assert cli.main(["run"]) == 2
    shown = [f"trainwarden run: {tmp_path}/{one}" for one in mistakes]
    assert capsys.readouterr().err.splitlines() == shown


def test_several_files_and_folders_are_checked_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, folder, empty = (tmp_path / name for name in ("good.yml", "bad.yml", "run", "empty"))
    good.write_text("runs: []\n")
    bad.write_text("frobnicate: 1\n")
    for one in (folder, empty):
        one.mkdir()
    (folder / "exporter.yml").write_text("runs: []\n")
    given = [str(one) for one in (bad, empty, good, folder)]
    assert cli.main(["check", *given]) == 1
    printed = capsys.readouterr()
    assert [line.partition(":")[0] for line in printed.out.splitlines()] == [
        str(good),
        f"{folder}/exporter.yml",
    ]
    mistakes = [
        f"{bad}: checked as exporter.yml, by its keys",
        f"{bad}:1: frobnicate: unknown key",
        f"{empty}: has none of exporter.yml, remediator.yml, trainwarden.yml",
    ]
    assert [one for one in printed.err.splitlines() if "warning" not in one] == mistakes
    assert cli.main(["check", *given[2:]]) == 0
    capsys.readouterr()
    assert cli.main(["check", "--json", *given]) == 1
    found = json.loads(capsys.readouterr().out)["problems"]
    assert [one["path"] for one in found] == given[:2]


@pytest.mark.parametrize(
    ("content", "kind", "mistake"),
    [
        ("comands: {trainer: train}\nname: x\n", "trainwarden.yml", "did you mean commands"),
        ("name: x\ncommands:\n  trainer: {restat: never}\n", "trainwarden.yml", ":3: "),
        ("targets: []\nexporter: {adress: x}\n", "remediator.yml", ":2: exporter.adress"),
        ("runs: []\ndisk: []\n", "exporter.yml", "did you mean disks"),
    ],
)
def test_what_a_file_of_another_name_is_shows_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, kind: str, mistake: str
) -> None:
    file = tmp_path / "bad.yml"
    file.write_text(content)
    assert cli.main(["check", str(file)]) == 1
    first, *found = capsys.readouterr().err.splitlines()
    assert first == f"{file}: checked as {kind}, by its keys"
    assert any(mistake in one for one in found)
    file.write_text("commands: {trainer: train}\n")
    assert cli.main(["check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok (run {tmp_path.name}, 1 command)\n"


def test_a_folder_without_configuration_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(tmp_path)]) == 1
    assert "has none of exporter.yml, remediator.yml, trainwarden.yml" in capsys.readouterr().err


def test_status_shows_the_headline_first_and_the_last_action(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "--exporter", exporter]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "box-3: All is well: demo trains, step 216.",
        "  Who acts: Nobody needs to.",
        "  demo trains, step 216",
        "  last action: restart of demo/rollout-1: healed",
    ]
    assert cli.main(["status", "--exporter", exporter, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == shown


def test_in_an_ssh_session_status_names_what_shows_the_pages_on_a_laptop(
    exporter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path / "stacks"))
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    port = int(exporter.rpartition(":")[2])
    chosen = dict.fromkeys(load_script("ports").USUAL, port + 1) | {"exporter": port}
    folder = tmp_path / "stacks" / "demo"
    with load_script("claims").claimed(folder):
        (folder / "ports.json").write_text(json.dumps(chosen))
        assert cli.main(["status"]) == 0
        line = f"ssh -L {port}:127.0.0.1:{port} -L {port + 1}:127.0.0.1:{port + 1} HOST"
        assert capsys.readouterr().out.splitlines()[-1] == f"  pages: {line} on your laptop"
        monkeypatch.delenv("SSH_CONNECTION")
        assert cli.main(["status"]) == 0
        assert "ssh -L" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tone", "who", "status"),
    [
        ("good", NOBODY, 0),
        ("warn", NOBODY, 1),
        ("bad", REMEDIATOR, 1),
        ("warn", "ann, until 06:00 UTC", 1),
        ("warn", YOU, 2),
        ("bad", YOU, 2),
    ],
)
def test_the_exit_status_of_status_is_that_of_a_nagios_plugin(
    exporter: str, shown: dict[str, Any], tone: str, who: str, status: int
) -> None:
    shown |= {"tone": tone, "who_acts": who}
    assert cli.main(["status", "--exporter", exporter]) == status
    assert cli.main(["status", "--exporter", exporter, "--json"]) == status


def test_with_several_stacks_status_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def several() -> str:
        raise ValueError("several stacks run; choose one:")

    monkeypatch.setattr(status, "find_exporter", several)
    assert cli.main(["status"]) == 3
    assert capsys.readouterr().err == "trainwarden status: several stacks run; choose one:\n"


def test_status_takes_ten_lines_at_most(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown["problems"] = [
        {"tone": "bad", "text": f"trouble {number}", "who_acts": "You, now"} for number in range(4)
    ]
    others = [ALERT | {"run": f"r{number}"} for number in range(29)]
    shown["remediator"]["firing"] = [ALERT, *others]
    shown["remediator"]["holds"] = [{"run": "", "worker": "", "text": "held by root"}]
    cli.main(["status", "--exporter", exporter])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[2] == "  also: trouble 1 (You, now)"
    assert "  everything: held by root" in lines
    assert "  TrainingOomKill on the host: You, now (the remediator takes no action on it)" in lines
    assert lines[-1] == "  and 29 more lines: `trainwarden status --all`"
    cli.main(["status", "--exporter", exporter, "--all"])
    assert len(capsys.readouterr().out.splitlines()) == 9 + 29


def test_status_names_a_fault_that_was_given_up_once(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    why = {"handling": "the remediator does not act: no complete checkpoint to resume from"}
    gave_up = {**ALERT, **why, "alert": "TrainingRemediationGaveUp", "run": "demo"}
    stall = {**gave_up, "alert": "TrainingStepStalled"}
    for firing, names in (
        ([stall, gave_up], ["TrainingStepStalled"]),
        ([gave_up], ["TrainingRemediationGaveUp"]),
        (
            [stall, {**gave_up, "run": "other"}],
            ["TrainingStepStalled", "TrainingRemediationGaveUp"],
        ),
        ([stall, {**gave_up, "handling": "gave up"}], ["TrainingStepStalled", "TrainingRemediat"]),
    ):
        shown["remediator"]["firing"] = firing
        cli.main(["status", "--exporter", exporter, "--all"])
        lines = [one for one in capsys.readouterr().out.splitlines() if "  Training" in one]
        assert len(lines) == len(names)
        assert all(name in line for name, line in zip(names, lines, strict=True))


def test_status_has_a_line_for_each_run_before_the_third_problem(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown["first_steps"] = {f"Training{number}": f"Do {number}." for number in range(3)}
    shown["problems"] = [
        {"tone": "bad", "text": f"trouble {number}", "who_acts": "You, now"} for number in range(5)
    ]
    shown["runs"] = [{"run": name, "text": f"{name} trains"} for name in ("a", "b", "c", "d")]
    shown["remediator"]["firing"] = [ALERT] * 3
    cli.main(["status", "--exporter", exporter])
    assert capsys.readouterr().out.splitlines()[2:-1] == [
        "  first, Training0: Do 0.",
        "  first, Training1: Do 1.",
        "  also: trouble 1 (You, now)",
        "  a trains",
        "  b trains",
        "  c trains",
        "  d trains",
    ]


def test_an_alert_that_is_a_problem_has_one_line(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    known = [{**ALERT, "alert": name, "run": "demo", "worker": ""} for name in ("A", "B", "C")]
    texts = {
        "": " trouble ",
        "A": " A fires on demo: a sum",
        "B": " B has not ended yet",
        "C": " C ",
    }
    runs = {"": "demo", "A": "demo", "B": "demo", "C": "demo2"}
    shown["problems"] = [
        {"tone": "bad", "text": text, "who_acts": "You, now"}
        | {"alert": alert, "run": runs[alert], "worker": ""}
        for alert, text in texts.items()
    ]
    shown["remediator"]["firing"] = known
    cli.main(["status", "--exporter", exporter, "--all"])
    lines = capsys.readouterr().out.splitlines()
    assert [sum(f" {name} " in one for one in lines) for name in "ABC"] == [1, 1, 2]


def test_no_line_of_status_looks_cut_off(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    waits = "waits: too soon after the last action"
    gone = {**ALERT, "alert": "TrainingWorkerGone", "who_acts": REMEDIATOR, "handling": waits}
    shown |= {"who_acts": REMEDIATOR, "how": "It is restarting demo/rollout-1."}
    shown["remediator"]["firing"] = [
        gone,
        {**gone, "alert": "TrainingStepStalled", "handling": "is restarting demo/rollout-1"},
    ]
    cli.main(["status", "--exporter", exporter])
    lines = capsys.readouterr().out.splitlines()
    assert f"  TrainingWorkerGone on the host: The remediator {waits}" in lines
    assert "  TrainingStepStalled on the host: The remediator" in lines


def test_status_says_what_an_operator_does_first(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown["first_steps"] = {"TrainingOomKill": "Which process was killed?"}
    cli.main(["status", "--exporter", exporter])
    assert (
        "  first, TrainingOomKill: Which process was killed?"
        in capsys.readouterr().out.splitlines()
    )


def test_status_names_a_command_once(
    exporter: str, shown: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown["how"] = "It is held: `trainwarden resume` ends that."
    shown["first_steps"] = {
        "Held": "`trainwarden resume` ends the hold.",
        "Stalled": "`trainwarden stacks demo` names the process that waits.",
        "LogSilent": "`trainwarden stacks demo` shows what the writer does.",
        "GpuIdle": "Do they wait? `trainwarden stacks demo` shows for what. See `nvidia-smi`.",
        "StalledToo": "`trainwarden stacks other` names the process that waits.",
    }
    cli.main(["status", "--exporter", exporter, "--all"])
    lines = capsys.readouterr().out.splitlines()
    assert [one for one in lines if one.startswith("  first, ")] == [
        "  first, Stalled: `trainwarden stacks demo` names the process that waits.",
        "  first, GpuIdle: Do they wait? See `nvidia-smi`.",
        "  first, StalledToo: `trainwarden stacks other` names the process that waits.",
    ]


def test_status_without_an_exporter_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = "no exporter answers at http://127.0.0.1:1/status.json: Connection refused"
    assert cli.main(["status", "--exporter", "http://127.0.0.1:1"]) == 3
    assert capsys.readouterr().err == f"trainwarden status: {at}\n"
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", str(tmp_path))
    monkeypatch.setattr(status, "USUAL", "http://127.0.0.1:1")
    assert cli.main(["status", "--json"]) == 3
    nothing = "Trainwarden does not run here: `trainwarden up` starts it"
    assert capsys.readouterr().err == f"trainwarden status: {nothing}\n"


def test_status_of_a_server_that_is_no_exporter_is_one_sentence(
    exporter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["status", "--exporter", f"{exporter}/other"]) == 3
    at = f"no exporter answers at {exporter}/other/status.json"
    assert capsys.readouterr().err == f"trainwarden status: {at}: Not Found\n"


def test_status_is_printed_again_and_again_on_request(exporter: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trainwarden", "status", "--watch", "--exporter", exporter],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        heads = [line for line, _ in zip(process.stdout, range(8), strict=False)][::4]
        process.terminate()
    assert heads == ["box-3: All is well: demo trains, step 216.\n"] * 2


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
