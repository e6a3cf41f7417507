from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes import ancestry, procfs, start_times
from trainwarden_exporter.processes.procfs import Identity, Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import FakeProc, Start


def process(pid: int, parent: int, start: int = 100) -> Process:
    return Process(Identity(pid, start), parent, "python", "S", 1, 0.0, 0, ("python", 1))


class TestTheTableOfProcesses:
    def test_holds_every_process_by_pid(self, proc: FakeProc) -> None:
        proc.add(1, parent=0)
        proc.add(20, start=300)
        (proc.root / "meminfo").write_text("not a process")

        found = procfs.read_processes(proc.root)

        assert {pid: one.identity for pid, one in found.items()} == {
            1: Identity(1, 100),
            20: Identity(20, 300),
        }

    def test_passes_over_a_process_that_vanishes_while_it_is_read(self, proc: FakeProc) -> None:
        proc.add(20)
        (proc.root / "21").mkdir()

        assert list(procfs.read_processes(proc.root)) == [20]

    def test_that_cannot_be_listed_is_an_error_and_not_an_empty_machine(
        self, proc: FakeProc
    ) -> None:
        with pytest.raises(CollectError, match=r"cannot list .*nowhere"):
            procfs.read_processes(proc.root / "nowhere")

    def test_names_the_file_it_cannot_understand(self, proc: FakeProc) -> None:
        proc.add(20, files={"stat": "nonsense"})

        with pytest.raises(CollectError, match="20/stat: not a process"):
            procfs.read_processes(proc.root)

    def test_raises_what_is_neither_gone_nor_forbidden(self, proc: FakeProc) -> None:
        (proc.root / "20" / "stat").mkdir(parents=True)  # stands for a full file table, say

        with pytest.raises(CollectError, match=r"cannot read .*20/stat"):
            procfs.read_processes(proc.root)


class TestOneProcess:
    def test_is_none_when_the_pid_is_free(self, proc: FakeProc) -> None:
        assert procfs.read_process(20, proc.root) is None

    def test_has_no_files_left_when_it_is_gone(self, proc: FakeProc) -> None:
        readers = (
            procfs.read_command_line,
            procfs.read_executable,
            procfs.read_environment,
            procfs.read_cgroups,
            procfs.read_transfers,
            procfs.read_resident_bytes,
            procfs.read_mapped_bytes,
            procfs.read_pss,
            procfs.read_open_files,
            procfs.read_open_files_limit,
        )
        assert [read(20, proc.root) for read in readers] == [None] * len(readers)

    def test_that_really_runs_is_seen_as_it_is(self) -> None:
        me = procfs.read_process(os.getpid())

        assert me is not None
        assert me.alive
        assert not me.kernel_thread
        assert me.parent_pid == os.getppid()
        assert me.cpu_seconds == pytest.approx(time.process_time(), abs=0.5)
        assert procfs.read_executable(me.pid) == os.path.realpath(sys.executable)
        assert procfs.read_environment(me.pid) is not None
        assert len(procfs.read_command_line(me.pid) or ()) >= 1
        assert procfs.read_open_files(me.pid) == pytest.approx(
            len(list(Path("/proc/self/fd").iterdir())), abs=3
        )
        resident, pss = procfs.read_resident_bytes(me.pid), procfs.read_pss(me.pid)
        assert resident is not None
        assert pss is not None
        assert 0 <= pss.mapped < pss.total <= resident
        assert pss.mapped <= (procfs.read_mapped_bytes(me.pid) or 0) < resident

    def test_may_open_as_many_files_as_its_limits_say(self, start: Start, tmp_path: Path) -> None:
        program = start(
            "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (77, 99));"
            "print('ready', flush=True); input()"
        )
        asked = procfs.read_open_files_limit(program.pid)
        elsewhere = tmp_path / "proc"  # a folder whose pids may be of another namespace
        elsewhere.symlink_to("/proc")
        assert asked == procfs.read_open_files_limit(program.pid, elsewhere) == 77

    def test_of_another_user_hides_its_environment_but_not_its_command_line(
        self, start: Start, as_nobody: Callable[[], AbstractContextManager[None]]
    ) -> None:
        program = start("print('ready', flush=True); input()", "--name", "x")

        with as_nobody():
            assert procfs.read_environment(program.pid) is None
            assert procfs.read_executable(program.pid) is None
            assert procfs.read_transfers(program.pid) is None
            assert procfs.read_pss(program.pid) is None
            assert (procfs.read_command_line(program.pid) or ())[-2:] == ("--name", "x")
            assert procfs.read_open_files_limit(program.pid)

    def test_that_is_a_zombie_says_little_and_breaks_nothing(
        self, start: Start, wait_until: Callable[[Callable[[], bool]], None]
    ) -> None:
        program = start("print('ready', flush=True)")

        def is_zombie() -> bool:
            found = procfs.read_process(program.pid)
            return found is not None and not found.alive

        wait_until(is_zombie)
        assert procfs.read_command_line(program.pid) == ()
        assert procfs.read_executable(program.pid) is None
        assert procfs.read_pss(program.pid) is None
        assert procfs.read_resident_bytes(program.pid) == 0
        assert procfs.read_mapped_bytes(program.pid) == 0


class TestStartTime:
    def test_is_the_moment_the_program_was_started(self, start: Start) -> None:
        before = time.time()
        program = start("print('ready', flush=True); input()")
        found = procfs.read_process(program.pid)

        assert found is not None
        assert before - 0.6 <= start_times.start_timestamp(found.identity) <= time.time() + 0.6

    def test_does_not_tremble_with_the_clock(self) -> None:
        since_boot = iter([5000.0, 5000.004, 4999.8, 5000.3])
        boot = start_times.BootTime(lambda: 1_800_000_000.0, lambda: next(since_boot))

        assert [boot() for _ in range(4)] == [1_799_995_000.0] * 4

    def test_follows_a_clock_that_was_set(self) -> None:
        clock = iter([1_800_000_000.0, 1_800_003_600.0])
        boot = start_times.BootTime(lambda: next(clock), lambda: 5000.0)

        assert [boot(), boot()] == [1_799_995_000.0, 1_799_998_600.0]


class TestAncestry:
    def test_descendants_are_found_at_any_depth(self) -> None:
        table = {p.pid: p for p in (process(1, 0), process(2, 1), process(3, 2), process(4, 1))}

        assert ancestry.descendants(table, [2]) == {3}
        assert ancestry.descendants(table, [1]) == {2, 3, 4}
        assert ancestry.descendants(table, [99]) == set()

    def test_a_younger_process_with_the_parents_pid_is_not_the_parent(self) -> None:
        table = {p.pid: p for p in (process(5, 1, start=900), process(6, 5, start=100))}

        assert ancestry.parent(table[6], table) is None
        assert ancestry.descendants(table, [5]) == set()

    def test_a_circle_seen_in_a_torn_table_ends(self) -> None:
        table = {p.pid: p for p in (process(5, 6), process(6, 5))}

        assert ancestry.descendants(table, [5]) == {5, 6}
