from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from trainwarden_exporter.processes.procfs import read_resident_bytes
from trainwarden_remediator.runtime.memory_reserve import MemoryReserve, lock_memory

SIZE = 32 << 20

# Takes all the memory it may have, down to the last small piece, and then needs some: to start a
# program, and to read an answer of 1 MiB.
STARVING = """
import resource, subprocess, sys
from trainwarden_remediator.runtime.memory_reserve import MemoryReserve
reserve = MemoryReserve(int(sys.argv[1]))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
assert reserve.allocate()
hoard, size = [], 8 << 20
while size > 64:
    try:
        hoard.append(bytearray(size))
    except MemoryError:
        size //= 2
def need():
    try:
        read = bytearray(1 << 20)
        return subprocess.run(["/bin/echo", "acted"], capture_output=True).stdout.decode().strip()
    except (MemoryError, OSError):
        return "starved"
before = need()
reserve.release()
print(before, need())
"""


def starve(reserve: int) -> str:
    command = [sys.executable, "-c", STARVING, str(reserve)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_is_set_aside_is_really_there_and_really_given_back() -> None:
    reserve = MemoryReserve(SIZE)
    before = read_resident_bytes(os.getpid()) or 0
    assert reserve.allocate()
    assert reserve.allocate()
    is_allocated = read_resident_bytes(os.getpid()) or 0
    assert is_allocated - before > SIZE * 0.9
    reserve.release()
    reserve.release()
    assert is_allocated - (read_resident_bytes(os.getpid()) or 0) > SIZE * 0.9
    assert reserve._memory is None


def test_with_nothing_to_be_had_the_reserve_is_what_it_acts_with() -> None:
    assert starve(16 << 20) == "starved acted"


def test_without_a_reserve_it_could_not_act() -> None:
    assert starve(0) == "starved starved"


def test_a_reserve_that_cannot_be_had_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr("trainwarden_remediator.runtime.memory_reserve.mmap.mmap", refuse)
    reserve = MemoryReserve(SIZE)
    assert not reserve.allocate()
    reserve.release()


@pytest.mark.parametrize(
    ("limit", "privileged", "answer", "locked"),
    [
        (resource.RLIM_INFINITY, False, 0, True),
        (8 << 20, True, 0, True),
        (8 << 20, False, 0, False),
        (resource.RLIM_INFINITY, False, -1, False),
    ],
)
def test_memory_is_locked_only_where_nothing_limits_it(
    limit: int, privileged: bool, answer: int, locked: bool
) -> None:
    asked: list[int] = []

    def lock(flags: int) -> int:
        asked.append(flags)
        return answer

    assert lock_memory(lock, limit=limit, privileged=privileged) is locked
    # What is there and what comes, as it is used: not the stacks of threads, whole.
    assert asked == ([7] if privileged or limit == resource.RLIM_INFINITY else [])


def test_locking_is_asked_of_the_real_kernel_without_harm() -> None:
    program = (
        "from trainwarden_remediator.runtime.memory_reserve import lock_memory; "
        "print(lock_memory() in (0, 1))"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"
