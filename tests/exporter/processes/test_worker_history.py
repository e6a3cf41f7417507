from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.processes.exit_status import ExitWatcher, ProcessExit
from trainwarden_exporter.processes.matching import ProcessTree
from trainwarden_exporter.processes.procfs import Identity, Process, Transfers
from trainwarden_exporter.processes.worker_history import CpuTotal, RootHistory, TransferTotal

RUNS = None
A, B, C = (Identity(pid, 100) for pid in (10, 11, 12))


def process(identity: Identity, *, cpu: float = 0.0, parent: int = 1, state: str = "S") -> Process:
    return Process(identity, parent, "python", state, 1, cpu, 0, ("python", 1))


class Ends(ExitWatcher):
    """Reports the configured exits; every other process runs."""

    def __init__(self, **ends: ProcessExit | None) -> None:
        super().__init__()
        self.ends = {int(pid.removeprefix("pid")): end for pid, end in ends.items()}

    def watch(self, identity: Identity) -> None:
        pass

    def process_exit(
        self, identity: Identity, announced: ProcessExit | None = None
    ) -> ProcessExit | None:
        return self.ends.get(identity.pid, RUNS)


def tree(*roots: Identity, members: tuple[Identity, ...] = ()) -> ProcessTree:
    alive = tuple(process(one) for one in roots)
    return ProcessTree(alive, alive + tuple(process(one, parent=roots[0].pid) for one in members))


class TestCpu:
    def test_counts_what_each_process_used_since_the_last_time(self) -> None:
        total = (
            CpuTotal()
            .merge_observed([process(A, cpu=5)])
            .merge_observed([process(A, cpu=7), process(B, cpu=1)])
        )

        assert total.seconds == 8

    def test_keeps_what_the_dead_have_used(self) -> None:
        total = CpuTotal().merge_observed([process(A, cpu=5), process(B, cpu=2)])

        assert total.merge_observed([process(B, cpu=3)]).seconds == 8
        assert total.merge_observed([]).seconds == 7

    def test_counts_a_reused_pid_from_its_start(self) -> None:
        reborn = replace(process(A, cpu=1), identity=Identity(A.pid, 999))

        assert CpuTotal().merge_observed([process(A, cpu=5)]).merge_observed([reborn]).seconds == 6


class TestTransfers:
    PARENT, CHILD = process(A), process(B, parent=A.pid)

    def test_what_a_parent_inherits_from_a_child_is_not_counted_twice(self) -> None:
        total = TransferTotal().merge_observed(
            [self.PARENT, self.CHILD], {A: Transfers(100, 0), B: Transfers(1000, 50)}
        )
        # the child moved 20 bytes more before it ended, the parent 7
        total = total.merge_observed([self.PARENT], {A: Transfers(100 + 1000 + 20 + 7, 50)})

        assert total.moved == Transfers(100 + 1000 + 20 + 7, 50)

    def test_a_parent_that_inherits_nothing_loses_nothing(self) -> None:
        total = TransferTotal().merge_observed(
            [self.PARENT, self.CHILD], {A: Transfers(100, 0), B: Transfers(1000, 50)}
        )

        assert total.merge_observed([self.PARENT], {A: Transfers(107, 0)}).moved == Transfers(
            1107, 50
        )

    def test_what_a_grandchild_bequeaths_comes_by_way_of_its_dead_parent(self) -> None:
        grandchild = process(C, parent=B.pid)
        total = TransferTotal().merge_observed(
            [self.PARENT, self.CHILD, grandchild],
            {A: Transfers(1, 0), B: Transfers(10, 0), C: Transfers(100, 0)},
        )

        assert total.merge_observed([self.PARENT], {A: Transfers(111, 0)}).moved == Transfers(
            111, 0
        )

    def test_the_total_outlives_the_processes(self) -> None:
        total = TransferTotal().merge_observed([self.PARENT], {A: Transfers(100, 5)})

        assert total.merge_observed([], {}).moved == Transfers(100, 5)

    def test_a_reading_that_fails_in_between_changes_nothing(self) -> None:
        total = TransferTotal().merge_observed([self.PARENT], {A: Transfers(100, 5)})
        blind = total.merge_observed([self.PARENT], None)

        assert (blind.moved, blind.readable) == (Transfers(100, 5), False)
        seeing = blind.merge_observed([self.PARENT], {A: Transfers(130, 5)})
        assert (seeing.moved, seeing.readable) == (Transfers(130, 5), True)

    def test_what_was_never_readable_does_not_turn_zero_when_it_ends(self) -> None:
        total = TransferTotal().merge_observed([self.PARENT], None).merge_observed([], {})

        assert not total.readable


