"""Proves one checkpoint: structure of each file, sets of files, and content."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

from trainwarden_exporter.checkpoints.damages import Damage, DamageKind
from trainwarden_exporter.checkpoints.file_formats import (
    INDEX,
    MAX_TEXT_BYTES,
    METADATA,
    TENSOR_SUFFIXES,
    StoredItem,
    plan_file,
    plan_stored_items,
    read_metadata,
    read_weight_map,
)
from trainwarden_exporter.checkpoints.paced_reader import (
    CHUNK_BYTES,
    PacedFile,
    ReadRate,
    open_paced,
)
from trainwarden_exporter.checkpoints.rank_sets import check_sets, lacks_weights
from trainwarden_exporter.checkpoints.segments import (
    ZERO_RUN,
    ContentResult,
    FilePlan,
    Segment,
    read_segment,
)
from trainwarden_exporter.checkpoints.zip_archives import MAX_PICKLE_BYTES
from trainwarden_exporter.step_dirs.filesystem import FileSystem, is_denied
from trainwarden_exporter.step_dirs.tree_walk import walk

MAX_CONTENT_BYTES = 8 << 30
"""Bytes of content that are read of one checkpoint; of a larger one a part of each file is read."""
PART_BYTES = 16 << 20
"""Length of the parts of a large tensor, if not all of a checkpoint is read."""
MAX_DAMAGES = 20
ZERO_SHARE = 0.9
"""Share of a file from which all of it counts as zero; the rest is the ends of its tensors."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What is known of a file. Times are nanoseconds."""

    size: int
    modified_ns: int
    changed_ns: int
    """Last change of content or status, which no program can set."""
    inode: int
    mode: int
    crc: int | None = None
    """CRC-32 over what was read; None if it was not read."""
    zero_runs: int = 0

    def same_stamp(self, other: FileRecord) -> bool:
        return replace(self, crc=None, zero_runs=0) == replace(other, crc=None, zero_runs=0)


Files = Mapping[str, FileRecord]


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """The proof of one checkpoint."""

    files: Files
    damages: tuple[Damage, ...]
    checked_at: float
    """When it was read, in Unix seconds."""
    readable: bool = True
    """Whether any of it can be read; if not, its state is unknown."""
    shows_end: bool = True
    """Whether its largest file would show that it is cut short."""

    @property
    def proved(self) -> bool:
        return self.readable and not self.damages and not lacks_weights(self.files)


def stat_files(filesystem: FileSystem, path: str) -> Files | None:
    """Returns the files of the checkpoint at `path`; None if it has too many, or changes.

    Raises OSError.
    """
    found = walk(filesystem, path)
    if found.truncated or found.changed_during_walk:
        return None
    files = {}
    for inner in found.files:
        status = filesystem.status(_join(path, inner))
        files[inner] = FileRecord(
            *(status.st_size, status.st_mtime_ns, status.st_ctime_ns),
            *(status.st_ino, status.st_mode),
        )
    return files


