"""Reading is slow, in little memory, and never more than a part of what is large."""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import struct
import time
import tracemalloc
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from types import SimpleNamespace

import pytest

from trainwarden_exporter.checkpoints import entry_check, paced_reader
from trainwarden_exporter.checkpoints.entry_check import EntryCheck, stat_files
from trainwarden_exporter.checkpoints.paced_reader import (
    MAX_BYTES_PER_SECOND,
    PacedFile,
    ReadRate,
    UnlimitedRate,
    lower_priority,
    open_paced,
    read_io_pressure,
    seconds_waited_for_cpu,
)
from trainwarden_exporter.step_dirs.filesystem import FileSystem

GIB = 1 << 30
MIB = 1 << 20
QUIET, BUSY = (
    f"some avg10={percent} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00\n"
    for percent in ("3.10", "45.00")
)


def rate(folder: Path, pressure: str = QUIET) -> ReadRate:
    (folder / "io").write_text(pressure)
    return ReadRate(clock=lambda: 100.0, pressure=folder / "io")


def test_reading_takes_one_and_a_half_percent_of_the_disks_time(tmp_path: Path) -> None:
    assert rate(tmp_path).charge(MIB, 0.09, 0.0) == pytest.approx(6.0)


def test_checking_takes_a_tenth_of_a_core(tmp_path: Path) -> None:
    assert rate(tmp_path).charge(MIB, 0.0, 0.1) == pytest.approx(1.0)


def test_pages_in_memory_are_read_at_a_limited_rate(tmp_path: Path) -> None:
    assert rate(tmp_path).charge(MAX_BYTES_PER_SECOND, 0.0, 0.0) == pytest.approx(1.0)


def test_all_readers_share_one_rate(tmp_path: Path) -> None:
    shared = rate(tmp_path)
    assert [shared.charge(MIB, 0.015, 0.0) for _ in range(3)] == pytest.approx([1.0, 2.0, 3.0])


def test_a_busy_disk_is_read_ten_times_more_slowly(tmp_path: Path) -> None:
    assert rate(tmp_path, BUSY).charge(MIB, 0.075, 0.0) == pytest.approx(50.0)


def test_a_kernel_without_pressure_counts_as_not_busy(tmp_path: Path) -> None:
    assert read_io_pressure(tmp_path / "none") == 0.0


def test_a_wait_for_a_cpu_is_no_time_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host of forty times the load that it can bear, checkpoints stayed without a proof."""
    (tmp_path / "schedstat").write_text("158445 7500000000 2\n")
    assert seconds_waited_for_cpu(tmp_path / "schedstat") == 7.5
    assert seconds_waited_for_cpu(tmp_path / "absent") == 0
    times, waits = iter([100.0, 103.0]), iter([7.5, 10.0])
    monkeypatch.setattr(paced_reader, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(paced_reader, "seconds_waited_for_cpu", lambda: next(waits))
    monkeypatch.setattr(PacedFile, "_read_cached", lambda *_: b"158")
    with open_paced(str(tmp_path / "schedstat")) as file:
        assert file.read(0, 6) == b"158445"
    assert file.read_seconds == pytest.approx(0.5)
    assert file.bytes_read == 6


def test_what_is_in_memory_takes_no_time_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time until a thread among many runs on would count fifty times."""
    path = tmp_path / "model.pt"
    path.write_bytes(b"0123456789" * 1000)
    ticks = itertools.count()
    monkeypatch.setattr(
        paced_reader, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    )
    with open_paced(str(path)) as file, path.open("rb") as probe:
        try:
            os.preadv(probe.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pytest.skip("this file system cannot tell what is in memory")
        assert file.read(10, 5000) == b"0123456789" * 500
        assert (file.read_seconds, file.bytes_read) == (0, 5000)


def test_a_file_system_in_memory_has_no_time_of_a_disk() -> None:
    """It does not support RWF_NOWAIT; checkpoints of twenty runs stayed without a proof there."""
    if not (shared := Path("/dev/shm")).is_dir():
        pytest.skip("no file system in memory")
    with NamedTemporaryFile(dir=shared) as made:
        made.write(b"0123456789" * 1000)
        made.flush()
        with open_paced(made.name) as file:
            assert file.read(10, 5000) == b"0123456789" * 500
            assert (file.read_seconds, file.bytes_read) == (0, 5000)


def test_the_priority_of_the_thread_alone_is_lowered() -> None:
    seen: list[int] = []

    def work() -> None:
        lower_priority()
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [19]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "model.pt")
    with pytest.raises(OSError, match="not a regular file"), open_paced(str(tmp_path / "model.pt")):
        pass


def pages_in_memory(path: Path) -> list[bool]:
    """Which pages of the file the kernel has in memory (mincore(2))."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        found = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        size = ctypes.c_size_t(len(mapped))
        done = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), size, found)
        del first
    assert done == 0
    return [bool(page & 1) for page in found]


def test_the_kernel_reads_nothing_ahead_which_the_rate_would_not_see(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with path.open("wb") as file:
        file.write(os.urandom(16 * MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if any(pages_in_memory(path)):
        pytest.skip("the file system keeps its files in memory")
    with open_paced(str(path)) as paced:
        for start in range(0, 4 * MIB, MIB):
            assert len(paced.read(start, MIB)) == MIB
        found = pages_in_memory(path)
    assert any(found[: 4 * MIB // mmap.PAGESIZE])
    assert not any(found[4 * MIB // mmap.PAGESIZE :])


def sparse_shard(path: Path, size: int) -> None:
    """A safetensors file with one tensor of `size` bytes, which take no room on the disk."""
    tensor = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}
    header = json.dumps({"layer.weight": tensor}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)


def test_of_fifty_gigabytes_a_part_of_each_file_is_read_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 11):
        sparse_shard(tmp_path / f"model-{number:05d}-of-00010.safetensors", 5 * GIB)
    monkeypatch.setattr(entry_check, "MAX_CONTENT_BYTES", 64 * MIB)
    files = stat_files(FileSystem(), str(tmp_path))
    assert files is not None
    check = EntryCheck(str(tmp_path), files, UnlimitedRate(), lambda: None)
    tracemalloc.start()
    for _ in check.steps():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # at least a part of each, and hardly more than the limit
    assert 10 * entry_check.PART_BYTES <= check.bytes_read <= 20 * entry_check.PART_BYTES
    assert peak < 16 * MIB
    record = check.record
    assert {file.crc is not None for file in record.files.values()} == {True}
    assert record.checked_at <= time.time()


def test_each_step_of_a_check_reads_a_chunk_at_most(tmp_path: Path) -> None:
    sparse_shard(tmp_path / "model.safetensors", 20 * MIB)
    files = stat_files(FileSystem(), str(tmp_path))
    assert files is not None
    check = EntryCheck(str(tmp_path), files, ReadRate(), lambda: None)
    pauses = [pause for pause in check.steps() if pause]
    assert len(pauses) == 21  # the header, and a pause after each MiB
