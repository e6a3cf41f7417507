"""The processes of a worker, and what is not known of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remediator.fakes import NoRecords
from tests.remediator.samples import ROLLOUT

from trainwarden_exporter.processes.matching import Selector
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.worker_processes import WorkerProcessFinder
from trainwarden_remediator.exceptions import ActionError


def test_a_worker_whose_pid_file_cannot_be_read_is_not_gone(tmp_path: Path) -> None:
    path = tmp_path / "worker.pid"
    finder = WorkerProcessFinder(
        [ROLLOUT], {ROLLOUT: Selector(pid_file=path)}, DescendantTracker(NoRecords())
    )
    assert finder.find().roots == []
    path.symlink_to(path)
    with pytest.raises(ActionError, match="the pid file of rollout-0 cannot be read"):
        finder.find()
