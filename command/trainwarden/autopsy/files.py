"""Finds the files of a run that can be read as text, and reads them in blocks. Writes to none.

A folder of a run may hold terabytes: only names are looked at, except for files that may be logs.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from trainwarden_exporter.logs.config import MAX_LINE_BYTES
from trainwarden_exporter.logs.line_blocks import LineBlock, parse_block
from trainwarden_exporter.runtime.safe_open import open_regular

MAX_NAMES = 200_000
MAX_DEPTH = 12
MAX_LOGS = 400
"""The most recently changed files are read."""
MAX_FILE_BYTES = 512 << 20
"""Of a longer file, the beginning and the end are read."""
HEAD_BYTES = 32 << 20
MAX_TOTAL_BYTES = 2 << 30
BLOCK_BYTES = 1 << 20
SAMPLE_BYTES = 128 << 10

Source = Literal["log", "kernel", "watchdog", "gpu"]
"""What wrote a file: a part of the run, the system, a watchdog or cron, a tool that lists GPUs."""

_TEXT_NAME = re.compile(
    r"\.(?:log|out|err|stdout|stderr|txt|console|jsonl)(?:[.-]\d[\d-]*)?(?:\.gz)?$"
    r"|^(?:dmesg|journal|messages|syslog|kern|nohup|cron|last|stdout|stderr|console)\b[\w.-]*$"
    r"|^[\w-]+$",
    re.IGNORECASE,
)
_NOT_LOGS = re.compile(
    r"^(?:requirements|license|readme|vocab|merges|metadata|METADATA|COMMIT_EDITMSG|HEAD"
    r"|latest_checkpointed_iteration|pip-?freeze)\b",
    re.IGNORECASE,
)
_SKIPPED_FOLDER = re.compile(
    r"^(?:\.git|\.venv|venv|node_modules|__pycache__|site-packages|\.cache)$"
)
_KERNEL = re.compile(
    r"dmesg|journalctl|^journal\.txt$|^system|kern(?:el)?[._-]|^kern$|syslog|^messages|reboot|boots?\b|last\b.*x?\.",
    re.IGNORECASE,
)
_WATCHDOG = re.compile(r"watch_?dog|cron|supervis|monitor|health_?check|keep_?alive", re.IGNORECASE)
_GPU = re.compile(r"nvidia|gpu|lsof|fuser", re.IGNORECASE)

_TEXT_CONTROLS = frozenset(b"\t\n\r\f\v\x08\x1b\x00")
_MAX_CONTROL_SHARE = 0.02


class _Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...
    def seek(self, offset: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that is read as text."""

    path: Path
    name: str
    """Its name, with as many of the folders above as distinguish it."""
    source: Source
    size: int
    modified: float
    """Last change in Unix seconds."""


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """What a folder holds."""

    logs: tuple[LogFile, ...] = ()
    """The newest first."""
    others: int = 0
    """Files that are no logs by their names or their content."""
    unread: tuple[str, ...] = ()
    """What was left out, each with the reason."""
    newest_change: float | None = None
    """Last change of any file (Unix seconds)."""


def find_files(folder: Path) -> FolderFiles:
    """Returns the files at or below `folder`. Raises OSError if it cannot be read."""
    if not stat.S_ISDIR(folder.stat().st_mode):
        log = _log_file(folder, folder.name, folder.stat())
        return FolderFiles((log,), newest_change=log.modified)
    found: list[LogFile] = []
    unread: list[str] = []
    others, newest, names = 0, None, 0
    with os.scandir(folder):  # raises, if the folder itself is not accessible
        pass
    for path, relative in _walk(folder, unread):
        names += 1
        if names > MAX_NAMES:
            unread.append(f"files after the first {MAX_NAMES}")
            break
        try:
            status = path.lstat()
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        newest = max(newest or 0.0, status.st_mtime)
        if not status.st_size or not _TEXT_NAME.search(path.name) or _NOT_LOGS.search(path.name):
            others += 1
            continue
        found.append(_log_file(path, relative, status))
    found.sort(key=lambda log: (-log.modified, log.name))
    if len(found) > MAX_LOGS:
        unread.append(f"{len(found) - MAX_LOGS} older logs")
    short = _short_names([log.name for log in found])
    logs = tuple(replace(log, name=short[log.name]) for log in found[:MAX_LOGS])
    return FolderFiles(logs, others, tuple(unread), newest)


