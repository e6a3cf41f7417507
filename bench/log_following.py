"""What it costs to follow logs, whether every line counts once, and how mtail compares.

    python bench/log_following.py                         # 64 files, 50 MB/s in all, a minute
    python bench/log_following.py --seconds 5 --logs 1    # one log of 64 files
    python bench/log_following.py --mtail /usr/bin/mtail  # another mtail than the distribution's

A third of the files is rotated by renaming, a third by copying and truncating, every few megabytes.
The lines are as long as those of AReaL; one in 200 reports a step, one in 5000 an error. All that
the framework and any framework is known to write is looked for. mtail reads the same files, with a
program that counts the same expressions.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from log_reading import Reading, measured, patterns, programs, read_all, run_mtail, used_by
from peers import peer
from results import Growth, Result, times
from trainwarden_exporter.collectors.logs import LogsCollector
from trainwarden_exporter.logs.specs import LogSpec

STEP_EVERY = 200
TROUBLE_EVERY = 5000
ROTATED_AT = 8 << 20
"""Bytes after which a file is rotated."""
MTAIL_SHARE = 256
"""By how much less mtail is given to read, which takes its time."""
KEPT_SECONDS = 15.0
"""For which a rotated file is left."""

WORDS: tuple[str, ...] = (
    "rollout",
    "worker",
    "batch",
    "tokens",
    "forward",
    "backward",
    "update",
    "weights",
)
WORDS += ("actor", "critic", "reward", "advantage", "sequence", "padding", "cache", "request")
WORDS += ("response", "latency", "engine", "server", "scheduler", "queue")
REFUSED = "ConnectionRefusedError(111, \"Connect call failed ('172.17.0.2', 13231)\")"


@dataclass(frozen=True)
class Text:
    """A piece of a log, and what is to be counted in it."""

    content: bytes
    steps: int
    troubles: int


def text(size: int, seed: int) -> Text:
    """About `size` bytes of whole lines, as AReaL writes them."""
    dice = random.Random(seed)  # noqa: S311 - only to be the same each time
    lines: list[str] = []
    length = steps = troubles = 0
    while length < size:
        number = len(lines) + 1
        clock = time.strftime("%Y%m%d-%H:%M:%S", time.localtime(1.8e9 + number // 10))
        start = f"(AReaL) {clock}.{dice.randrange(1000):03d}"
        if number % STEP_EVERY == 0:
            steps += 1
            line = f"{start} StatsLogger INFO: Epoch 1/10 Step 7/935 Train step {steps}/9350 done."
        elif number % TROUBLE_EVERY == STEP_EVERY // 2:
            troubles += 1
            line = REFUSED
        else:
            message = " ".join(dice.choices(WORDS, k=dice.randrange(5, 18)))
            line = f"{start} WorkflowExecutor INFO: {message} {dice.random():.4f}"
        lines.append(line)
        length += len(line) + 1
    return Text("".join(f"{line}\n" for line in lines).encode(), steps, troubles)


@dataclass
class Written:
    """What a writer has written."""

    size: int = 0
    steps: int = 0
    troubles: int = 0
    rotations: int = 0


def write(folder: Path, files: int, rate: float, seconds: float, pipe: Connection) -> None:
    """Write to `files` files, `rate` bytes a second in all, and rotate them."""
    pieces = [text(int(rate / files / 10), seed) for seed in range(8)]
    done, old = Written(), deque[tuple[float, Path]]()
    began, turn = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        for number in range(files):
            piece = pieces[(turn + number) % len(pieces)]
            path = folder / f"rank{number}.log"
            with path.open("ab", buffering=0) as file:
                file.write(piece.content)
                size = file.tell()
            done.size += len(piece.content)
            done.steps += piece.steps
            done.troubles += piece.troubles
            if number % 3 and size > ROTATED_AT + number * 65536:  # not all of them at once
                rotated = path.with_name(f"{path.name}.{turn}")
                if number % 3 == 1:
                    path.rename(rotated)
                else:
                    shutil.copyfile(path, rotated)
                    os.truncate(path, 0)
                old.append((now, rotated))
                done.rotations += 1
        while old and old[0][0] < now - KEPT_SECONDS:
            old.popleft()[1].unlink()
        turn += 1
        time.sleep(max(0.0, began + done.size / rate - time.monotonic()))
    pipe.send(done)


def resident() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def follow(folder: Path, args: argparse.Namespace) -> None:
    """Follow what a writer in another process writes, and print how that went."""
    names = [f"rank{number}.log" for number in range(args.files)]
    shares = [tuple(names[first :: args.logs]) for first in range(args.logs)]
    found = patterns(args.framework)
    for name in names:
        (folder / name).touch()
    collector = LogsCollector(
        [LogSpec("run", f"l{n}", folder, share, found) for n, share in enumerate(shares)],
        state_folder=folder / "state",
    )
    count(collector)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    writer = multiprocessing.get_context("spawn").Process(
        target=write, args=(folder, args.files, args.rate * 1e6, args.seconds, theirs), daemon=True
    )
    writer.start()
    memory, scrapes = [], []
    used = time.process_time()
    while not ours.poll(1.0):
        began = time.perf_counter()
        count(collector)
        scrapes.append(time.perf_counter() - began)
        memory.append(resident())
    written: Written = ours.recv()
    deadline = time.monotonic() + 60
    counted = count(collector)
    while counted[0] < written.size and time.monotonic() < deadline:
        time.sleep(0.2)
        counted = count(collector)
    time.sleep(2)
    counted = count(collector)
    used = time.process_time() - used
    scrapes.sort()
    early = memory[len(memory) // 6]
    print(
        f"{args.files} files in {args.logs} logs, {len(found)} patterns, "
        f"{written.size / 1e6:.0f} MB in {args.seconds:g} s, {written.rotations} rotations"
    )
    collector.close()
    print(f"  bytes: {counted[0]:.0f} read of {written.size}")
    for name, ours_, theirs_ in (
        ("steps", counted[1], written.steps),
        ("lines of trouble", counted[2], written.troubles),
    ):
        verdict = "exact" if ours_ == theirs_ else "WRONG"
        print(f"  {name}: {ours_:.0f} of {theirs_} {verdict}")
    print(f"  CPU: {used:.2f} s, scrapes included: {used / written.size * 1e9:.2f} s per GB")
    print(
        f"  memory: {early:.1f} MiB early, {memory[-1]:.1f} at the end, {max(memory):.1f} at most"
    )
    median, worst = scrapes[len(scrapes) // 2] * 1e3, scrapes[-1] * 1e3
    print(f"  scrapes: {median:.1f} ms median, {worst:.1f} ms worst")


def count(collector: LogsCollector) -> tuple[float, float, float]:
    """Bytes, steps and lines of trouble by now, of all logs."""
    families = {family.name: family for family in collector.collect()}

    def total(name: str, **labels: str) -> float:
        samples = families[f"trainwarden_log_{name}"].samples
        return sum(one.value for one in samples if labels.items() <= one.labels.items())

    return total("read_bytes"), total("matches", pattern="step"), total("error_lines")


def write_whole(folder: Path, files: int, size: int) -> list[Path]:
    """Write `files` files of `size` bytes in all."""
    paths = [folder / f"whole{number}.log" for number in range(files)]
    # In another process: a child cannot tell its own memory from what its parent had.
    used_by(_write_whole, paths, size)
    return paths


def _write_whole(paths: Sequence[Path], size: int) -> None:
    pieces = [text(size // len(paths) // 4, seed).content for seed in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(pieces[(number + turn) % 4] for turn in range(4)))


def compare(folder: Path, mtail: str | Path, framework: str, megabytes: int) -> Result:
    """Read files that are there, of so many megabytes in all, with and without mtail."""
    found = patterns(framework)
    rows, points = list[tuple[str, ...]](), list[tuple[float, float]]()

    def add(files: int, size: int, name: str, one: Reading, ours: Reading) -> None:
        rows.append(
            (
                str(files),
                f"{size} MB",
                name,
                f"{one.per_gb:.2f} s",
                f"{one.most:.0f} MiB",
                f"{one.least:.0f} MiB",
                times(one.per_gb, ours.per_gb),
            )
        )

    for files in (1, 64):
        for size in (megabytes // 16, megabytes // 4, megabytes):
            paths = write_whole(folder, files, size * 1_000_000)
            ours = measured(paths, read_all, found)
            add(files, size, "trainwarden", ours, ours)
            if files == 1:
                points.append((float(size), ours.cpu * 1000))
        less = max(1, megabytes // MTAIL_SHARE)
        paths = write_whole(folder, files, less * 1_000_000)
        for name, program in programs(found).items():
            progs = folder / "progs"
            progs.mkdir(exist_ok=True)
            (progs / "same.mtail").write_text(program)
            theirs = measured(paths, run_mtail, str(mtail), str(progs))
            add(files, less, f"mtail, {name}", theirs, ours)
    return Result(
        "Following logs",
        f"CPU time for each GB of a log of {framework}, in which all that this framework and any "
        f"framework writes is looked for ({len(found)} patterns), and the most memory with and "
        "without something to read. mtail counts the same, with two programs: each expression "
        f"alone, and groups of them first; it is given 1/{MTAIL_SHARE} to read, for its time. It "
        "is meant for a few anchored expressions, and these are none: the comparison says what the "
        "same patterns cost there, not what its users pay.",
        ("files", "size", "program", "CPU per GB", "memory", "memory at rest", "beside ours"),
        tuple(rows),
        (Growth("Log bytes", "MB of log", "ms of CPU", tuple(points)),),
    )


def bench(megabytes: int = 512) -> Result:
    """The comparison alone."""
    with tempfile.TemporaryDirectory(prefix="log-following-") as folder:
        return compare(Path(folder), peer("mtail")[0], "areal", megabytes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--logs", type=int, default=64, help="over how many logs they are spread")
    parser.add_argument("--rate", type=float, default=50, help="MB a second in all")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--framework", default="areal")
    parser.add_argument("--compare", type=int, default=512, help="MB to read for the comparison")
    parser.add_argument("--mtail", help="the program")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="log-following-")))
            for _ in range(2)
        ]
        mtail = args.mtail or peer("mtail")[0]
        print(compare(folders[0], mtail, args.framework, args.compare).text())
        if args.seconds:
            follow(folders[1], args)


if __name__ == "__main__":
    main()
