"""Reads the step from a small file: a state file, a tracker, the end of a table."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.entries.place import Finder, RunPlace, check_access
from trainwarden_exporter.layouts.base import ProgressFile
from trainwarden_exporter.progress.lines import parse_count

LARGEST_FILE = 64 << 20
"""Bytes that are read of a file of which all is needed; a `trainer_state.json` grows with the
run."""

HEAD, TAIL = 64 << 10, 256 << 10
"""Bytes that are read of the beginning and of the end of a table."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """What a file says, and its last change (unix seconds)."""

    step: int
    total: int | None
    timestamp: float


@dataclass(frozen=True, slots=True)
class FileSubject:
    """A progress file of a run, and all that says where it lies."""

    run: str
    path: Path
    variables: tuple[tuple[str, str], ...]
    templates: tuple[str, ...]
    """All of the layout, so that the newest run is the same one for whatever is looked for."""
    file: ProgressFile

    @property
    def place(self) -> RunPlace:
        """What is looked through for it; the same for all files of a run."""
        return RunPlace(self.path, self.templates, self.variables)


class FileEye:
    """Looks for a file, and reads it when it has changed. For one thread."""

    def __init__(self, subject: FileSubject, finder: Finder | None = None) -> None:
        self._subject = subject
        self._finder = finder or Finder(subject.place)
        self._known: tuple[tuple[str, int, int], FileReading | None] | None = None

    def __call__(self) -> FileReading | None:
        """What the newest such file says; None where there is none, or it says nothing yet.

        Raises OSError where it cannot be read, ValueError where it is too large.
        """
        subject = self._subject
        # as new as is cheap: of several files, the newest counts
        instance = self._finder.find(again=True)
        for path in instance.files(subject.file.file):
            try:
                status = path.stat()
                mark = (str(path), status.st_mtime_ns, status.st_size)
                if self._known is None or self._known[0] != mark:
                    said = read_step(path, subject.file)
                    reading = None if said is None else FileReading(*said, status.st_mtime)
                    self._known = (mark, reading)
            except FileNotFoundError:
                continue  # rotated away between the two looks
            return self._known[1]
        check_access(subject.path, subject.file.file, instance)
        return None


def read_step(path: Path, file: ProgressFile) -> tuple[int, int | None] | None:
    """Steps done and steps in all by the file at `path`; None where it does not say.

    Raises OSError where it cannot be read, ValueError where it is too large to be what it should.
    """
    if file.kind in ("json", "text"):
        said = _READ_WHOLE[file.kind](_read_whole(path), file)
    else:
        said = _READ_ENDS[file.kind](*_read_ends(path), file)
    step, total = said or (None, None)
    return None if step is None else (max(0, step + file.step_offset), total)


Said = tuple[int | None, int | None] | None


def parse_json(text: str, file: ProgressFile) -> Said:
    """Step and total in a JSON file, which may just be being written."""
    keys = {key for path in (file.step, file.total) for key in (path, *path.split("/"))}

    def kept(said: dict[str, object]) -> dict[str, object] | None:
        # all that a run has logged may stand in the file
        return {key: said[key] for key in keys & said.keys()} or None

    try:
        return _of_object(json.loads(text, object_hook=kept), file)
    except (ValueError, RecursionError):
        return None


def parse_text(text: str, file: ProgressFile) -> Said:
    """Step and total by their patterns."""
    match = re.search(file.step, text)
    if match is None:
        return None
    total = re.search(file.total, text) if file.total else None
    return parse_count(match["step"]), None if total is None else parse_count(total["total"])


def parse_jsonl(_: str, tail: str, file: ProgressFile) -> Said:
    """Step and total in the last line that has a step; a line half written is passed over."""
    return _first_with_step(parse_json(line, file) for line in reversed(tail.splitlines()))


def parse_csv(head: str, tail: str, file: ProgressFile) -> Said:
    """Step and total in the last row that has a step, by the names in the first one."""
    names = next(csv.reader(head.splitlines()[:1]), [])
    rows = tail.splitlines()
    whole = rows if tail.endswith(("\n", "\r")) else rows[:-1]

    def of_row(row: str) -> Said:
        fields = next(csv.reader([row]), [])
        return _of_object(dict(zip(names, fields, strict=False)), file)

    return _first_with_step(of_row(row) for row in reversed(whole))


def _first_with_step(said: Iterable[Said]) -> Said:
    return next((one for one in said if one is not None and one[0] is not None), None)


def _of_object(content: object, file: ProgressFile) -> Said:
    total = _value(content, file.total) if file.total else None
    return parse_count(_value(content, file.step)), parse_count(total)


def _value(content: object, key: str) -> object:
    """The value at `key`: a name of its own, or names joined by `/`."""
    if isinstance(content, dict) and key in content:
        return content[key]  # verl and others have slashes in their names
    for part in key.split("/"):
        if not isinstance(content, Mapping) or part not in content:
            return None
        content = content[part]
    return content


_READ_WHOLE: Mapping[str, Callable[[str, ProgressFile], Said]] = {
    "json": parse_json,
    "text": parse_text,
}
_READ_ENDS: Mapping[str, Callable[[str, str, ProgressFile], Said]] = {
    "jsonl": parse_jsonl,
    "csv": parse_csv,
}


def _read_whole(path: Path) -> str:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILE:
            raise ValueError(f"{path} is too large to be read for a step")
        return file.read(size).decode(errors="replace")


def _read_ends(path: Path) -> tuple[str, str]:
    with path.open("rb") as file:
        head = file.read(HEAD)
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - TAIL)
        file.seek(start)
        tail = file.read(TAIL)
    if start:
        tail = tail.partition(b"\n")[2]  # the rest of a line whose beginning is not read
    return head.decode(errors="replace"), tail.decode(errors="replace")