@dataclass(slots=True)
class EntryCheck:
    """One check of the checkpoint at `path`. `steps` does the work; `record` is its result."""

    path: str
    files: Files
    rate: ReadRate
    pause: Callable[[], None]
    """Called often; lets other threads run."""
    before: EntryRecord | None = None
    """The proof from before a change, if any."""
    reference: EntryRecord | None = None
    """The newest other proved checkpoint."""
    damages: list[Damage] = field(default_factory=list)
    bytes_read: int = 0
    unreadable: int = 0
    shows_end: bool = True

    def steps(self) -> Iterator[float]:
        """Works in steps; yields the seconds to pause before the next. Raises OSError."""
        plans: dict[str, FilePlan] = {}
        stored = self._read_stored_items()
        for name in self.files:
            if (plan := self._plan(name, stored)) is not None:
                plans[name] = plan
                self.damages += plan.damages
            yield 0.0
        largest = max(plans, key=lambda name: self.files[name].size, default=None)
        self.shows_end = largest is None or plans[largest].shows_end
        self.damages += self._check_indexes(plans)
        self.damages += check_sets(self.files, _world_sizes(plans))
        self.damages += _swapped_files(plans)
        yield 0.0
        total = sum(segment.size for plan in plans.values() for segment in plan.segments)
        share = min(1.0, MAX_CONTENT_BYTES / total) if total else 1.0
        read: dict[str, FileRecord] = {}
        for name, plan in plans.items():
            yield from self._read_content(name, plan, share, read)
        self.files = {**self.files, **read}
        self.damages += self._changed_files()

    @property
    def record(self) -> EntryRecord:
        readable = self.unreadable < len(self.files)
        damages = tuple(dict.fromkeys(self.damages))[:MAX_DAMAGES]
        files = self._remembered_files()
        return EntryRecord(files, damages, time.time(), readable, self.shows_end)

    def _remembered_files(self) -> Files:
        """A changed file keeps its checksum, so that the change is found again."""
        changed = {one.file for one in self.damages if one.kind is DamageKind.CHANGED}
        known = {} if self.before is None else self.before.files
        return {
            name: replace(file, crc=known[name].crc) if name in changed else file
            for name, file in self.files.items()
        }

    def _plan(self, name: str, stored: Mapping[str, list[StoredItem]]) -> FilePlan | None:
        try:
            with open_paced(_join(self.path, name)) as file:
                if not self._readable_for_owner(name):
                    raise PermissionError
                if name in stored:
                    return plan_stored_items(file, name, stored[name], self.pause)
                return plan_file(file, name, self.pause, entry=self.path)
        except OSError as error:
            self._note_error(name, error)
            return None

    def _readable_for_owner(self, name: str) -> bool:
        """Root reads everything; the account of the run does not."""
        return bool(self.files[name].mode & (stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH))

    def _note_error(self, name: str, error: OSError) -> None:
        if is_denied(error) or isinstance(error, PermissionError):
            self.unreadable += 1
        elif error.errno != errno.EIO:
            raise error
        detail = f"cannot be read: {error.strerror or 'permission denied'}"
        self.damages.append(Damage(DamageKind.UNREADABLE, name, detail))

    def _read_stored_items(self) -> dict[str, list[StoredItem]]:
        """Returns the items of all files of torch.distributed.checkpoint, by file."""
        found: dict[str, list[StoredItem]] = {}
        for name in self.files:
            folder, _, base = name.rpartition("/")
            if base != METADATA:
                continue
            data = self._small_file(name, MAX_PICKLE_BYTES)
            try:
                items = () if data is None else read_metadata(data, self.pause)
            except ValueError:
                continue  # reported with the file
            for item in items:
                found.setdefault(f"{folder}/{item.file}".lstrip("/"), []).append(item)
        for name in sorted(set(found) - set(self.files)):
            detail = "is named in .metadata and missing"
            self.damages.append(Damage(DamageKind.MISSING, name, detail))
        return found

    def _check_indexes(self, plans: Mapping[str, FilePlan]) -> Iterator[Damage]:
        """Compares each index of shards with the shards."""
        for name in self.files:
            folder, _, base = name.rpartition("/")
            data = self._small_file(name, MAX_TEXT_BYTES) if INDEX.fullmatch(base) else None
            try:
                pairs = [] if data is None else list(read_weight_map(data))
            except (ValueError, RecursionError) as error:
                yield Damage(DamageKind.CORRUPT, name, f"is no index ({error})")
                continue
            pairs.sort(key=itemgetter(1))
            for shard, group in groupby(pairs, itemgetter(1)):
                path = f"{folder}/{shard}".lstrip("/")
                tensors = plans[path].tensors if path in plans else None
                if path not in self.files:
                    yield Damage(DamageKind.MISSING, path, f"is named in {base} and missing")
                elif tensors is not None and (lost := {one for one, _ in group} - tensors):
                    detail = f"has no {min(lost)}, which {base} says is in it"
                    yield Damage(DamageKind.MISMATCH, path, detail)

    def _small_file(self, name: str, limit: int) -> bytes | None:
        """Returns the content of a file; None if it is too large or cannot be read."""
        try:
            with open_paced(_join(self.path, name)) as file:
                return file.read(0, file.size) if file.size <= limit else None
        except OSError as error:
            if is_denied(error):
                return None
            raise

    def _read_content(
        self, name: str, plan: FilePlan, share: float, read: dict[str, FileRecord]
    ) -> Iterator[float]:
        result = ContentResult()
        try:
            with open_paced(_join(self.path, name)) as file:
                for segment in _sample(plan.segments, share):
                    yield from self._read_segment(file, name, segment, result, plan)
                self.bytes_read += file.bytes_read
        except OSError as error:
            self._note_error(name, error)
            return
        self.damages += result.damages
        known = self.reference.files.get(name) if self.reference is not None else None
        if plan.counts_zeros and result.number_bytes:
            lost = known is not None and not known.zero_runs and result.zero_runs
            if lost or result.zero_runs * len(ZERO_RUN) >= ZERO_SHARE * result.number_bytes:
                detail = "has zeros instead of weights"
                self.damages.append(Damage(DamageKind.ZEROS, name, detail))
        read[name] = replace(self.files[name], crc=result.crc, zero_runs=result.zero_runs)

    def _read_segment(
        self, file: PacedFile, name: str, segment: Segment, result: ContentResult, plan: FilePlan
    ) -> Iterator[float]:
        cpu_before, read_before = time.thread_time(), file.read_seconds
        for size in read_segment(file, name, segment, result, count_zeros=plan.counts_zeros):
            yield self.rate.charge(
                size, file.read_seconds - read_before, time.thread_time() - cpu_before
            )
            cpu_before, read_before = time.thread_time(), file.read_seconds

    def _changed_files(self) -> Iterator[Damage]:
        """Compares with what was proved before.

        A save writes all files of a checkpoint. A file that differs although its time is the same
        has rotted; if only some of the files of tensors differ, they were not written by a save.
        """
        if self.before is None:
            return
        known, now = self.before.files, self.files
        tensors = [name for name in now if (name or ".ckpt").endswith(TENSOR_SUFFIXES)]
        rewritten = all(
            name not in known or now[name].modified_ns != known[name].modified_ns
            for name in tensors
        )
        for name in tensors:
            old = known.get(name)
            if old is None or None in (old.crc, now[name].crc) or old.crc == now[name].crc:
                continue
            if not rewritten:
                yield Damage(DamageKind.CHANGED, name, "differs from what was proved before")


