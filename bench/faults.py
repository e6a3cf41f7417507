"""What five faults at once do to scrapes: whether they are lost, and how long they take.

    python bench/faults.py

An exporter with everything switched on is scraped while all is well. Then, within a second, the
NVML hangs, a disk hangs (an unanswered FUSE mount; needs root), a FIFO lies where a log
was, ten inference servers accept connections and say nothing, and the folder of the checkpoints
holds 100,000 files.
"""

from __future__ import annotations

import ctypes
import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from everything import SERVERS, everything
from programs import Program
from results import Result, mebibytes, milliseconds

WORKERS = 64
FILES = 100_000
WELL, FAULTY = 20, 40
PAUSE = 0.25
SCRAPE_TIMEOUT = 4.0
"""Seconds, as shipped: a scrape that takes longer is lost."""
SETTLE_SECONDS = 10.0
DETACH = 2  # MNT_DETACH in sys/mount.h


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape: its seconds and the failed collectors."""

    seconds: float
    failed: frozenset[str]


def scrape(program: Program) -> Scrape:
    """Scrape once."""
    began = time.perf_counter()
    page = program.scrape().decode()
    taken = time.perf_counter() - began
    lines = (line for line in page.splitlines() if line.startswith("trainwarden_collector_success"))
    return Scrape(taken, frozenset(line.split('"')[1] for line in lines if line.endswith(" 0.0")))


def scrapes(program: Program, count: int) -> list[Scrape]:
    """So many, one after the other."""
    found = []
    for _ in range(count):
        time.sleep(PAUSE)
        found.append(scrape(program))
    return found


@contextmanager
def hung(place: Path) -> Iterator[bool]:
    """Mount over `place` what never answers; False where that may not be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    done = libc.mount(b"bench", bytes(place), b"fuse", 0, options.encode()) == 0
    try:
        yield done
    finally:
        os.close(device)  # which ends all that still waits
        if done:
            libc.umount2(bytes(place), DETACH)


def put_fifo(log: Path) -> None:
    """Replace a log with a FIFO without a writer."""
    new = log.with_suffix(".new")
    os.mkfifo(new)
    new.replace(log)


def fill(folder: Path, count: int) -> None:
    """Make a folder of so many empty files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"step_{number}").touch()


def row(name: str, found: Sequence[Scrape], resident: int) -> tuple[str, ...]:
    """What these scrapes came to."""
    seconds = sorted(one.seconds for one in found)
    failed = frozenset[str]().union(*(one.failed for one in found))
    return (
        name,
        str(len(found)),
        str(sum(one > SCRAPE_TIMEOUT for one in seconds)),
        milliseconds(statistics.median(seconds)),
        milliseconds(seconds[-1]),
        mebibytes(resident),
        ", ".join(sorted(failed)) or "none",
    )


def bench() -> Result:
    """Measure before the faults and with them."""
    with ExitStack() as stack:
        box = stack.enter_context(everything(WORKERS))
        program, huge = box.program, box.folder / "huge"
        fill(huge, FILES)
        scrape(program)
        time.sleep(SETTLE_SECONDS)
        well = scrapes(program, WELL)
        rows = [row("all is well", well, program.resident())]

        is_hung = stack.enter_context(hung(box.disk))
        box.box.hang()
        stack.callback(box.box.release)
        put_fifo(box.log)
        os.kill(box.server, signal.SIGSTOP)
        box.checkpoints.rename(box.folder / "before")
        huge.rename(box.checkpoints)
        first = scrape(program)
        rows.append(row("five faults, the first scrape", [first], program.resident()))
        later = scrapes(program, FAULTY)
        rows.append(row("five faults, all later ones", later, program.resident()))
    without = "" if is_hung else " The hung mount is missing: it could not be made here."
    return Result(
        "Five faults at once",
        f"Everything is switched on: {WORKERS} workers, eight simulated GPUs, disk, log, "
        f"checkpoints, {SERVERS} servers, heartbeats. Lost is a scrape that takes longer than the "
        f"shipped timeout of {SCRAPE_TIMEOUT:g} s.{without}",
        ("scrapes", "count", "lost", "median", "slowest", "resident", "collectors that failed"),
        tuple(rows),
    )


if __name__ == "__main__":
    print(bench().text())
