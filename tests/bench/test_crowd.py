"""The crowd is as large as it was asked to be, and its workers are as what trains is."""

from __future__ import annotations

import time
from pathlib import Path

import scrapes
from trainwarden_exporter.processes.pid_counters import read_pids_allocated
from trainwarden_exporter.processes.procfs import read_command_line, read_processes

MEMBER = 4
"""Words of a command line; one more is that of the whole crowd."""


def members(program: Path) -> dict[str, list[Path]]:
    """The folders below /proc of a crowd, by the names of its members."""
    found = dict[str, list[Path]]()
    for pid in read_processes():
        words = read_command_line(pid) or ("",)
        if words[0] == str(program) and len(words) == MEMBER:
            found.setdefault(words[-1], []).append(Path(f"/proc/{pid}"))
    return found


def test_workers_have_mappings_and_threads_and_bystanders_have_not(tmp_path: Path) -> None:
    with scrapes.crowd(5, 2, tmp_path):
        found = members(tmp_path / "crowd")
        # and sometimes a child of the first bystander, which starts one a second
        assert sorted(found) == [
            "bystander-0",
            "bystander-1",
            "bystander-2",
            "worker-0",
            "worker-1",
        ]
        assert [len(found[name]) for name in sorted(found)[1:]] == [1, 1, 1, 1]
        for name, mappings, threads in (
            ("worker-0", scrapes.MAPPINGS, scrapes.THREADS),
            ("bystander-1", 0, 1),
        ):
            folder = found[name][0]
            there = len((folder / "maps").read_text().splitlines())
            assert mappings <= there < mappings + 60
            assert len(list((folder / "task").iterdir())) == threads
    assert not members(tmp_path / "crowd")


def test_workers_and_each_tenth_bystander_run_and_one_starts_processes(tmp_path: Path) -> None:
    def ran(folder: Path) -> int:
        """How often it was put to sleep."""
        status = (folder / "status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def given_out() -> int:
        handed = read_pids_allocated()
        assert handed is not None
        return handed.total

    with scrapes.crowd(4, 1, tmp_path):
        (worker,), first, (second,) = (
            members(tmp_path / "crowd")[name] for name in ("worker-0", "bystander-0", "bystander-1")
        )
        before, pids = [ran(one) for one in (worker, first[0], second)], given_out()
        deadline = time.monotonic() + 60
        while ran(worker) == before[0] or ran(first[0]) < before[1] + 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ran(second) == before[2]
        assert given_out() > pids
