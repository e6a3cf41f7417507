from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import Identity, read_processes
from trainwarden_exporter.processes.start_times import start_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.exporter.conftest import FakeProc, Start

LONG_AGO, NOW = 100, 100_000  # ticks
TRAINER, ROLLOUT = WorkerKey("demo", "trainer"), WorkerKey("demo", "rollout")


def make(proc: FakeProc, **selectors: Mapping[str, Any]) -> Matcher:
    """A matcher of run `demo`, 1000 s after boot; all else as in production."""
    return Matcher(
        {WorkerKey("demo", name): Selector.model_validate(one) for name, one in selectors.items()},
        root=proc.root,
        clock=lambda: NOW / 100,
    )


def pids(tree: ProcessTree) -> tuple[list[int], list[int]]:
    """The pids of the roots and of the members."""
    return sorted(p.pid for p in tree.roots), sorted(p.pid for p in tree.members)


class TestTrees:
    def test_a_worker_that_does_not_run_has_an_empty_tree(self, proc: FakeProc) -> None:
        assert make(proc, trainer={"command": "train"}).find() == {TRAINER: ProcessTree()}

    def test_a_process_of_another_folder_does_not_hide_that_the_worker_has_ended(
        self, proc: FakeProc, tmp_path: Path
    ) -> None:
        proc.add(10, ["python", "train.py"], environment={}, cwd=tmp_path / "mine")
        proc.add(11, ["python", "train.py"], environment={}, cwd=tmp_path / "other")
        matcher = make(proc, trainer={"command": "train", "cwd": str(tmp_path / "mine")})
        assert pids(matcher.find()[TRAINER]) == ([10], [10])
        proc.remove(10)
        assert matcher.find() == {TRAINER: ProcessTree()}

    def test_children_are_folded_into_the_worker_at_any_depth(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["cc1"], parent=10)
        proc.add(12, ["as"], parent=11)
        proc.add(13, ["sh"])

        tree = make(proc, trainer={"command": "train"}).find()[TRAINER]

        assert pids(tree) == ([10], [10, 11, 12])

    def test_a_match_below_a_match_is_no_second_root(self, proc: FakeProc) -> None:
        proc.add(10, ["torchrun", "train.py"])
        proc.add(11, ["python", "train.py"], parent=10)
        proc.add(12, ["python", "train.py"])

        tree = make(proc, trainer={"command": "train"}).find()[TRAINER]

        assert pids(tree) == ([10, 12], [10, 11, 12])

    def test_a_shell_that_runs_the_worker_is_no_part_of_it(self, proc: FakeProc) -> None:
        proc.add(10, ["bash", "-c", "python train.py; sleep 1d"])
        proc.add(11, ["python", "train.py"], parent=10)
        proc.add(12, ["python", "eval.py"], parent=11)

        tree = make(proc, trainer={"command": "train"}).find()[TRAINER]

        assert pids(tree) == ([11], [11, 12])
        assert [shell.pid for shell in tree.shells] == [10]

    def test_a_worker_below_another_takes_its_own_children_along(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["python", "rollout.py"], parent=10)
        proc.add(12, ["sh"], parent=11)
        proc.add(13, ["sh"], parent=10)

        trees = make(proc, trainer={"command": "train"}, rollout={"command": "rollout"}).find()

        assert pids(trees[TRAINER]) == ([10], [10, 13])
        assert pids(trees[ROLLOUT]) == ([11], [11, 12])

    def test_a_match_below_another_worker_below_a_match_is_no_root(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["python", "rollout.py"], parent=10)
        proc.add(12, ["python", "train.py"], parent=11)

        trees = make(proc, trainer={"command": "train"}, rollout={"command": "rollout"}).find()

        assert pids(trees[TRAINER]) == ([10], [10, 12])
        assert pids(trees[ROLLOUT]) == ([11], [11])

    def test_the_order_of_pids_does_not_matter(self, proc: FakeProc) -> None:
        proc.add(30, ["python", "train.py"])
        proc.add(20, ["sh"], parent=30)
        proc.add(10, ["sh"], parent=20)

        tree = make(proc, trainer={"command": "train"}).find()[TRAINER]

        assert pids(tree) == ([30], [10, 20, 30])

    def test_a_zombie_stays_what_it_was(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"], start=LONG_AGO)
        matcher = make(proc, trainer={"command": "train"})
        matcher.find()
        proc.add(10, [], start=LONG_AGO, state="Z", mark=0)

        for _ in range(2):
            (zombie,) = matcher.find()[TRAINER].roots
            assert not zombie.alive

    def test_trainwarden_and_kernel_threads_match_nothing(self, proc: FakeProc) -> None:
        proc.add(os.getpid(), ["trainwarden-exporter", "--config.file", "train.yml"])
        proc.add(11, ["train"], flags=0x00200000)

        assert make(proc, trainer={"command": "train"}).find() == {TRAINER: ProcessTree()}

    def test_its_own_pid_is_as_in_this_proc(self, proc: FakeProc) -> None:
        proc.add(9, ["trainwarden-exporter", "--config.file", "train.yml"])
        (proc.root / "self").symlink_to("9")

        assert make(proc, trainer={"command": "train"}).find() == {TRAINER: ProcessTree()}


class TestDescendantOf:
    def test_only_processes_below_the_other_worker_match(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["sh"], parent=10)
        proc.add(12, ["python", "worker.py"], parent=11)
        proc.add(13, ["python", "worker.py"])

        trees = make(
            proc,
            rollout={"command": "worker", "descendant_of": "trainer"},
            trainer={"command": "train"},
        ).find()

        assert pids(trees[ROLLOUT]) == ([12], [12])
        assert pids(trees[TRAINER]) == ([10], [10, 11])

    def test_alone_it_takes_everything_below(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["a"], parent=10)
        proc.add(12, ["b"], parent=11)

        matcher = make(proc, trainer={"command": "train"}, rollout={"descendant_of": "trainer"})
        trees = matcher.find()

        assert pids(trees[TRAINER]) == ([10], [10])
        assert pids(trees[ROLLOUT]) == ([11], [11, 12])
        assert matcher.ambiguous == {}

    def test_a_forked_child_that_looks_like_its_parent_belongs_to_the_descendants(
        self, proc: FakeProc
    ) -> None:
        proc.add(10, ["python", "train.py"])
        proc.add(11, ["python", "train.py"], parent=10)

        matcher = make(
            proc,
            trainer={"command": "train"},
            rollout={"command": "train", "descendant_of": "trainer"},
        )
        trees = matcher.find()

        assert pids(trees[TRAINER]) == ([10], [10])
        assert pids(trees[ROLLOUT]) == ([11], [11])
        assert matcher.ambiguous == {}


class TestAmbiguity:
    def test_the_worker_configured_first_wins_and_it_is_reported_once(
        self, proc: FakeProc, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        proc.add(10, ["python", "train.py", "rollout"])
        matcher = make(proc, rollout={"command": "rollout"}, trainer={"command": "train"})

        trees = [matcher.find(), matcher.find()][-1]

        assert pids(trees[ROLLOUT]) == ([10], [10])
        assert trees[TRAINER] == ProcessTree()
        assert list(matcher.ambiguous.values()) == [(ROLLOUT, TRAINER)]
        (record,) = caplog.records
        assert record.message == "process matched by several workers, counted for the first"
        assert vars(record)["workers"] == ["demo/rollout", "demo/trainer"]

        proc.remove(10)
        matcher.find()

        assert matcher.ambiguous == {}
        assert caplog.messages[1:] == ["process no longer matched by several workers"]


class TestMemory:
    """What is read again, and what is not: a changed file shows which."""

    def test_a_settled_process_is_decided_once(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"], start=LONG_AGO)
        matcher = make(proc, trainer={"command": "train"})
        matcher.find()
        proc.add(10, ["other"], start=LONG_AGO)

        assert pids(matcher.find()[TRAINER]) == ([10], [10])

    def test_a_process_that_executes_another_program_is_decided_again(self, proc: FakeProc) -> None:
        proc.add(10, ["bash", "start.sh"], start=LONG_AGO, name="bash", mark=1)
        matcher = make(proc, trainer={"command": "train"})
        assert matcher.find() == {TRAINER: ProcessTree()}

        proc.add(10, ["python", "train.py"], start=LONG_AGO, name="bash", mark=2)
        assert pids(matcher.find()[TRAINER]) == ([10], [10])

    def test_a_young_process_is_decided_again_and_again(self, proc: FakeProc) -> None:
        proc.add(10, ["supervisor", "train.py"], start=NOW - 500)
        matcher = make(proc, trainer={"command": "train"})
        assert pids(matcher.find()[TRAINER]) == ([10], [10])

        proc.add(10, ["sleep"], start=NOW - 500)
        assert matcher.find() == {TRAINER: ProcessTree()}

    def test_a_process_that_gives_its_memory_back_is_what_it_was(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"], start=LONG_AGO)
        matcher = make(proc, trainer={"command": "train"})
        assert pids(matcher.find()[TRAINER]) == ([10], [10])

        proc.add(10, start=LONG_AGO, state="D", mark=0, pages=0)
        assert pids(matcher.find()[TRAINER]) == ([10], [10])

    def test_a_process_that_ends_while_it_is_looked_at_is_what_it_was(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"], start=NOW - 500)
        matcher = make(proc, trainer={"command": "train"})
        processes = read_processes(proc.root)
        assert pids(matcher.assign(processes)[TRAINER]) == ([10], [10])

        proc.add(10, start=NOW - 500, mark=0, pages=0)
        assert pids(matcher.assign(processes)[TRAINER]) == ([10], [10])

    def test_a_reused_pid_is_a_new_process(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"], start=LONG_AGO)
        matcher = make(proc, trainer={"command": "train"})
        matcher.find()
        proc.add(10, ["other"], start=LONG_AGO + 1)

        assert matcher.find() == {TRAINER: ProcessTree()}

    def test_ended_processes_are_forgotten(self, proc: FakeProc) -> None:
        matcher = make(proc, trainer={"command": "train"})
        for pid in range(10, 40):
            proc.add(pid, ["x"], start=LONG_AGO + pid)
            matcher.find()
            proc.remove(pid)
        matcher.find()

        assert matcher._assignments == {}

    def test_files_that_no_selector_needs_are_not_read(self, proc: FakeProc) -> None:
        proc.add(10, ["python", "train.py"])
        for file in ("environ", "cgroup", "exe"):
            (proc.root / "10" / file).mkdir()  # reading it would raise

        tree = make(proc, trainer={"command": "train"}).find()[TRAINER]

        assert pids(tree) == ([10], [10])


class TestPidFiles:
    def test_the_process_it_names_is_the_root(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(10, ["a"])
        proc.add(11, ["b"], parent=10)
        (tmp_path / "x.pid").write_text("10\n")

        tree = make(proc, trainer={"pid_file": tmp_path / "x.pid"}).find()[TRAINER]

        assert pids(tree) == ([10], [10, 11])

    def test_it_is_read_each_time(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(10, ["a"])
        proc.add(11, ["b"])
        path = tmp_path / "x.pid"
        matcher = make(proc, trainer={"pid_file": path})
        seen = [pids(matcher.find()[TRAINER])[0]]
        for text in ("10", "11", "99", "nonsense"):
            path.write_text(text)
            seen.append(pids(matcher.find()[TRAINER])[0])
        path.unlink()
        seen.append(pids(matcher.find()[TRAINER])[0])

        assert seen == [[], [10], [11], [], [], []]

    def test_other_conditions_hold_too(self, proc: FakeProc, tmp_path: Path) -> None:
        proc.add(10, ["other"])
        (tmp_path / "x.pid").write_text("10\n")
        selector = {"pid_file": tmp_path / "x.pid", "command": "train"}

        assert make(proc, trainer=selector).find() == {TRAINER: ProcessTree()}

    def test_a_process_that_inherited_the_pid_is_not_meant(
        self, proc: FakeProc, tmp_path: Path
    ) -> None:
        proc.add(10, ["a"], start=NOW)
        path = tmp_path / "x.pid"
        path.write_text("10\n")
        written = start_timestamp(Identity(10, NOW)) - 60
        os.utime(path, (written, written))

        assert make(proc, trainer={"pid_file": path}).find() == {TRAINER: ProcessTree()}

    def test_a_process_once_accepted_stays_though_the_clock_is_set(
        self, proc: FakeProc, tmp_path: Path
    ) -> None:
        proc.add(10, ["a"], start=NOW)
        path = tmp_path / "x.pid"
        path.write_text("10\n")
        written = start_timestamp(Identity(10, NOW))
        os.utime(path, (written, written))
        matcher = make(proc, trainer={"pid_file": path})
        matcher.find()
        os.utime(path, (1000, 1000))

        assert pids(matcher.find()[TRAINER])[0] == [10]

    def test_while_it_cannot_be_read_its_last_process_stays_and_no_other_is_known(
        self, proc: FakeProc, tmp_path: Path
    ) -> None:
        proc.add(10, ["a"])
        path = tmp_path / "x.pid"
        path.write_text("10\n")
        matcher = make(proc, trainer={"pid_file": path})
        matcher.find()
        assert not matcher.unread

        path.unlink()
        path.symlink_to(path)
        assert pids(matcher.find()[TRAINER])[0] == [10]
        assert matcher.unread == {TRAINER}
        proc.remove(10)
        proc.add(11, ["a"])
        assert pids(matcher.find()[TRAINER])[0] == []
        assert matcher.unread == {TRAINER}

        path.unlink()
        path.write_text("11\n")
        assert pids(matcher.find()[TRAINER])[0] == [11]
        assert not matcher.unread


class TestWhatMayNotBeRead:
    def test_is_reported_once_for_each_worker(
        self, proc: FakeProc, caplog: pytest.LogCaptureFixture
    ) -> None:
        proc.add(10, ["a"])
        proc.add(11, ["b"])
        matcher = make(proc, trainer={"environment": {"ROLE": "x"}})

        assert [matcher.find(), matcher.find()] == [{TRAINER: ProcessTree()}] * 2
        (record,) = caplog.records
        assert record.message == "worker cannot be matched, file not readable"
        assert vars(record)["worker"] == "trainer"

    def test_is_no_matter_where_the_process_does_not_fit_anyway(
        self, proc: FakeProc, caplog: pytest.LogCaptureFixture
    ) -> None:
        proc.add(10, ["a"])
        make(proc, trainer={"command": "train", "environment": {"ROLE": "x"}}).find()

        assert not caplog.records

    def test_a_pid_file_that_may_not_be_read_is_reported_once(
        self, proc: FakeProc, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "x.pid").symlink_to("x.pid")
        matcher = make(proc, trainer={"pid_file": tmp_path / "x.pid"})

        assert [matcher.find(), matcher.find()] == [{TRAINER: ProcessTree()}] * 2
        assert [vars(record)["path"] for record in caplog.records] == [str(tmp_path / "x.pid")]

    def test_is_another_users_environment(
        self, start: Start, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        program = start("print('ready', flush=True); input()", "--mark-of-this-test")
        conditions = {"command": "--mark-of-this-test", "environment": {"PATH": ".+"}}
        selectors = {TRAINER: Selector.model_validate(conditions)}

        with as_nobody():
            assert Matcher(selectors).find() == {TRAINER: ProcessTree()}
        assert pids(Matcher(selectors).find()[TRAINER])[0] == [program.pid]


def test_a_look_that_failed_half_way_is_made_good_by_the_next(proc: FakeProc) -> None:
    for pid in range(10, 20):
        proc.add(pid, ["python", "train.py"], start=NOW - 1)  # so young that it may yet change
    proc.add(30, ["python", "train.py"])
    (proc.root / "30/cmdline").unlink()
    (proc.root / "30/cmdline").mkdir()
    matcher = make(proc, trainer={"command": "train"})
    with pytest.raises(CollectError, match="30/cmdline"):
        matcher.find()

    for pid in (*range(10, 15), 30):
        proc.remove(pid)
    proc.add(30, ["python", "train.py"])

    assert pids(matcher.find()[TRAINER])[0] == [*range(15, 20), 30]


def test_a_real_program_is_found_as_soon_as_it_is_executed(start: Start) -> None:
    code = (
        "import os, sys; print('ready', flush=True); input();"
        "os.execv(sys.executable, [sys.executable, '-S', '-c',"
        " 'print(1, flush=True); input()', '--second-life-' + 'of-it'])"
    )
    program = start(code)
    matcher = Matcher({TRAINER: Selector.model_validate({"command": "--second-life-of-it"})})
    matcher._clock = lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + 60  # all are settled
    assert matcher.find() == {TRAINER: ProcessTree()}

    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    program.stdout.readline()

    assert pids(matcher.find()[TRAINER])[0] == [program.pid]
