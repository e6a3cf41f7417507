"""The parts of a file that can be checked by content: records, tensors."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.number_scan import ITEM_BYTES, MIN_ITEMS, find_not_finite
from trainwarden_exporter.checkpoints.paced_reader import CHUNK_BYTES, PacedFile

ZERO_RUN = bytes(4096)
"""Zeros that are counted: a page that never reached the disk."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a file."""

    start: int
    size: int
    label: str = ""
    """Name of the tensor or record."""
    numbers: str = ""
    """Type of its numbers, a key of ITEM_BYTES; empty if they are not searched."""
    crc: int | None = None
    """CRC-32 that the format states; None if it states none."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is to be read of one file."""

    segments: tuple[Segment, ...] = ()
    damages: tuple[Damage, ...] = ()
    """Found in its structure, before its content was read."""
    tensors: frozenset[str] | None = None
    """Names of the tensors; None if the format does not show them."""
    world_sizes: tuple[tuple[str, int], ...] = ()
    """Numbers of ranks that the file states, by kind of rank."""
    saved_as: str = ""
    """Name, without its end, under which the file was written; "" if it does not show it."""
    shows_end: bool = True
    """Whether a file that is cut short would show it: by its format, or as another file says."""
    counts_zeros: bool = False
    """Whether the format has no checksum, so that zeroed pages are searched."""


@dataclass(slots=True)
class ContentResult:
    """What the content of one file shows."""

    crc: int = 0
    """CRC-32 over all of its segments."""
    zero_runs: int = 0
    number_bytes: int = 0
    """Bytes of numbers that were searched."""
    damages: list[Damage] = field(default_factory=list)


def number_type(kind: str, items: int) -> str:
    """Returns the type to search for, or "" for a type or a size that is not searched."""
    return kind if kind in ITEM_BYTES and items >= MIN_ITEMS else ""


def read_segment(
    file: PacedFile, name: str, segment: Segment, result: ContentResult, *, count_zeros: bool
) -> Iterator[int]:
    """Reads `segment` into `result`; yields the size of each chunk. Raises OSError."""
    crc, end, searched = 0, segment.start + segment.size, bool(segment.numbers)
    for start in range(segment.start, end, CHUNK_BYTES):
        data = file.read(start, min(CHUNK_BYTES, end - start))
        if len(data) < min(CHUNK_BYTES, end - start):
            damage = Damage(DamageKind.TRUNCATED, name, f"ends in {segment.label or 'its data'}")
            result.damages.append(damage)
            return
        crc = zlib.crc32(data, crc)
        if searched and find_not_finite(data, segment.numbers) is not None:
            detail = f"{segment.label} has numbers that are not finite"
            result.damages.append(Damage(DamageKind.NOT_FINITE, name, detail))
            searched = False
        if count_zeros and segment.numbers:
            result.zero_runs += data.count(ZERO_RUN)
            result.number_bytes += len(data)
        file.drop(start, len(data))
        yield len(data)
    result.crc = zlib.crc32(crc.to_bytes(4, "little"), result.crc)
    if segment.crc is not None and segment.crc != crc:
        detail = f"the checksum of {segment.label} is wrong"
        result.damages.append(Damage(DamageKind.CORRUPT, name, detail))
