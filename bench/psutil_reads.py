"""Compares psutil with the exporter's own readers of /proc, in one run on this host.

Usage: python bench/psutil_reads.py [processes]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from trainwarden_exporter.processes import procfs

ROUNDS = 15


def own_table() -> None:
    procfs.read_processes()


def psutil_table() -> None:
    """Reads the same fields of each process, from one read of its files."""
    for process in psutil.process_iter():
        with suppress(psutil.Error), process.oneshot():
            process.create_time()
            process.ppid()
            process.name()
            process.status()
            process.num_threads()
            process.cpu_times()
            process.memory_info()


def own_usage(pids: Sequence[int]) -> None:
    for pid in pids:
        procfs.read_resident_bytes(pid)
        procfs.read_open_files(pid)
        procfs.read_open_files_limit(pid)
        procfs.read_transfers(pid)


def psutil_usage(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            process.memory_info()
            process.num_fds()
            process.rlimit(psutil.RLIMIT_NOFILE)
            process.io_counters()


def compare(what: str, own: Callable[[], None], library: Callable[[], None]) -> None:
    """Print the median of each; the two alternate, so that both meet the same load."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, measured in zip((own, library), times, strict=True):
            began = time.perf_counter()
            call()
            measured.append(1000 * (time.perf_counter() - began))
    ours, theirs = map(statistics.median, times)
    print(f"{what}: own {ours:.1f} ms, psutil {theirs:.1f} ms")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(count)]
    pids = [child.pid for child in children]
    try:
        compare(f"table of {count} processes", own_table, psutil_table)
        compare(f"usage of {count}", lambda: own_usage(pids), lambda: psutil_usage(pids))
    finally:
        for child in children:
            child.kill()
            child.wait()


if __name__ == "__main__":
    main()
