from __future__ import annotations

from dataclasses import replace

from trainwarden_exporter.processes.exits import Ending, ExitWatch
from trainwarden_exporter.processes.history import CpuTotal, Lives, TransferTotal
from trainwarden_exporter.processes.matching import Tree
from trainwarden_exporter.processes.procfs import Identity, Process, Transfers

RUNS = None
A, B, C = (Identity(pid, 100) for pid in (10, 11, 12))


def process(identity: Identity, *, cpu: float = 0.0, parent: int = 1, state: str = "S") -> Process:
    return Process(identity, parent, "python", state, 1, cpu, 0, ("python", 1))


class Ends(ExitWatch):
    """Tells the ends it is told; everything else runs."""

    def __init__(self, **ends: Ending | None) -> None:
        super().__init__()
        self.ends = {int(pid.removeprefix("pid")): end for pid, end in ends.items()}

    def watch(self, identity: Identity) -> None:
        pass

    def ending(self, identity: Identity) -> Ending | None:
        return self.ends.get(identity.pid, RUNS)


def tree(*roots: Identity, members: tuple[Identity, ...] = ()) -> Tree:
    alive = tuple(process(one) for one in roots)
    return Tree(alive, alive + tuple(process(one, parent=roots[0].pid) for one in members))


class TestCpu:
    def test_counts_what_each_process_used_since_the_last_time(self) -> None:
        total = CpuTotal().after([process(A, cpu=5)]).after([process(A, cpu=7), process(B, cpu=1)])

        assert total.seconds == 8

    def test_keeps_what_the_dead_have_used(self) -> None:
        total = CpuTotal().after([process(A, cpu=5), process(B, cpu=2)])

        assert total.after([process(B, cpu=3)]).seconds == 8
        assert total.after([]).seconds == 7

    def test_counts_a_reused_pid_from_its_start(self) -> None:
        reborn = replace(process(A, cpu=1), identity=Identity(A.pid, 999))

        assert CpuTotal().after([process(A, cpu=5)]).after([reborn]).seconds == 6


class TestTransfers:
    PARENT, CHILD = process(A), process(B, parent=A.pid)

    def test_what_a_parent_inherits_from_a_child_is_not_counted_twice(self) -> None:
        total = TransferTotal().after(
            [self.PARENT, self.CHILD], {A: Transfers(100, 0), B: Transfers(1000, 50)}
        )
        # the child moved 20 bytes more before it ended, the parent 7
        total = total.after([self.PARENT], {A: Transfers(100 + 1000 + 20 + 7, 50)})

        assert total.moved == Transfers(100 + 1000 + 20 + 7, 50)

    def test_a_parent_that_inherits_nothing_loses_nothing(self) -> None:
        total = TransferTotal().after(
            [self.PARENT, self.CHILD], {A: Transfers(100, 0), B: Transfers(1000, 50)}
        )

        assert total.after([self.PARENT], {A: Transfers(107, 0)}).moved == Transfers(1107, 50)

    def test_what_a_grandchild_bequeaths_comes_by_way_of_its_dead_parent(self) -> None:
        grandchild = process(C, parent=B.pid)
        total = TransferTotal().after(
            [self.PARENT, self.CHILD, grandchild],
            {A: Transfers(1, 0), B: Transfers(10, 0), C: Transfers(100, 0)},
        )

        assert total.after([self.PARENT], {A: Transfers(111, 0)}).moved == Transfers(111, 0)

    def test_the_total_outlives_the_processes(self) -> None:
        total = TransferTotal().after([self.PARENT], {A: Transfers(100, 5)})

        assert total.after([], {}).moved == Transfers(100, 5)

    def test_a_reading_that_fails_in_between_changes_nothing(self) -> None:
        total = TransferTotal().after([self.PARENT], {A: Transfers(100, 5)})
        blind = total.after([self.PARENT], None)

        assert (blind.moved, blind.readable) == (Transfers(100, 5), False)
        seeing = blind.after([self.PARENT], {A: Transfers(130, 5)})
        assert (seeing.moved, seeing.readable) == (Transfers(130, 5), True)

    def test_what_was_never_readable_does_not_turn_zero_when_it_ends(self) -> None:
        total = TransferTotal().after([self.PARENT], None).after([], {})

        assert not total.readable