def _world_sizes(plans: Mapping[str, FilePlan]) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    for name, plan in plans.items():
        if plan.world_sizes:
            sizes.setdefault(name.rpartition("/")[0], {}).update(plan.world_sizes)
    return sizes


def _swapped_files(plans: Mapping[str, FilePlan]) -> Iterator[Damage]:
    """Yields files that have the content of another file, which itself has not.

    A copy under a second name is none of them: the first still has its content.
    """
    saved_as = {
        name: f"{name[: len(name) - len(base)]}{plan.saved_as}{base[base.rfind('.') :]}"
        for name, plan in plans.items()
        if plan.saved_as and "." in (base := name.rpartition("/")[2])
    }
    for name, other in saved_as.items():
        if other != name and saved_as.get(other, other) != other:
            yield Damage(DamageKind.MISMATCH, name, f"was saved as {other}")


def _sample(segments: tuple[Segment, ...], share: float) -> Iterator[Segment]:
    """Yields this share of the large segments, evenly, in parts without a checksum; all others."""
    if share >= 1.0:
        yield from segments
        return
    due = 1.0
    for segment in segments:
        for part in _parts(segment):
            if part.size < CHUNK_BYTES:
                yield part
                continue
            due += share
            if due >= 1.0:
                due -= 1.0
                yield part


def _parts(segment: Segment) -> Iterator[Segment]:
    if segment.size <= PART_BYTES:
        yield segment
        return
    for start in range(0, segment.size, PART_BYTES):
        size = min(PART_BYTES, segment.size - start)
        yield replace(segment, start=segment.start + start, size=size, crc=None)


def _join(path: str, inner: str) -> str:
    return os.path.join(path, inner) if inner else path  # noqa: PTH118 - of many files
