"""Harm 10: what ended the run is a full disk, and each restart ends on it again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.samples import ROLLOUT, make_worker
from tests.remediator.stage import Scene

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.observation.model import DiskState


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A real disk of a megabyte, full to the last byte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("only root mounts a disk")
    try:
        with (folder / "checkpoint").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def seen(folder: Path) -> DiskState:
    facts = os.statvfs(folder)
    size, free = facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize
    return DiskState(str(folder), size=size, free=free, inodes=facts.f_files, free_inodes=9e9)


async def test_on_a_full_disk_no_worker_is_restarted_and_that_is_reported(
    stage: Any, full: Path
) -> None:
    def fill(scene: Scene) -> None:
        scene.observer.disks = (seen(full),)
        scene.observer.workers[ROLLOUT] = make_worker(processes=0)

    async with stage(before=fill, cooldown=0, attempts=50) as scene:
        start = scene.clock.now()
        scene.hear(remediation="start_missing_worker", starts_at=start - 20)
        await scene.pass_time(1900, remediation="start_missing_worker")
        assert scene.action.restarts == []
        assert scene.journaled().count("disk_unusable") == 1
        # TrainingRemediationBlocked pages the on-call
        assert scene.journal.blocked_since() == {"disk_unusable": start}
        # and when there is room again it is healed
        (full / "checkpoint").unlink()
        scene.observer.disks = (seen(full),)
        await scene.clock.advance(60)
        assert scene.action.restarts == [1]


def test_a_journal_on_a_full_disk_is_not_begun_and_leaves_nothing_behind(full: Path) -> None:
    with pytest.raises(JournalError):
        Journal(full / "journal.db", clock=lambda: 0.0)
    assert not (full / "journal.db").exists()
