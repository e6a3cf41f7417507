"""What the shell offers after TAB."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trainwarden import cli

ASK = """
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=(trainwarden "$@") COMP_CWORD=$#
_trainwarden
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sta"], ["status", "stacks"]),
        (["st"], ["stop", "status", "stacks"]),
        (["run", "--restart", "on"], ["on-failure", "on-request"]),
        (["run", "--name", ""], [""]),
        (["run", "--de"], ["--detach"]),
        (["up", "--back"], [""]),
        (["stop", ""], ["grpo", "train"]),
        (["attach", "gr"], ["grpo"]),
        (["attach", "--w"], ["--worker"]),
        (["hold", "--for", ""], [""]),
        (["journal", "--js"], ["--json"]),
    ],
)
def test_bash_offers_commands_options_their_values_and_runs(
    words: list[str], offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.d").mkdir()
    for name in ("grpo@trainer", "train@trainer"):
        (tmp_path / "runs.d" / f"{name}.json").touch()
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", *words],
        env={"SCRIPT": script("bash", capsys), "TRAINWARDEN_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")


def test_without_a_run_none_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", "stop", ""],
        env={"SCRIPT": script("bash", capsys), "TRAINWARDEN_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"


def test_zsh_uses_the_completion_of_bash(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("zsh", capsys)
    assert text.startswith("autoload -Uz compinit bashcompinit")
    assert text.endswith(script("bash", capsys))


def test_fish_has_each_subcommand_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("fish", capsys)
    assert "-f -a status -d '" in text
    assert "only the remediator (default: on-request)'" in text
    assert (
        "'__fish_seen_subcommand_from run' -f -a 'never on-failure on-request' -l restart -r"
        in text
    )


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_offers_commands_values_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.d").mkdir()
    for name in ("grpo@trainer", "grpo@vllm"):
        (tmp_path / "runs.d" / f"{name}.json").touch()
    path = tmp_path / "completion"
    path.write_text(script("fish", capsys))
    asked = [
        f"complete -C 'trainwarden {words}'"
        for words in ("stat", "run --restart on", "stop ", "journal --js")
    ]
    done = subprocess.run(
        ["fish", "--no-config", "-c", "; ".join([f"source {path}", *asked])],
        env={**os.environ, "HOME": str(tmp_path), "TRAINWARDEN_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert (offered, done.stderr) == (
        ["status", "on-failure", "on-request", "grpo", "--json"],
        "",
    )


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_shell_reads_it(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "completion"
    path.write_text(script(shell, capsys))
    done = subprocess.run(
        [shell, "-c", f"source {path}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
