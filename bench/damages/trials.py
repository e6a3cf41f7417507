"""The trials of one layout: which damages, and which sound checkpoints and saves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from damages.inflict import (
    Damage,
    copied,
    cut_at,
    cuts,
    files_of,
    not_a_number,
    read_at,
    removed,
    renamed,
    rewritten,
    segments_of,
    swapped,
    tensor_files,
    unreadable,
    write_at,
)
from damages.yard import LATER, Yard
from trainwarden_exporter.checkpoints.file_formats import METADATA

SOUND_PER_LAYOUT = 46
REGION = 16384
"""Bytes that are zeroed: at least a page lies within."""
FILES = 4
"""Files of a checkpoint that are damaged in each way."""
STRUCTURE = ("truncated", "missing", "garbled", "swapped", "permissions", "leftover", "tracker")
CONTENT = ("bit flip", "zeros", "NaN")


@dataclass(frozen=True)
class Trial:
    """A damage of the newest checkpoint, at its path."""

    kind: str
    damage: Damage
    after_proof: bool = False
    """Whether the checkpoint was proved before: formats without a checksum show it only then."""


def structural(yard: Yard, random: Random) -> Iterator[Trial]:
    entry, names = yard.kept, tensor_files(yard.kept)
    for name in random.sample(names, min(FILES, len(names))):
        points = cuts(entry / name)
        for point in random.sample(points, min(7, len(points))):
            yield Trial("truncated", cut_at(name, point))
        size = (entry / name).stat().st_size
        for start in (0, 4, size - 22, size - 12):
            is_data = start > 0 and (entry / name).suffix == ".safetensors"
            if not is_data and (entry / name).suffix != ".distcp":
                yield Trial("garbled", write_at(name, start, random.randbytes(8)))
        yield Trial("permissions", unreadable(name))
    if entry.is_dir():
        yield from _of_folder(entry, names, random)
    if yard.tracker is not None:
        step = yard.step or 0
        for number in (yard.step_before, *range(step + 1, step + 6)):
            text = yard.tracker_text.replace(str(step), str(number))
            yield Trial("tracker", rewritten(yard.tracker, text))
        yield Trial("tracker", rewritten(yard.tracker, ""))


def _of_folder(entry: Path, names: list[str], random: Random) -> Iterator[Trial]:
    # whether a file that belongs to no set is needed, no format says
    alone = ("training_args.bin", "data.pt", "trainer_state.pt", "common.pt")
    required = [name for name in names if not name.endswith(alone)]
    metadata = [str(one.relative_to(entry)) for one in entry.rglob(METADATA)]
    for name in (*required, *metadata):
        yield Trial("missing", removed(name), after_proof=name in metadata)
    for name in random.sample(required, min(6, len(required))):
        yield Trial("leftover", copied(name))
        yield Trial("leftover", renamed(name))
    indexes = [one for one in entry.rglob("*.json") if one.name != "generation_config.json"]
    for path in indexes[:3]:
        size = path.stat().st_size
        for point in (1, size // 3, size // 2, size - 2):
            yield Trial("truncated", cut_at(str(path.relative_to(entry)), point))
    for first, second in pairwise(required):
        if Path(first).suffix == Path(second).suffix:
            is_named = Path(first).name != Path(second).name and Path(first).suffix != ".distcp"
            is_named = is_named and ("rank" in Path(first).name or "-of-" in first)
            yield Trial("swapped", swapped(first, second), after_proof=not is_named)


def content(yard: Yard, random: Random) -> Iterator[Trial]:
    for name in tensor_files(yard.kept):
        path = yard.kept / name
        segments = [one for one in segments_of(path) if one.size >= 2 * REGION]
        for segment in random.sample(segments, min(FILES, len(segments))):
            position = segment.start + random.randrange(segment.size - REGION)
            has_sums = path.suffix != ".safetensors"
            for _ in range(2):
                bit = 1 << random.randrange(8)
                byte = bytes([read_at(path, position, 1)[0] ^ bit])
                flip = write_at(name, position, byte, keep_time=True)
                yield Trial("bit flip", flip, after_proof=not has_sums)
            yield Trial("zeros", write_at(name, position, bytes(REGION)))
            if segment.numbers:
                offset = segment.start + 4 * random.randrange(segment.size // 4 - 1)
                yield Trial("NaN", not_a_number(name, segment, offset))


def sound(yard: Yard, random: Random) -> Iterator[tuple[str, bool, float]]:
    """Makes the newest checkpoint sound, or partly saved; yields how, and the clock."""
    for number in range(SOUND_PER_LAYOUT):
        yard.restore()
        files = [path for path in files_of(yard.newest) if path.is_file()]
        match number % 5:
            case 0:
                yield "saved", True, LATER
            case 1:
                for path in files:
                    path.chmod(0o640)
                yield "other permissions", True, LATER
            case 2:
                if yard.newest.is_dir():
                    (yard.newest / "README.md").write_text("notes")
                yield "a file added", True, LATER
            case 3:
                victim = random.choice(files)
                os.truncate(victim, random.randrange(victim.stat().st_size))
                yield "being saved", False, random.uniform(0, 14)
            case _:
                remove_some(yard.newest, random.sample(files, random.randint(1, len(files))))
                yield "being saved", False, random.uniform(0, 14)


def remove_some(entry: Path, files: list[Path]) -> None:
    """Removes what a save has not written yet; the rest was written just now."""
    for path in files:
        path.unlink()
    now = time.time()
    for path in files_of(entry) if entry.exists() else ():
        os.utime(path, (now, now))
