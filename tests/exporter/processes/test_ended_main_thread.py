"""A process whose main thread has ended lives on with its other threads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.ended_main_thread import BYTES, PROGRAM
from tests.waiting import until

from trainwarden_exporter.processes import procfs
from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.processes.process_table import ProcessTable
from trainwarden_exporter.processes.resource_usage import read_usage

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

KEY = WorkerKey("demo", "worker")
MARK = "lives-on-without-its-main-thread"


def test_it_is_found_alive_with_its_memory_and_files(start: Start) -> None:
    child = start(PROGRAM, MARK)
    process = procfs.read_process(child.pid)
    assert process is not None
    assert process.alive
    assert process.resident_bytes > BYTES
    command = procfs.read_command_line(child.pid)
    assert command is not None
    assert command[-1] == MARK
    assert procfs.read_executable(child.pid) is not None
    assert procfs.read_environment(child.pid)
    tree = Matcher({KEY: Selector(command=MARK)}).assign(ProcessTable().read())[KEY]
    assert [root.pid for root in tree.roots if root.alive] == [child.pid]
    usage = read_usage(tree, pss=True)
    assert usage.resident_bytes > BYTES
    assert usage.pss is not None
    assert usage.pss.total > BYTES
    assert usage.open_files is not None
    assert usage.open_files.count > 20


def test_it_stays_the_same_process(start: Start) -> None:
    """Its identity, its name and the place of its arguments are those from before."""
    child = start(PROGRAM, MARK)
    process = procfs.read_process(child.pid)
    assert process is not None
    assert process.pid == child.pid
    assert process.parent_pid == os.getpid()
    assert process.exec_mark[1] > 0


def test_a_zombie_without_threads_has_ended(start: Start) -> None:
    child = start("print('up', flush=True); input()")
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    until(lambda: (process := procfs.read_process(child.pid)) is None or not process.alive)
    assert procfs.read_process(child.pid) is not None  # not reaped yet
    assert procfs.read_command_line(child.pid) == ()
