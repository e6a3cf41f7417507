"""What the proof of a checkpoint of 50 GB costs: scrapes, memory, and a run on the same disk.

    python bench/large_checkpoints.py [FOLDER]    # a folder on the disk to measure; 5 minutes

The files are sparse. The exporter that proves them is measured in turns with one whose run has a
checkpoint of a few bytes, and a run that computes and saves with neither beside it. The share of
the disk's bandwidth is that of the proof of a gigabyte that is on the disk, and not in memory.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from programs import Program, disk_bytes_read, exporter, free_port, running
from trainwarden_exporter.checkpoints.paced_reader import seconds_waited_for_cpu

FILES, FILE_BYTES = 10, 5 << 30
TURNS, SCRAPES = 4, 15
"""One scrape a second."""
MAX_SCRAPE_RATIO, MAX_STEP_RATIO, MAX_GROWTH = 1.5, 1.1, 16 << 20
DENSE_BYTES, DENSE_SCRAPES, START_SECONDS = 1 << 30, 12, 60.0
MAX_DISK_SHARE = 0.02
RUN = """
import os, sys, time
while True:
    began = time.perf_counter()
    sum(range(400_000))
    stepped = time.perf_counter()
    with open(sys.argv[1], "wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    print(stepped - began, time.perf_counter() - stepped, flush=True)
    time.sleep(0.05)
"""


def save(folder: Path, tensor_bytes: int, files: int) -> None:
    """Writes a checkpoint of the Trainer of transformers; the tensors are holes."""
    folder.mkdir(parents=True)
    names = [f"model-{number:05}-of-{files:05}.safetensors" for number in range(1, files + 1)]
    for number, name in enumerate(names):
        tensor = {"dtype": "U8", "shape": [tensor_bytes], "data_offsets": [0, tensor_bytes]}
        header = json.dumps({f"w{number}": tensor}).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + tensor_bytes)
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 10}))
    long_ago = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (long_ago, long_ago))


@contextmanager
def watching(folder: Path) -> Iterator[Program]:
    """An exporter of a run in `folder`."""
    file, port = folder / "exporter.yml", free_port()
    run = {"name": "run", "framework": "trl", "path": str(folder / "out")}
    file.write_text(yaml.safe_dump({"state_folder": str(folder / "state"), "runs": [run]}))
    with running(exporter(file, port), port) as program:
        yield program


def measure_run(folder: Path, seconds: float) -> tuple[float, float]:
    """Returns the median seconds of a step and of a save of a run beside what runs now."""
    command = [sys.executable, "-c", RUN, str(folder / "saved")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(seconds)
        process.kill()
        lines = process.communicate()[0].splitlines()[:-1]
    pairs = [tuple(map(float, line.split())) for line in lines]
    return statistics.median(one[0] for one in pairs), statistics.median(one[1] for one in pairs)


def fill(file: Path) -> None:
    """Fills the holes of `file` after its header with bytes that are on the disk alone."""
    block, end = os.urandom(1 << 20), file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(4096)
        while opened.tell() < end:
            opened.write(block[: end - opened.tell()])


def forget(file: Path) -> None:
    """Lets the kernel drop the pages of `file`."""
    with file.open("r+b") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.utime(opened.fileno(), (time.time() - 3600,) * 2)


def sequential_rate(file: Path) -> float:
    """Returns the bytes a second that the disk gives to a program that reads all of `file`.

    Without the time in which the program waits for a CPU, which the proof does not count either.
    """
    forget(file)
    before, began, waited = disk_bytes_read("self"), time.perf_counter(), seconds_waited_for_cpu()
    with file.open("rb", buffering=0) as opened:
        while opened.read(1 << 20):
            pass
    seconds = time.perf_counter() - began - (seconds_waited_for_cpu() - waited)
    rate = (disk_bytes_read("self") - before) / seconds
    forget(file)
    return rate


def disk_share(folder: Path) -> float | None:
    """Returns the share of the disk's bandwidth that a proof takes; None if no disk is read."""
    (saved,) = folder.glob("out/*/*.safetensors")
    fill(saved)
    bandwidth = min(sequential_rate(saved) for _ in range(3))  # the host may cache it
    with watching(folder) as program:
        under_way, until = program.disk_read() + (8 << 20), time.monotonic() + START_SECONDS
        while program.disk_read() < under_way and time.monotonic() < until:
            program.measure(1, pause=1.0)  # what is not scraped is not proved
        before, began = program.disk_read(), time.perf_counter()
        program.measure(DENSE_SCRAPES, pause=1.0)
        proved = (program.disk_read() - before) / (time.perf_counter() - began)
    print(
        f"the proof reads {proved / 1e6:.1f} MB/s of a disk of {bandwidth / 1e6:.0f} MB/s",
        flush=True,
    )
    return proved / bandwidth if proved and bandwidth else None


def main() -> None:
    """Prints the ratios; exits with 1 if one is beyond its bound."""
    with ExitStack() as ending:
        place = sys.argv[1] if len(sys.argv) > 1 else None
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(dir=place)))
        (folder / "large").mkdir()
        (folder / "small").mkdir()
        (folder / "dense").mkdir()
        save(folder / "large" / "out" / "checkpoint-10", FILE_BYTES, FILES)
        save(folder / "small" / "out" / "checkpoint-10", 64, 1)
        save(folder / "dense" / "out" / "checkpoint-10", DENSE_BYTES, 1)
        share = disk_share(folder / "dense")
        alone = measure_run(folder, 2 * SCRAPES)
        small = ending.enter_context(watching(folder / "small"))
        large = ending.enter_context(watching(folder / "large"))
        costs = {one: one.measure(SCRAPES, pause=1.0) for one in (small, large)}
        before = large.resident()
        beside = measure_run(folder, 2 * SCRAPES)
        taken: dict[Program, list[float]] = {small: [], large: []}
        for _ in range(TURNS):
            for program, medians in taken.items():
                costs[program] = program.measure(SCRAPES, pause=1.0)
                medians.append(costs[program].median)
        scrape = statistics.median(taken[large]) / statistics.median(taken[small])
        growth = large.resident() - before
        step, saved = (now / then for now, then in zip(beside, alone, strict=True))
        size = FILES * FILE_BYTES / 1e9
        print(
            f"a scrape beside the proof of {size:.0f} GB: {scrape:.2f} of one without, in", end=""
        )
        print(f" the last turn {costs[large].median * 1e3:.1f} ms")
        print(f"resident memory in {2 * TURNS * SCRAPES} s: {growth / 1e6:+.1f} MB")
        print(f"a run beside it: steps take {step:.3f}, saves {saved:.3f} of their time alone")
        if share is None:
            raise SystemExit("the proof read nothing from a disk: give a folder on one")
        print(f"share of the disk's bandwidth: {share:.2%}")
        slows = scrape > MAX_SCRAPE_RATIO or step > MAX_STEP_RATIO
        if slows or growth > MAX_GROWTH or share > MAX_DISK_SHARE:
            raise SystemExit("beyond the bounds")


if __name__ == "__main__":
    main()
