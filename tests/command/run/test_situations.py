"""The ways to start `trainwarden run` of docs/run.md that a test can have: the same in each."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from running_runs import Runs, is_alive, wait_for

COMMAND = "echo started $$; while ! test -e {gate}; do sleep 0.1; done; exit 3"
SITUATIONS: dict[str, Sequence[str]] = {
    "a session without a terminal": ("setsid", "--wait"),
    "nohup": ("nohup",),
    "no capabilities": ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"),
    "namespaces": ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"),
    "a terminal": ("script", "--quiet", "--return", "/dev/null", "--command"),
}


def can_be_had(prefix: Sequence[str]) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_run_is_passed_through_restarted_and_ends_as_its_command(
    situation: str, runs: Runs, tmp_path: Path
) -> None:
    prefix, gate = SITUATIONS[situation], tmp_path / "gate"
    if not can_be_had(prefix):
        pytest.skip(f"this host allows no `{shlex.join(prefix)}`")
    argv = runs.argv("sh", "-c", COMMAND.format(gate=gate))
    process = subprocess.Popen(
        [*prefix, shlex.join(argv)] if situation == "a terminal" else [*prefix, *argv],
        env=runs.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    runs.processes.append(process)
    before = runs.wait_until(state="running")
    wait_for(lambda: b"started" in runs.log())
    assert runs.restart(grace=5)["ok"]
    wait_for(lambda: runs.log().count(b"started") == 2)
    assert runs.announced()["pid"] != before["pid"]
    gate.touch()
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert shown.count(b"started") == 2
    assert (runs.announced()["state"], runs.announced()["exit_status"]) == ("failed", 3 << 8)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_run_in_tmux_goes_on_when_the_server_ends(runs: Runs, tmp_path: Path) -> None:
    tmux = ("tmux", "-S", tmp_path / "tmux", "-f", "/dev/null")
    command = shlex.join(runs.argv("sh", "-c", "test -t 1 && echo terminal; exec sleep 1000"))
    subprocess.run([*tmux, "new-session", "-d", command], env=runs.environment, check=True)
    try:
        wait_for(lambda: b"terminal" in runs.log())
        pid = runs.wait_until(state="running")["pid"]  # announced after the first output, at times
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    assert runs.request(command="status")["status"]["state"] == "running"
    assert is_alive(pid)
