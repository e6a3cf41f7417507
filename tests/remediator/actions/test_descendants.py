from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.fakes import NoRecords
from tests.remediator.process_yard import Yard, alive
from tests.remediator.samples import ROLLOUT
from tests.waiting import until

from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, Process, read_processes
from trainwarden_remediator.actions.descendants import (
    DescendantsByRoot,
    DescendantTracker,
    merge_observed,
)
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal

TRAINER = WorkerKey("demo", "trainer")


def process(pid: int, parent: int = 1, *, start: int = 100, state: str = "S") -> Process:
    return Process(Identity(pid, start), parent, "python", state, 1, 0.0, 5, ("python", 0))


def seen(
    *processes: Process, roots: tuple[int, ...] = ()
) -> tuple[ProcessTree, dict[int, Process]]:
    """A tree of all of these, and the table that they are in."""
    table = {one.pid: one for one in processes}
    return ProcessTree(tuple(table[pid] for pid in roots), processes), table


def ids(*pids: int, start: int = 100) -> frozenset[Identity]:
    return frozenset(Identity(pid, start) for pid in pids)


ROOT, OTHER = Identity(10, 100), Identity(20, 100)


def test_what_stands_below_a_root_is_its_kin() -> None:
    tree, table = seen(
        process(10), process(11, 10), process(12, 11), process(20), process(21, 20), roots=(10, 20)
    )
    assert merge_observed({}, tree, table) == {ROOT: ids(10, 11, 12), OTHER: ids(20, 21)}


def test_what_leaves_a_living_root_has_left_it_for_good() -> None:
    tree, table = seen(process(10), roots=(10,))
    table[11] = process(11, 1)
    assert merge_observed({ROOT: ids(10, 11)}, tree, table) == {ROOT: ids(10)}


def test_what_a_root_leaves_behind_is_known_until_it_has_ended() -> None:
    known: DescendantsByRoot = {ROOT: ids(10, 11, 12)}
    tree, table = seen()
    table |= {11: process(11, 1), 12: process(12, 1)}
    known = merge_observed(known, tree, table)
    assert known == {ROOT: ids(11, 12)}
    table[12] = process(12, 1, state="Z")
    known = merge_observed(known, tree, table)
    assert known == {ROOT: ids(11)}
    # the number has passed on to a stranger
    table[11] = process(11, 1, start=900)
    assert merge_observed(known, tree, table) == {}


def test_a_root_that_is_replaced_leaves_its_kin_beside_the_new_ones() -> None:
    tree, table = seen(process(30), process(31, 30), roots=(30,))
    table[11] = process(11, 1)
    assert merge_observed({ROOT: ids(10, 11)}, tree, table) == {
        ROOT: ids(11),
        Identity(30, 100): ids(30, 31),
    }


def test_a_root_that_is_dying_has_kin_as_before() -> None:
    tree, table = seen(process(10, state="Z"), process(11, 10), roots=(10,))
    assert merge_observed({ROOT: ids(10, 11)}, tree, table) == {ROOT: ids(11)}


def test_what_has_left_a_living_root_since_the_last_look_is_no_survivor() -> None:
    tracker = DescendantTracker(NoRecords())
    tracker._descendants = {ROLLOUT: {ROOT: ids(10, 11), OTHER: ids(20, 21)}}
    tree, table = seen(process(10), roots=(10,))
    table |= {11: process(11, 1), 21: process(21, 1)}
    left = tracker.survivors_of(ROLLOUT, table, {ROLLOUT: tree})
    assert [one.pid for one in left] == [21]


# with real processes


def killed_root(yard: Yard) -> tuple[int, int]:
    root, below = yard.run_tree(own_session=True)
    yard.observe()
    root.kill()
    root.wait()
    return root.pid, below


def survivors_of(tracker: DescendantTracker, yard: Yard) -> list[int]:
    processes = read_processes()
    trees = yard.matcher.assign(processes)
    return [one.pid for one in tracker.survivors_of(ROLLOUT, processes, trees)]


def test_it_outlives_the_remediator(yard: Yard, tmp_path: Path, clock: FakeClock) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    yard.tracker = DescendantTracker(journal)
    _, below = killed_root(yard)
    journal.close()
    journal = Journal(tmp_path / "journal.db", clock=clock)
    tracker = DescendantTracker(journal)
    assert survivors_of(tracker, yard) == [below]
    yard.tracker = tracker
    yard.observe()
    os.kill(below, signal.SIGKILL)
    until(lambda: not alive(below))
    assert survivors_of(tracker, yard) == []
    yard.observe()
    assert journal.load_descendants(tracker._boot) == {}
    journal.close()


def test_what_was_seen_before_the_host_was_booted_is_somebody_elses_now(
    yard: Yard, tmp_path: Path, clock: FakeClock
) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    yard.tracker = DescendantTracker(journal)
    killed_root(yard)
    journal._file.connection.execute("UPDATE descendant SET boot = 'an earlier one'")
    assert survivors_of(DescendantTracker(journal), yard) == []
    journal.close()


def test_only_what_has_changed_is_written(yard: Yard) -> None:
    written: list[Mapping[WorkerKey, DescendantsByRoot]] = []

    class Records:
        def save_descendants(
            self, boot: str, descendants_by_root: Mapping[WorkerKey, DescendantsByRoot]
        ) -> None:
            assert boot
            written.append(descendants_by_root)

        def load_descendants(self, boot: str) -> Mapping[WorkerKey, DescendantsByRoot]:
            return {TRAINER: {ROOT: ids(10)}}

    yard.tracker = DescendantTracker(Records())
    root, below = yard.run_tree()
    yard.observe()
    (first,) = written
    # what is no target any more is forgotten
    assert first[TRAINER] == {}
    ((found, members),) = first[ROLLOUT].items()
    assert (found.pid, {one.pid for one in members}) == (root.pid, {root.pid, below})
    yard.observe()
    assert len(written) == 1


def test_what_cannot_be_written_down_is_known_and_written_when_it_can_be(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[Mapping[WorkerKey, DescendantsByRoot]] = []

    class Full:
        failing = True

        def save_descendants(
            self, boot: str, descendants_by_root: Mapping[WorkerKey, DescendantsByRoot]
        ) -> None:
            if self.failing:
                raise JournalError("disk full")
            written.append(descendants_by_root)

        def load_descendants(self, boot: str) -> Mapping[WorkerKey, DescendantsByRoot]:
            return {}

    records = Full()
    yard.tracker = DescendantTracker(records)
    with caplog.at_level(logging.WARNING):
        _, below = killed_root(yard)
        yard.observe()
    assert survivors_of(yard.tracker, yard) == [below]
    assert caplog.messages == ["process trees could not be saved"]
    records.failing = False
    yard.observe()
    yard.observe()
    (tracker,) = written
    assert [{one.pid for one in members} for members in tracker[ROLLOUT].values()] == [{below}]
