"""Checks the ZIP archives of `torch.save` without unpickling them.

The directory at the end has the checksum of each record; `data.pkl` names the storages; each is a
record. Sources: torch/serialization.py, caffe2/serialize/inline_container.cc, APPNOTE of
ZIP.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.paced_reader import PacedFile
from trainwarden_exporter.checkpoints.segments import FilePlan, Segment, number_type
from trainwarden_exporter.checkpoints.zip_headers import (
    DIRECTORY_END_BYTES,
    HEADER,
    HEADER_START,
    directory_bytes,
    directory_problems,
    header_problem,
)
from trainwarden_exporter.runtime.inert_pickle import PickleStructure, read_pickle

ZIP_END = b"PK\x05\x06"
MAX_PICKLE_BYTES = 16 << 20
"""Larger pickles are only compared with their checksum."""
MAX_DIRECTORY_BYTES = 64 << 20
MAX_TAIL_BYTES = 256 << 10
_IN_ZIP64 = 0xFFFFFFFF
"""Stands for a number that the ZIP64 record has."""

_STORAGES = {
    "DoubleStorage": ("F64", 8),
    "FloatStorage": ("F32", 4),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
    "UntypedStorage": ("", 1),
}
"""Type and bytes of an item, by the class of the storage."""
_WORLD_SIZES = {"dp_world_size": "zero_pp_rank", "mp_world_size": "mp_rank"}
"""Keys of DeepSpeed's model states, and the rank in file names that they count.
Source: deepspeed/runtime/engine.py, _save_checkpoint."""
_BY_TORCH = ("data.pkl", "version", "byteorder")
"""Records of each archive that torch writes; a damaged directory may lack one."""
_RANK_IN_NAME = re.compile(r"rank_?\d+|\d{5}-of-\d{5}")


class _Window(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, file: PacedFile, start: int, size: int) -> None:
        self._file, self._start, self._size = file, start, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("negative seek")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), self._size - self._position))
        data = self._file.read(self._start + self._position, size)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def plan_zip(
    file: PacedFile,
    name: str,
    start: int = 0,
    size: int | None = None,
    *,
    pause: Callable[[], None] = lambda: None,
) -> FilePlan:
    """Checks the directory of the archive in this part of `file`. Raises OSError."""
    size = file.size - start if size is None else size
    plan = _plan_zip(file, name, start, size, pause)
    stem = name.rpartition("/")[2].rpartition(".")[0]
    return plan if start or not plan.segments else _with_name_check(plan, name, stem)


def has_directory(file: PacedFile) -> bool:
    """Returns whether a directory is at the end of `file`. Raises OSError."""
    size = min(file.size, DIRECTORY_END_BYTES)
    return file.read(file.size - size, size).startswith(ZIP_END)


def _plan_zip(
    file: PacedFile, name: str, start: int, size: int, pause: Callable[[], None]
) -> FilePlan:
    tail = file.read(start + max(0, size - DIRECTORY_END_BYTES), min(size, DIRECTORY_END_BYTES))
    if not tail.startswith(ZIP_END):
        return _damaged(DamageKind.TRUNCATED, name, "the directory at its end is missing")
    stated_count, stated_bytes = struct.unpack_from("<HI", tail, 10)
    if min(stated_bytes, size) > MAX_DIRECTORY_BYTES and stated_bytes != _IN_ZIP64:
        return FilePlan((Segment(start, size, "its data"),))
    try:
        with zipfile.ZipFile(_Window(file, start, size)) as archive:
            records, directory = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        return _damaged(DamageKind.CORRUPT, name, f"the directory is damaged ({error})")
    if stated_count not in (len(records), 0xFFFF):
        return _damaged(DamageKind.CORRUPT, name, "the directory has lost records")
    by_torch = any(one.filename.rpartition("/")[2] in _BY_TORCH for one in records)
    segments, damages, ends = {}, [], []
    for record in records:
        pause()
        # zipfile subtracts what it takes for a preamble
        inside = 0 <= record.header_offset < size
        header = file.read(start + record.header_offset, HEADER.size) if inside else b""
        if len(header) < HEADER.size or not header.startswith(HEADER_START):
            detail = f"the header of record {record.filename} is damaged"
            damages.append(Damage(DamageKind.CORRUPT, name, detail))
            continue
        problem, data_end, end = header_problem(file, start, record, header)
        ends.append(end)
        data_start = data_end - record.compress_size
        if data_end > size:
            detail = f"record {record.filename} reaches beyond the end"
            damages.append(Damage(DamageKind.CORRUPT, name, detail))
            continue
        if problem and by_torch:
            detail = f"record {record.filename}: {problem}"
            damages.append(Damage(DamageKind.CORRUPT, name, detail))
        is_stored = record.compress_type == zipfile.ZIP_STORED
        segments[record.filename] = Segment(
            start + data_start,
            record.compress_size,
            record.filename,
            crc=record.CRC if is_stored else None,
        )
    if by_torch and not damages:  # then there are records
        tail_start = directory + directory_bytes(records[:-1])
        tail = file.read(start + tail_start, max(0, min(size - tail_start, MAX_TAIL_BYTES)))
        damages += [
            Damage(DamageKind.CORRUPT, name, f"the directory is damaged: {problem}")
            for problem in directory_problems(records, ends, directory, tail)
        ]
    return _with_storages(file, name, segments, damages, pause)


def _with_storages(
    file: PacedFile,
    name: str,
    segments: dict[str, Segment],
    damages: list[Damage],
    pause: Callable[[], None],
) -> FilePlan:
    """Adds what the archive's `data.pkl` says of its storages."""
    path = next((one for one in segments if one.rpartition("/")[2] == "data.pkl"), None)
    pickle = None if path is None else segments[path]
    world_sizes: tuple[tuple[str, int], ...] = ()
    if path is not None and pickle is not None and pickle.size <= MAX_PICKLE_BYTES:
        try:
            structure = read_pickle(file.read(pickle.start, pickle.size), pause=pause)
        except ValueError as error:
            damages.append(Damage(DamageKind.CORRUPT, name, f"{path} is damaged ({error})"))
        else:
            folder = path.removesuffix("data.pkl")
            damages += _apply_storages(name, folder, structure, segments)
            world_sizes = tuple(_world_sizes(structure.root))
    plain = _without_missing_checksums(tuple(segments.values()))
    return FilePlan(plain, tuple(damages), world_sizes=world_sizes)


