"""The damages: what is done to the files of a checkpoint."""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

from trainwarden_exporter.checkpoints.file_formats import METADATA, TENSOR_SUFFIXES, plan_file
from trainwarden_exporter.checkpoints.paced_reader import open_paced
from trainwarden_exporter.checkpoints.segments import Segment

Damage = Callable[[Path], None]
"""What happens to the checkpoint at that path."""


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def files_of(entry: Path) -> list[Path]:
    return sorted(entry.rglob("*")) if entry.is_dir() else [entry]


def tensor_files(entry: Path) -> list[str]:
    """Returns the files of tensors of a checkpoint, relative to it; "" for a single file."""
    if not entry.is_dir():
        return [""]
    found = (path for path in sorted(entry.rglob("*")) if path.name.endswith(TENSOR_SUFFIXES))
    return [str(path.relative_to(entry)) for path in found]


def segments_of(path: Path) -> tuple[Segment, ...]:
    with open_paced(str(path)) as file:
        segments = plan_file(file, path.name).segments
    items = path.with_name(METADATA)
    if path.suffix == ".distcp" and items.exists():
        size = path.stat().st_size
        return tuple(Segment(size * part // 8, size // 8) for part in range(8))
    return segments


def overwrite(path: Path, start: int, data: bytes, *, keep_time: bool = False) -> None:
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cuts(path: Path) -> list[int]:
    """Returns where a file is cut: at the boundaries of its structure, and beside them."""
    size = path.stat().st_size
    points = {0, 1, 4, 8, 64, size // 2, size - 30, size - 22, size - 1}
    for segment in segments_of(path):
        points |= {segment.start, segment.start + 1, segment.start + segment.size}
    return sorted(point for point in points if 0 <= point < size)


def cut_at(name: str, point: int) -> Damage:
    return lambda entry: os.truncate(entry / name, point)


def write_at(name: str, start: int, data: bytes, *, keep_time: bool = False) -> Damage:
    return lambda entry: overwrite(entry / name, start, data, keep_time=keep_time)


def renamed(name: str) -> Damage:
    """A save that died before it gave its file the final name."""
    return lambda entry: _move(entry / name, Path(f"{entry / name}.tmp"))


def copied(name: str) -> Damage:
    return lambda entry: copy(entry / name, Path(f"{entry / name}.tmp"))


def removed(name: str) -> Damage:
    return lambda entry: (entry / name).unlink()


def unreadable(name: str) -> Damage:
    return lambda entry: (entry / name).chmod(0)


def swapped(first: str, second: str) -> Damage:
    return lambda entry: _swap(entry / first, entry / second)


def rewritten(path: Path, text: str) -> Damage:
    return lambda _: rewrite(path, text)


def not_a_number(name: str, segment: Segment, offset: int) -> Damage:
    return lambda entry: _put_nan(entry / name, segment, offset)


def _put_nan(path: Path, segment: Segment, offset: int) -> None:
    """Writes NaN as a run that has diverged would: with a correct checksum."""
    nan = struct.pack("<f", float("nan"))
    if path.suffix == ".safetensors":
        overwrite(path, offset, nan)
        return
    with zipfile.ZipFile(path) as archive:
        records = [(one, archive.read(one)) for one in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, data in records:
            start = offset - segment.start
            is_it = info.filename == segment.label
            archive.writestr(info, data[:start] + nan + data[start + 4 :] if is_it else data)


def read_at(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _swap(first: Path, second: Path) -> None:
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


def _move(source: Path, target: Path) -> None:
    source.rename(target)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
