from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks.base import RolloutLayout
from trainwarden_exporter.frameworks.completeness_rules import RenamedRule
from trainwarden_exporter.rollouts.rank_files import FIRST_QUIET_SECONDS
from trainwarden_exporter.rollouts.scanner import RolloutScanner, RolloutSnapshot
from trainwarden_exporter.step_dirs.locations import InstanceFinder, RunLocation

LAYOUT = RolloutLayout(
    "batches",
    folder="rollouts",
    entry=r"step_(?P<step>\d+)",
    completeness=RenamedRule(),
    rank=r"rank_(?P<rank>\d+)\.pt",
)


class Orchestrator:
    """Writes batches as PRIME-RL does; its clock is everybody's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1_000_000.0

    def write(self, step: int, *ranks: int, size: int = 10) -> None:
        for rank in ranks:
            path = self.path / f"rollouts/step_{step}/rank_{rank}.pt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)
            os.utime(path, (self.now, self.now))
        self.now += 30

    def consume(self, step: int) -> None:
        shutil.rmtree(self.path / f"rollouts/step_{step}")


@pytest.fixture
def orchestrator(tmp_path: Path) -> Orchestrator:
    return Orchestrator(tmp_path)


def eye(orchestrator: Orchestrator, ranks: int | None = None) -> RolloutScanner:
    location = RunLocation(orchestrator.path, (LAYOUT.folder,))
    return RolloutScanner(
        InstanceFinder(location, clock=lambda: orchestrator.now),
        LAYOUT,
        ranks=ranks,
        now=lambda: orchestrator.now,
        clock=lambda: orchestrator.now,
    )


def steps(seen: RolloutSnapshot) -> tuple[int | None, int | None]:
    """Of the newest complete one and of the one begun since."""
    newest, in_progress = seen.result.newest, seen.result.in_progress
    return (
        None if newest is None else newest.name.number,
        None if in_progress is None else in_progress.name.number,
    )


def test_a_step_with_some_ranks_missing_is_not_complete(orchestrator: Orchestrator) -> None:
    looks = eye(orchestrator)
    orchestrator.write(1, 0, 1)
    orchestrator.write(2, 0, 1)
    orchestrator.write(3, 0)
    seen = looks()
    assert steps(seen) == (2, 3)
    assert (seen.ranks, seen.expected_ranks) == (1, 2)
    orchestrator.write(3, 1)
    seen = looks()
    assert steps(seen) == (3, None)
    assert (seen.ranks, seen.expected_ranks) == (2, 2)


def test_nor_is_one_with_an_empty_share_or_one_still_being_written(
    orchestrator: Orchestrator,
) -> None:
    looks = eye(orchestrator, ranks=2)
    orchestrator.write(1, 0)
    orchestrator.write(1, 1, size=0)
    assert steps(looks()) == (None, 1)
    share = orchestrator.path / "rollouts/step_1/rank_1.pt"
    share.rename(share.with_suffix(".pt.tmp"))
    assert steps(looks()) == (None, 1)
    orchestrator.write(1, 1)
    assert steps(looks()) == (1, None)


def test_the_first_step_of_all_counts_once_it_rests(orchestrator: Orchestrator) -> None:
    looks = eye(orchestrator)
    orchestrator.now -= 30
    orchestrator.write(1, 0)
    orchestrator.now -= 30
    assert steps(looks()) == (None, 1)
    orchestrator.now += FIRST_QUIET_SECONDS
    assert steps(looks()) == (1, None)


def test_how_many_ranks_there_are_is_known_after_a_look_at_old_steps(
    orchestrator: Orchestrator,
) -> None:
    for step in range(1, 6):
        orchestrator.write(step, 0, 1, 2, 3)
    orchestrator.write(6, 0, 1)
    looks = eye(orchestrator)
    looks()
    assert looks().expected_ranks == 4
    assert steps(looks()) == (5, 6)


class TestABatchThatIsConsumedAndDeleted:
    def test_was_there(self, orchestrator: Orchestrator) -> None:
        looks = eye(orchestrator, ranks=1)
        orchestrator.write(7, 0)
        looks()
        orchestrator.consume(7)
        seen = looks()
        assert seen.result.newest is None
        newest = seen.newest(needed=8, offset=0)
        assert newest is not None
        assert newest.name.number == 7

    def test_is_forgotten_when_the_run_went_back(self, orchestrator: Orchestrator) -> None:
        looks = eye(orchestrator, ranks=1)
        orchestrator.write(3, 0)
        orchestrator.write(7, 0)
        looks()
        orchestrator.consume(7)
        newest = looks().newest(needed=4, offset=0)
        assert newest is not None
        assert newest.name.number == 3
        orchestrator.write(4, 0)
        assert looks().consumed is None

    def test_is_forgotten_with_its_folder(self, orchestrator: Orchestrator) -> None:
        looks = eye(orchestrator, ranks=1)
        orchestrator.write(7, 0)
        looks()
        shutil.rmtree(orchestrator.path / "rollouts")
        seen = looks()
        assert (seen.folders, seen.newest(8, 0)) == (0, None)


def test_where_the_next_one_is_to_be_written_is_looked_at(orchestrator: Orchestrator) -> None:
    looks = eye(orchestrator)
    before = looks().write_target
    assert before is not None
    assert before.is_writable_by(None) is True
    (orchestrator.path / "rollouts").touch()
    after = looks().write_target
    assert after is not None
    assert after.is_writable_by(None) is False