class TestLives:
    def test_what_is_seen_first_is_no_restart(self) -> None:
        lives = RootHistory().merge_observed(tree(A, B), Ends(), 1.0)

        assert (lives.restarts, lives.last_exit_timestamp) == (0, None)
        assert set(lives.exits.values()) == {0}

    def test_a_root_that_ended_and_was_replaced_is_a_restart(self) -> None:
        lives = RootHistory().merge_observed(tree(A), Ends(), 1.0)
        lives = lives.merge_observed(tree(B), Ends(pid10=ProcessExit(9, reaped=True)), 2.0)

        assert lives.restarts == 1
        assert lives.exits["SIGKILL"] == 1
        assert (lives.last_exit_code, lives.last_exit_timestamp) == (137, 2.0)

    @pytest.mark.parametrize(
        ("status", "failures"), [(0, 0), (2, 0), (130 << 8, 0), (9, 1), (256, 1), (None, 1)]
    )
    def test_a_restart_after_a_successful_or_deliberate_end_is_part_of_no_loop(
        self, status: int | None, failures: int
    ) -> None:
        ends = Ends(pid10=ProcessExit(status, reaped=True))
        history = RootHistory().merge_observed(tree(A), Ends(), 1.0)
        history = history.merge_observed(ProcessTree(), ends, 2.0)
        assert history.harmless_ends == (frozenset() if failures else {A})
        history = history.merge_observed(tree(B), Ends(), 3.0)
        assert (history.restarts, history.failure_restarts) == (1, failures)

    def test_the_replacement_may_come_later(self) -> None:
        lives = RootHistory().merge_observed(tree(A), Ends(), 1.0)
        lives = lives.merge_observed(ProcessTree(), Ends(pid10=ProcessExit(256, reaped=True)), 2.0)
        assert lives.restarts == 0

        assert lives.merge_observed(tree(B), Ends(), 3.0).restarts == 1

    def test_a_further_root_beside_the_old_ones_is_no_restart(self) -> None:
        assert (
            RootHistory()
            .merge_observed(tree(A), Ends(), 1.0)
            .merge_observed(tree(A, B), Ends(), 2.0)
            .restarts
            == 0
        )

    def test_a_child_left_behind_that_looks_the_same_is_no_replacement(self) -> None:
        lives = RootHistory().merge_observed(tree(A, members=(B,)), Ends(), 1.0)
        lives = lives.merge_observed(tree(B), Ends(pid10=ProcessExit(9, reaped=True)), 2.0)
        assert lives.restarts == 0

        assert lives.merge_observed(tree(B, C), Ends(), 3.0).restarts == 1

    def test_so_it_is_of_a_child_that_came_later(self) -> None:
        lives = (
            RootHistory()
            .merge_observed(tree(A), Ends(), 1.0)
            .merge_observed(tree(A, members=(B,)), Ends(), 2.0)
        )

        assert (
            lives.merge_observed(tree(B), Ends(pid10=ProcessExit(9, reaped=True)), 3.0).restarts
            == 0
        )

    def test_a_root_that_runs_on_as_something_else_has_not_ended(self) -> None:
        lives = (
            RootHistory()
            .merge_observed(tree(A), Ends(), 1.0)
            .merge_observed(tree(B), Ends(pid10=RUNS), 2.0)
        )

        assert (lives.restarts, sum(lives.exits.values())) == (0, 0)

    def test_an_end_counts_once_when_its_status_comes_late(self) -> None:
        lives = RootHistory().merge_observed(tree(A), Ends(), 1.0)
        lives = lives.merge_observed(
            ProcessTree(), Ends(pid10=ProcessExit(None, reaped=False)), 2.0
        )
        assert sum(lives.exits.values()) == 0
        assert lives.last_exit_timestamp == 2.0
        assert lives.awaiting_exit == {A}

        lives = lives.merge_observed(ProcessTree(), Ends(pid10=ProcessExit(0, reaped=True)), 3.0)
        assert (lives.exits["0"], lives.last_exit_code, lives.last_exit_timestamp) == (1, 0, 2.0)
        assert lives.awaiting_exit == frozenset()
        assert sum(lives.merge_observed(ProcessTree(), Ends(), 4.0).exits.values()) == 1

    def test_an_unknown_status_is_counted_as_such_and_hides_an_older_one(self) -> None:
        lives = RootHistory().merge_observed(tree(A), Ends(), 1.0)
        lives = lives.merge_observed(tree(B), Ends(pid10=ProcessExit(256, reaped=True)), 2.0)
        lives = lives.merge_observed(ProcessTree(), Ends(pid11=ProcessExit(None, reaped=True)), 3.0)

        assert (lives.exits["1"], lives.exits["unknown"]) == (1, 1)
        assert lives.last_exit_code is None


class TestFinished:
    def test_when_all_roots_ended_well(self) -> None:
        both = RootHistory().merge_observed(tree(A, B), Ends(), 1.0)
        one = both.merge_observed(tree(B), Ends(pid10=ProcessExit(0, reaped=True)), 2.0)
        none = one.merge_observed(ProcessTree(), Ends(pid11=ProcessExit(0, reaped=False)), 3.0)

        assert [both.finished, one.finished, none.finished] == [False, False, True]

    def test_not_when_one_failed_or_nobody_knows(self) -> None:
        both = RootHistory().merge_observed(tree(A, B), Ends(), 1.0)
        for other in (ProcessExit(256, reaped=True), ProcessExit(None, reaped=True)):
            ends = Ends(pid10=ProcessExit(0, reaped=True), pid11=other)
            assert not both.merge_observed(ProcessTree(), ends, 2.0).finished

    def test_when_what_failed_was_replaced_and_that_ended_well(self) -> None:
        lives = RootHistory().merge_observed(tree(A, B), Ends(), 1.0)
        ends = Ends(pid10=ProcessExit(0, reaped=True), pid11=ProcessExit(256, reaped=True))
        lives = lives.merge_observed(ProcessTree(), ends, 2.0).merge_observed(tree(C), Ends(), 3.0)
        assert not lives.finished

        assert lives.merge_observed(
            ProcessTree(), Ends(pid12=ProcessExit(0, reaped=True)), 4.0
        ).finished

    def test_not_when_it_never_ran(self) -> None:
        assert not RootHistory().merge_observed(ProcessTree(), Ends(), 1.0).finished
