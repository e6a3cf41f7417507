"""The account of a worker controls the folder of the log that the remediator opens for it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.accounts import OPERATOR, needs_root, open_folder

from trainwarden_remediator.actions import spawn
from trainwarden_remediator.actions.command import _output_tail
from trainwarden_remediator.actions.spawn import start_process
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.exceptions import ActionError

pytestmark = needs_root

ACCOUNT = "nobody"
ENV = shutil.which("env", path="/usr/bin:/bin") or "env"


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a run, which its account owns."""
    with open_folder(OPERATOR) as folder:
        yield folder


@pytest.fixture
def of_root() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def start(log: Path, user: str | None = ACCOUNT, *arguments: str) -> None:
    """Runs `env`, which prints its environment."""
    target = ProcessTarget(start=(ENV, *arguments), cwd="/", log=log, user=user)
    assert start_process(target, "demo/trainer/1").wait(60) == 0


def link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    os.chown(path, OPERATOR, OPERATOR, follow_symlinks=False)
    return path


@pytest.mark.parametrize("user", [ACCOUNT, None])
def test_a_link_to_a_file_of_root_is_not_written(
    folder: Path, of_root: Path, user: str | None
) -> None:
    file = of_root / "important"
    file.write_text("content")
    with pytest.raises(ActionError, match="another account"):
        start(link(folder / "log", file), user)
    assert file.read_text() == "content"


def test_a_link_creates_no_file(folder: Path, of_root: Path) -> None:
    with pytest.raises(ActionError, match="No such file"):
        start(link(folder / "log", of_root / "new"))
    link(folder / "logs", of_root)
    with pytest.raises(ActionError, match="another account"):
        start(folder / "logs" / "new")
    assert list(of_root.iterdir()) == []


def test_a_hard_link_to_a_file_of_root_is_not_written(folder: Path) -> None:
    file = folder / "of-root"
    file.write_text("content")
    (folder / "log").hardlink_to(file)
    with pytest.raises(ActionError, match="hard link"):
        start(folder / "log")


def test_a_pipe_does_not_block_the_start(folder: Path) -> None:
    os.mkfifo(folder / "log")
    with pytest.raises(ActionError, match="not a regular file"):
        start(folder / "log")


def test_a_new_log_belongs_to_the_account_of_the_worker(folder: Path) -> None:
    start(folder / "logs" / "worker.log")
    assert (folder / "logs" / "worker.log").owner() == ACCOUNT


def test_a_worker_of_another_account_gets_a_plain_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/root/private:{os.environ['PATH']}")
    start(folder / "log")
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in (folder / "log").read_text().splitlines()


def test_a_start_that_hangs_fails_and_starts_no_process_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()

    def hang(*_: object) -> int:
        os.read(reader, 1)
        return os.open("/dev/null", os.O_WRONLY)

    monkeypatch.setattr(spawn, "open_worker_log", hang)
    monkeypatch.setattr(spawn, "START_SECONDS", 0.1)
    target = ProcessTarget(
        start=("touch", str(folder / "started")), cwd="/", log=folder / "log", user=None
    )
    with pytest.raises(ActionError, match="no answer within"):
        start_process(target, "demo/trainer/1")
    os.write(writer, b"x")
    for thread in threading.enumerate():
        if thread.name == "run with timeout":
            thread.join(60)
    os.close(reader)
    os.close(writer)
    assert not (folder / "started").exists()


def test_the_output_of_a_command_is_not_read_through_a_link(folder: Path, of_root: Path) -> None:
    file = of_root / "secret"
    file.write_text("content of a file of root")
    assert "content" in _output_tail(file, 0)
    assert _output_tail(link(folder / "log", file), 0) == ""