def _apply_storages(
    name: str, folder: str, structure: PickleStructure, segments: dict[str, Segment]
) -> Iterator[Damage]:
    """Sets the type of the numbers of each storage; yields storages without their record."""
    for key in dict.fromkeys(one for one in structure.persistent_ids if _is_storage(one)):
        _, storage_class, storage, _, items = key
        kind, item_bytes = _STORAGES.get(storage_class.rpartition(" ")[2], ("", 0))
        record = f"{folder}data/{storage}"
        segment = segments.get(record)
        if segment is None:
            yield Damage(DamageKind.MISSING, name, f"record {record} is missing")
        elif item_bytes and segment.size != items * item_bytes:
            yield Damage(
                DamageKind.MISMATCH,
                name,
                f"record {record} has {segment.size} bytes, not {items * item_bytes}",
            )
        elif numbers := number_type(kind, items):
            segments[record] = Segment(
                segment.start, segment.size, segment.label, numbers, segment.crc
            )


def _is_storage(key: object) -> bool:
    return (
        isinstance(key, tuple)
        and len(key) == 5  # noqa: PLR2004 - as torch writes it
        and key[0] == "storage"
        and isinstance(key[1], str)
        and isinstance(key[2], str)
        and isinstance(key[4], int)
    )


def _without_missing_checksums(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Drops checksums that were not computed, as `set_crc32_options(False)` of torch has it."""
    if any(segment.crc for segment in segments if segment.size):
        return segments
    return tuple(Segment(one.start, one.size, one.label, one.numbers) for one in segments)


def _world_sizes(root: object) -> Iterator[tuple[str, int]]:
    for key, rank in _WORLD_SIZES.items():
        value = root.get(key) if isinstance(root, dict) else None
        if isinstance(value, int) and value > 0:
            yield rank, value


def _with_name_check(plan: FilePlan, name: str, stem: str) -> FilePlan:
    """Compares the name of the file with that in the archive, which torch takes from the file."""
    root = plan.segments[0].label.partition("/")[0]
    plan = replace(plan, saved_as=root)
    inner, outer = _RANK_IN_NAME.findall(root), _RANK_IN_NAME.findall(stem)
    same_family = _RANK_IN_NAME.sub("", root) == _RANK_IN_NAME.sub("", stem)
    if not inner or inner == outer or not same_family:
        return plan
    damage = Damage(DamageKind.MISMATCH, name, f"was saved as {root}")
    return replace(plan, damages=(*plan.damages, damage))


def _damaged(kind: DamageKind, name: str, detail: str) -> FilePlan:
    return FilePlan(damages=(Damage(kind, name, detail),))
