from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trainwarden_exporter.processes.matching import ProcessTree
from trainwarden_exporter.processes.procfs import Identity, Process, Pss, Transfers, read_processes
from trainwarden_exporter.processes.procfs_parser import parse_resident_bytes
from trainwarden_exporter.processes.resource_usage import (
    OpenFiles,
    count_states,
    nearest_limit,
    read_usage,
)

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

IO = "read_bytes: {}\nwrite_bytes: 7\n"
PSS = "Pss: {} kB\n"


def everything(proc: FakeProc) -> ProcessTree:
    found = tuple(read_processes(proc.root).values())
    return ProcessTree(found, found)


def test_memory_is_that_of_the_whole_tree(proc: FakeProc) -> None:
    proc.add(10, files={"statm": "9 100 0 0 0 0 0", "smaps_rollup": PSS.format(30)})
    proc.add(11, files={"statm": "9 200 0 0 0 0 0", "smaps_rollup": PSS.format(40)})
    proc.add(12, state="Z")

    usage = read_usage(everything(proc), proc.root, pss=True)

    assert usage.resident_bytes == parse_resident_bytes("9 300")
    assert usage.pss == Pss(70 * 1024, 0)


def test_pss_is_measured_only_when_asked_for(proc: FakeProc) -> None:
    proc.add(10, files={"smaps_rollup": "it would not be understood"})

    assert read_usage(everything(proc), proc.root).pss is None


def test_pss_decides_when_several_processes_exceed_their_limit(proc: FakeProc) -> None:
    """Ray's processes share pages: their resident memory adds up to 1.6 times what they use."""
    proc.add(10, files={"statm": "9 100 0 0 0 0 0", "smaps_rollup": PSS.format(30)})
    proc.add(11, files={"statm": "9 200 0 0 0 0 0", "smaps_rollup": PSS.format(40)})
    tree = everything(proc)
    resident = read_usage(tree, proc.root).resident_bytes
    below = read_usage(tree, proc.root, doubtful_above=resident)
    above = read_usage(tree, proc.root, doubtful_above=resident - 1)
    assert (below.pss, below.memory_bytes) == (None, resident)
    assert above.memory_bytes == 70 * 1024 < resident


def test_mapped_files_do_not_count_towards_a_limit(proc: FakeProc) -> None:
    """The kernel drops the pages of a data set that a process maps, when it needs the memory."""
    text = "Rss: 900 kB\nPss: 800 kB\nPss_Anon: 50 kB\nPss_File: 730 kB\nPss_Shmem: 20 kB\n"
    files = {
        "statm": "9 225 0 0 0 0 0",
        "smaps_rollup": text,
        "status": "VmRSS:\t900 kB\nRssFile:\t820 kB\n",
    }
    proc.add(10, files=files)
    usage = read_usage(everything(proc), proc.root, doubtful_above=80 * 1024 - 1)
    assert usage.pss == Pss(800 * 1024, 730 * 1024)
    assert usage.memory_bytes == 70 * 1024
    unread = read_usage(everything(proc), proc.root, doubtful_above=80 * 1024)
    assert (unread.pss, unread.memory_bytes) == (None, 80 * 1024)


def test_pss_of_a_part_does_not_pass_for_the_whole(proc: FakeProc) -> None:
    proc.add(10, files={"smaps_rollup": PSS.format(30)})
    proc.add(11)
    tree = everything(proc)
    assert read_usage(tree, proc.root, pss=True).pss is None

    proc.remove(11)  # gone is another matter than closed
    assert read_usage(tree, proc.root, pss=True).pss == Pss(30 * 1024, 0)


def test_only_readable_transfers_are_shown(proc: FakeProc) -> None:
    proc.add(10, files={"io": IO.format(5)})
    proc.add(11)

    assert read_usage(everything(proc), proc.root).transfers == {Identity(10, 100): Transfers(5, 7)}


def test_transfers_are_unknown_when_none_can_be_read(proc: FakeProc) -> None:
    proc.add(10)
    tree = everything(proc)
    assert read_usage(tree, proc.root).transfers is None

    proc.remove(10)
    assert read_usage(tree, proc.root).transfers == {}


def test_of_nothing_there_is_nothing(proc: FakeProc) -> None:
    usage = read_usage(ProcessTree(), proc.root, pss=True)

    assert (usage.resident_bytes, usage.pss, usage.open_files) == (0, Pss(0, 0), None)
    assert usage.transfers == {}


def test_the_process_nearest_its_limit_counts() -> None:
    few, many, free = OpenFiles(90, 100), OpenFiles(500, 1000), OpenFiles(900, math.inf)

    assert nearest_limit([many, None, few, free]) == few
    assert nearest_limit([None]) is None


def test_states_are_counted_and_all_present() -> None:
    processes = [
        Process(Identity(pid, 1), 1, "x", state, 1, 0.0, 0, ("x", 1))
        for pid, state in enumerate("RSSDTtZZI")
    ]
    assert count_states(processes) == {
        "running": 1,
        "sleeping": 2,
        "disk_sleep": 1,
        "stopped": 2,
        "zombie": 2,
        "other": 1,
    }
    assert set(count_states([]).values()) == {0}
