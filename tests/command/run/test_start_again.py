"""A command that its user starts again while the start before may still go on."""

from __future__ import annotations

import subprocess
import sys
import time
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from running_runs import Runs, is_alive
from trainwarden.run.folder import write_private
from trainwarden_exporter.processes.announcement_files import read_announcements
from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.matching import WorkerKey

COMMAND = ("sh", "r.sh")
"""Fails without a file `mended` or a variable MENDED; its run is named r."""
DETACH = ("--detach",)
R = WorkerKey("r", "trainer")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the commands of a test run."""
    folder = tmp_path / "work"
    folder.mkdir()
    mended = 'test -e mended -o -n "$MENDED"'
    (folder / "r.sh").write_text(f"{mended} && exec sleep 1000; exit 3\n")
    monkeypatch.chdir(folder)
    return folder


def start(runs: Runs, *command: str, options: tuple[str, ...] = DETACH) -> tuple[int, list[str]]:
    """Starts a command; returns the exit status of the start, and what it says of it."""
    process = runs.piped(*command, options=options)
    _, shown = process.communicate(timeout=60)
    return process.returncode, shown.decode().replace("trainwarden run: ", "").splitlines()


def fail(runs: Runs, *command: str, options: tuple[str, ...] = DETACH) -> dict[str, Any]:
    """Starts a command that fails; returns what is announced once it waits to be started again."""
    assert start(runs, *command, options=options) == (0, [])
    if "on-failure" in options:  # the next start follows after eight seconds
        return runs.wait_until(state="failed", starts=4)
    return runs.wait_until(state="failed")


def names(runs: Runs) -> set[str]:
    return {path.stem for path in (runs.folder / "runs.d").glob("*.json")}


@pytest.mark.parametrize("options", [(), ("--restart", "on-failure"), ("--name", "r")])
@pytest.mark.usefixtures("work")
def test_a_start_takes_the_place_of_the_same_command_that_failed_and_waits(
    runs: Runs, options: tuple[str, ...]
) -> None:
    """Its supervisor, or the remediator, would start it beside the new one."""
    before = fail(runs, *COMMAND, options=(*DETACH, *options))
    runs.environment["MENDED"] = "1"
    status, shown = start(runs, *COMMAND, options=(*DETACH, *options))
    now = runs.announced()
    assert (status, now["state"], now["starts"]) == (0, "running", 1)
    assert shown == ["the run r had failed and waited; this start takes its place"]
    assert names(runs) == {"r@trainer"}
    assert not is_alive(before["wrapper_pid"])
    assert is_alive(now["pid"])
    # the user has answered the failures before; what was printed is of the start before
    assert now["counted_since"] > before["counted_since"]
    assert now["log_offset"] > before["log_offset"]
    assert runs.request(command="status")["status"]["pid"] == now["pid"]


def test_a_start_in_a_terminal_takes_its_place_too(runs: Runs, work: Path) -> None:
    before = fail(runs, *COMMAND)
    (work / "mended").touch()
    runs.in_terminal(*COMMAND, options=())
    assert runs.wait_until(state="running")["wrapper_pid"] != before["wrapper_pid"]
    assert not is_alive(before["wrapper_pid"])


@pytest.mark.parametrize("options", [DETACH, ("--name", "r", "--role=a", "--no-finishes")])
def test_the_shown_command_starts_it_again_as_it_was(
    runs: Runs, work: Path, options: tuple[str, ...]
) -> None:
    limits = ("--memory-limit", "1.25GiB", "--age-limit=90m", "--checkpoints", "the steps")
    (work / "the steps").mkdir()
    before = fail(runs, *COMMAND, options=(*options, *limits, "--detach"))
    (work / "mended").touch()
    shown = Announcement.model_validate(before).start_command
    runs.environment["PATH"] = f"{Path(sys.executable).parent}:{runs.environment['PATH']}"
    subprocess.run(["sh", "-c", shown], env=runs.environment, cwd="/", check=True)
    now = runs.wait_until(state="running")
    same = ("argv", "role", "restart", "finishes", "checkpoints", "memory_limit", "age_limit")
    assert [now[key] for key in same] == [before[key] for key in same]
    assert not is_alive(before["wrapper_pid"])


def test_the_shown_command_ends_first_what_still_runs(runs: Runs, work: Path) -> None:
    """A run that hangs or leaks has not ended when its user starts it again."""
    (work / "mended").touch()
    start(runs, *COMMAND, options=(*DETACH, "--name", "r"))
    before = runs.wait_until(state="running")
    shown = read_announcements(runs.folder / "runs.d", time.time()).start_command(R)
    runs.environment["PATH"] = f"{Path(sys.executable).parent}:{runs.environment['PATH']}"
    subprocess.run(["sh", "-c", shown], env=runs.environment, cwd="/", check=True)
    assert runs.wait_until(state="running")["pid"] != before["pid"]
    assert not is_alive(before["pid"])
    assert names(runs) == {"r@trainer"}


@pytest.mark.usefixtures("work")
def test_a_given_name_means_the_same_run_whatever_its_arguments(runs: Runs) -> None:
    options = (*DETACH, "--name", "r")
    before = fail(runs, *COMMAND, options=options)
    assert start(runs, "sleep", "1000", options=options)[0] == 0
    assert runs.announced()["argv"] == ["sleep", "1000"]
    assert not is_alive(before["wrapper_pid"])


def test_a_command_that_was_started_again_meanwhile_goes_on(runs: Runs, work: Path) -> None:
    before = fail(runs, *COMMAND)
    (work / "mended").touch()
    pid = runs.restart()["pid"]
    # what the new start has read right before the restart by the remediator
    write_private(runs.folder / "runs.d" / "r@trainer.json", dumps(before))
    _, shown = start(runs, *COMMAND)
    assert shown[0] == "the run r waits to be started again; this one is r-2"
    assert is_alive(pid)


def test_a_command_that_runs_goes_on_and_the_second_start_names_it(runs: Runs, work: Path) -> None:
    (work / "mended").touch()
    assert start(runs, *COMMAND) == (0, [])
    pid = runs.announced()["pid"]
    assert start(runs, *COMMAND) == (
        0,
        [
            f"the run r runs as process {pid}; this one is r-2",
            (
                f"warning: r/trainer runs as process {pid} and is the same command in the same"
                " folder: if both write there, end one of them, as by `trainwarden stop r`"
            ),
        ],
    )
    assert is_alive(pid)
    assert runs.announced("r-2")["state"] == "running"


def test_a_folder_of_checkpoints_that_does_not_exist_yet_is_named(runs: Runs, work: Path) -> None:
    expected = "typo does not exist yet; it is looked at once the run creates it"
    for is_there in (False, True):
        _, shown = start(runs, "true", options=(*DETACH, "--checkpoints", "typo"))
        assert (expected in shown) is not is_there
        (work / "typo").mkdir(exist_ok=True)


def test_two_runs_with_one_folder_of_checkpoints_are_warned_of(runs: Runs, work: Path) -> None:
    """Also where the first only waits: other arguments may be another experiment."""
    for name in ("ckpt", "other"):
        (work / name).mkdir()
    before = fail(runs, *COMMAND, options=(*DETACH, "--checkpoints", "ckpt"))
    (work / "mended").touch()
    other = ("--lr=1", "--lr=2")
    folders = ("other", f"{work}/other/../ckpt")
    for lr, folder in zip(other, folders, strict=True):
        status, shown = start(runs, *COMMAND, lr, options=(*DETACH, "--checkpoints", folder))
        assert status == 0
    assert shown[0] == "the run r waits to be started again; this one is r-3"
    assert shown[1:] == [
        (
            "warning: r/trainer waits to be started again and writes its checkpoints to"
            f" {folders[1]} too: end one of them, as by `trainwarden stop r`"
        )
    ]
    assert runs.announced() == before
    assert names(runs) == {"r@trainer", "r-2@trainer", "r-3@trainer"}


def test_runs_of_one_command_are_warned_of_once_and_not_where_each_has_its_checkpoints(
    runs: Runs, work: Path
) -> None:
    (work / "mended").touch()
    own: list[tuple[str, ...]] = [("--name", name, "--checkpoints", name) for name in "abc"]
    for name in "abc":
        (work / name).mkdir()
    assert [start(runs, *COMMAND, options=(*DETACH, *each)) for each in own] == [(0, [])] * 3
    pids = [runs.announced(name)["pid"] for name in "abc"]
    # where it saves is not known
    assert start(runs, *COMMAND, options=(*DETACH, "--name", "d")) == (
        0,
        [
            (
                f"warning: a/trainer runs as process {pids[0]}, b/trainer runs as process {pids[1]}"
                f", c/trainer runs as process {pids[2]}, and each is the same command in the same"
                " folder: if several write there, end all but one, as by `trainwarden stop a b c`"
            )
        ],
    )


def test_processes_that_the_failed_start_has_left_are_named(runs: Runs, work: Path) -> None:
    (work / "r.sh").write_text("setsid sleep 1000 & echo $! > left; exit 3\n")
    fail(runs, *COMMAND)
    left = int((work / "left").read_text())
    assert start(runs, *COMMAND)[1] == [
        "the run r had failed and waited; this start takes its place",
        f"warning: of the start before, process {left} still runs",
    ]
    assert is_alive(left)