class TestLives:
    def test_what_is_seen_first_is_no_restart(self) -> None:
        lives = Lives().after(tree(A, B), Ends(), 1.0)

        assert (lives.restarts, lives.last_exit_timestamp) == (0, None)
        assert set(lives.exits.values()) == {0}

    def test_a_root_that_ended_and_was_replaced_is_a_restart(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0)
        lives = lives.after(tree(B), Ends(pid10=Ending(9, reaped=True)), 2.0)

        assert lives.restarts == 1
        assert lives.exits["SIGKILL"] == 1
        assert (lives.last_exit_code, lives.last_exit_timestamp) == (137, 2.0)

    def test_the_replacement_may_come_later(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0)
        lives = lives.after(Tree(), Ends(pid10=Ending(256, reaped=True)), 2.0)
        assert lives.restarts == 0

        assert lives.after(tree(B), Ends(), 3.0).restarts == 1

    def test_a_further_root_beside_the_old_ones_is_no_restart(self) -> None:
        assert Lives().after(tree(A), Ends(), 1.0).after(tree(A, B), Ends(), 2.0).restarts == 0

    def test_a_child_left_behind_that_looks_the_same_is_no_replacement(self) -> None:
        lives = Lives().after(tree(A, members=(B,)), Ends(), 1.0)
        lives = lives.after(tree(B), Ends(pid10=Ending(9, reaped=True)), 2.0)
        assert lives.restarts == 0

        assert lives.after(tree(B, C), Ends(), 3.0).restarts == 1

    def test_so_it_is_of_a_child_that_came_later(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0).after(tree(A, members=(B,)), Ends(), 2.0)

        assert lives.after(tree(B), Ends(pid10=Ending(9, reaped=True)), 3.0).restarts == 0

    def test_a_root_that_runs_on_as_something_else_has_not_ended(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0).after(tree(B), Ends(pid10=RUNS), 2.0)

        assert (lives.restarts, sum(lives.exits.values())) == (0, 0)

    def test_an_end_counts_once_when_its_status_comes_late(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0)
        lives = lives.after(Tree(), Ends(pid10=Ending(None, reaped=False)), 2.0)
        assert sum(lives.exits.values()) == 0
        assert lives.last_exit_timestamp == 2.0
        assert lives.watched == {A}

        lives = lives.after(Tree(), Ends(pid10=Ending(0, reaped=True)), 3.0)
        assert (lives.exits["0"], lives.last_exit_code, lives.last_exit_timestamp) == (1, 0, 2.0)
        assert lives.watched == frozenset()
        assert sum(lives.after(Tree(), Ends(), 4.0).exits.values()) == 1

    def test_an_unknown_status_is_counted_as_such_and_hides_an_older_one(self) -> None:
        lives = Lives().after(tree(A), Ends(), 1.0)
        lives = lives.after(tree(B), Ends(pid10=Ending(256, reaped=True)), 2.0)
        lives = lives.after(Tree(), Ends(pid11=Ending(None, reaped=True)), 3.0)

        assert (lives.exits["1"], lives.exits["unknown"]) == (1, 1)
        assert lives.last_exit_code is None


class TestFinished:
    def test_when_all_roots_ended_well(self) -> None:
        both = Lives().after(tree(A, B), Ends(), 1.0)
        one = both.after(tree(B), Ends(pid10=Ending(0, reaped=True)), 2.0)
        none = one.after(Tree(), Ends(pid11=Ending(0, reaped=False)), 3.0)

        assert [both.finished, one.finished, none.finished] == [False, False, True]

    def test_not_when_one_failed_or_nobody_knows(self) -> None:
        both = Lives().after(tree(A, B), Ends(), 1.0)
        for other in (Ending(256, reaped=True), Ending(None, reaped=True)):
            ends = Ends(pid10=Ending(0, reaped=True), pid11=other)
            assert not both.after(Tree(), ends, 2.0).finished

    def test_when_what_failed_was_replaced_and_that_ended_well(self) -> None:
        lives = Lives().after(tree(A, B), Ends(), 1.0)
        ends = Ends(pid10=Ending(0, reaped=True), pid11=Ending(256, reaped=True))
        lives = lives.after(Tree(), ends, 2.0).after(tree(C), Ends(), 3.0)
        assert not lives.finished

        assert lives.after(Tree(), Ends(pid12=Ending(0, reaped=True)), 4.0).finished

    def test_not_when_it_never_ran(self) -> None:
        assert not Lives().after(Tree(), Ends(), 1.0).finished