def add_log(files: FolderFiles, path: Path) -> FolderFiles:
    """Returns `files` with the log at `path`, which may be outside of the folder.

    Raises OSError if it cannot be read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return files
    if any(os.path.samestat(status, log.path.stat()) for log in files.logs):
        return files
    log = replace(_log_file(path, path.name, status), source="log")
    if any(one.name == log.name for one in files.logs):
        log = replace(log, name=str(path))
    newest = max(files.newest_change or 0.0, log.modified)
    return replace(files, logs=(*files.logs, log), newest_change=newest)


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns for each relative path its shortest end that no other has."""
    ends = Counter(end for name in names for end in _ends(name))
    return {name: next((end for end in _ends(name) if ends[end] == 1), name) for name in names}


def _ends(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[index:]) for index in reversed(range(len(parts)))]


def _walk(folder: Path, unread: list[str]) -> Iterator[tuple[Path, str]]:
    for base, folders, files in os.walk(
        folder, onerror=lambda error: unread.append(f"{error.filename}: {error.strerror}")
    ):
        depth = len(Path(base).relative_to(folder).parts)
        folders[:] = (
            sorted(name for name in folders if not _SKIPPED_FOLDER.search(name))
            if depth < MAX_DEPTH
            else []
        )
        for name in sorted(files):
            path = Path(base) / name
            yield path, str(path.relative_to(folder))


def _log_file(path: Path, name: str, status: os.stat_result) -> LogFile:
    return LogFile(path, name, _source(name), status.st_size, status.st_mtime)


def _source(name: str) -> Source:
    base = Path(name).name
    if _WATCHDOG.search(base):
        return "watchdog"
    if _KERNEL.search(base):
        return "kernel"
    return "gpu" if _GPU.search(base) else "log"


def read_sample(log: LogFile) -> bytes | None:
    """Returns the beginning and the end of a file; None for binary content.

    Raises OSError if the file cannot be read.
    """
    with _open(log) as file:
        head = b""
        while len(head) < SAMPLE_BYTES and (more := _read(file, SAMPLE_BYTES - len(head))):
            head += more
        if _is_binary(head):
            return None
        if _is_compressed(log) or log.size <= SAMPLE_BYTES:
            return head
        file.seek(max(SAMPLE_BYTES, log.size - SAMPLE_BYTES))
        return head + b"\n" + _read(file, SAMPLE_BYTES)


def read_blocks(log: LogFile) -> Iterator[LineBlock]:
    """Yields the file as blocks of whole lines without escape sequences.

    Of a file above MAX_FILE_BYTES, the beginning and the end. Raises OSError.
    """
    with _open(log) as file:
        if _is_compressed(log) or log.size <= MAX_FILE_BYTES:
            yield from _blocks(file, MAX_FILE_BYTES)
            return
        yield from _blocks(file, HEAD_BYTES)
        file.seek(log.size - (MAX_FILE_BYTES - HEAD_BYTES))
        yield from _blocks(file, MAX_FILE_BYTES)


def is_read_whole(log: LogFile) -> bool:
    """Whether `read_blocks` yields all of the file."""
    return log.size <= MAX_FILE_BYTES


def _blocks(file: _Readable, limit: int) -> Iterator[LineBlock]:
    rest, skipping, left = b"", False, limit
    while left > 0:
        read = _read(file, min(BLOCK_BYTES, left))
        last = not read
        left -= len(read)
        # the last line may lack its end
        data = rest + (b"\n" if last and rest.rstrip(b"\0") else read)
        if not data:
            return
        block = parse_block(data, 0, len(data), last=last, limit=MAX_LINE_BYTES, skipping=skipping)
        yield block
        rest, skipping = data[block.used_bytes :], block.skipping
        if last:
            return


def _read(file: _Readable, size: int) -> bytes:
    try:
        return file.read1(size)  # `read` would lose what is readable before a broken end
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return b""


@contextmanager
def _open(log: LogFile) -> Iterator[_Readable]:
    descriptor = open_regular(log.path)
    if descriptor is None:
        raise OSError("no regular file")
    with os.fdopen(descriptor, "rb") as file:
        if not _is_compressed(log):
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
            yield unpacked


def _is_compressed(log: LogFile) -> bool:
    return log.path.suffix == ".gz"


def _is_binary(head: bytes) -> bool:
    """Whether too much of `head` is no text; holes of a sparse file do not count."""
    text = head.replace(b"\0", b"")
    if not text:
        return True
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in text)  # noqa: PLR2004 - ASCII's control characters
    try:
        text[:-4].decode()
        undecodable = 0
    except UnicodeDecodeError:
        undecodable = len(text) - len(text.decode(errors="ignore").encode())
    nuls = len(head) - len(text)
    scattered = nuls and len(re.findall(rb"\0+", head)) > 1 + nuls // 64
    return (controls + undecodable) > _MAX_CONTROL_SHARE * len(text) or bool(scattered)
