"""Reads the step from a small file: a state file, a tracker file, or the end of a table."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from trainwarden_exporter.frameworks.base import ProgressFile
from trainwarden_exporter.progress.log_lines import is_value_name, parse_count
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.runtime.safe_open import file_status, open_regular
from trainwarden_exporter.step_dirs.locations import InstanceFinder, RunLocation, check_access

MAX_FILE_BYTES = 32 << 20
"""Maximum size of a file that is read completely; a `trainer_state.json` grows with the run."""

MAX_VALUES, MAX_VALUE_ROWS = 20, 50
"""Maximum number of values of a table, and of rows from the end in which they are searched."""

_VALUE_NAME = re.compile(
    r"loss|reward|return|grad|\bkl|kl\b|_kl|kl_|entropy|accuracy|score|perplexity", re.IGNORECASE
)

HEAD_BYTES, TAIL_BYTES = 64 << 10, 256 << 10
"""Bytes read from the start and from the end of a table."""


@dataclass(frozen=True, slots=True)
class FileProgress:
    """Content of a progress file, and its last change (Unix seconds)."""

    step: int
    total: int | None
    timestamp: float
    values: Mapping[str, float] = field(default_factory=dict)
    """Last numbers of the training, which may not be finite, by key or column."""
    save_interval: int | None = None
    """Steps between two saves."""


@dataclass(frozen=True, slots=True)
class ProgressFileSpec:
    """A progress file of a run, and what determines its location."""

    run: str
    location: RunLocation
    """Location to search; the same for all files of a run."""
    file: ProgressFile


class ProgressFileScanner:
    """Finds a file, and reads it when it has changed. For one thread."""

    def __init__(self, spec: ProgressFileSpec, finder: InstanceFinder | None = None) -> None:
        self._spec = spec
        self._finder = finder or InstanceFinder(spec.location)
        self._known: tuple[tuple[str, int, int], FileProgress | None] | None = None

    def __call__(self) -> FileProgress | None:
        """Returns the content of the newest file; None without a file or without a step in it.

        Raises OSError if it is unreadable, ValueError if it is too large.
        """
        with reading_for(self._spec.location.account):
            return self._scan()

    def _scan(self) -> FileProgress | None:
        spec = self._spec
        # with the cheapest available freshness: of several files, the newest counts
        instance = self._finder.find(refresh=True)
        for path in instance.files(spec.file.file):
            try:
                status = file_status(path)
                mark = (str(path), status.st_mtime_ns, status.st_size)
                if self._known is None or self._known[0] != mark:
                    found = read_step(path, spec.file)
                    progress = (
                        None
                        if found is None
                        else FileProgress(
                            *found,
                            status.st_mtime,
                            read_values(path, spec.file),
                            read_save_interval(path, spec.file),
                        )
                    )
                    self._known = (mark, progress)
            except FileNotFoundError:
                continue  # rotated away between the two looks
            return self._known[1]
        check_access(spec.location.path, spec.file.file, instance)
        return None


def read_step(path: Path, file: ProgressFile) -> tuple[int, int | None] | None:
    """Returns completed and total steps from the file at `path`; None without a step.

    Raises OSError if it is unreadable, ValueError if it is too large.
    """
    if file.kind in ("json", "text"):
        found = _READ_WHOLE[file.kind](_read_whole(path), file)
    else:
        found = _READ_ENDS[file.kind](*_read_ends(path), file)
    step, total = found or (None, None)
    return None if step is None else (max(0, step + file.step_offset), total)


def read_save_interval(path: Path, file: ProgressFile) -> int | None:
    """Returns the steps between two saves, if the file at `path` contains them. Raises OSError."""
    if not file.save_interval:
        return None
    found = parse_json(_read_whole(path), replace(file, step=file.save_interval, total=""))
    return None if found is None else found[0]


def read_values(path: Path, file: ProgressFile) -> Mapping[str, float]:
    """Returns the last numbers of the training in the table at `path`. Raises OSError."""
    if file.kind not in ("jsonl", "csv"):
        return {}
    head, tail = _read_ends(path)
    lines = tail.splitlines()
    whole = lines if tail.endswith(("\n", "\r")) else lines[:-1]
    rows = _csv_rows(head, whole) if file.kind == "csv" else _jsonl_rows(whole)
    found: dict[str, float] = {}
    for row in islice(rows, MAX_VALUE_ROWS):
        for name, content in row.items():
            if name in found or len(found) >= MAX_VALUES or not is_value_name(name):
                continue
            if _VALUE_NAME.search(name):
                number = _number(content)
                if number is not None:
                    found[name] = number
    return found


def _csv_rows(head: str, lines: Sequence[str]) -> Iterator[Mapping[str, object]]:
    names = _csv_names(head)
    for line in reversed(lines):
        fields = _csv_fields(line)
        if fields != names:
            yield dict(zip(names, fields, strict=False))


def _csv_names(head: str) -> Sequence[str]:
    return _csv_fields(next(iter(head.splitlines()), ""))


def _csv_fields(line: str) -> Sequence[str]:
    """Returns the fields of a row; none if one is longer than the module csv accepts."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _jsonl_rows(lines: Sequence[str]) -> Iterator[Mapping[str, object]]:
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _number(content: object) -> float | None:
    """Returns the number in a cell; a row of an evaluation has none of the training."""
    if isinstance(content, bool) or not isinstance(content, str | int | float):
        return None
    try:
        return float(content)
    except (ValueError, OverflowError):
        return None


StepAndTotal = tuple[int | None, int | None] | None


def parse_json(text: str, file: ProgressFile) -> StepAndTotal:
    """Returns step and total from a JSON file, which may be incomplete during a write."""
    keys = {key for path in (file.step, file.total) for key in (path, *path.split("/"))}

    def relevant_keys(found: dict[str, object]) -> dict[str, object] | None:
        # the file may contain everything that a run has logged
        return {key: found[key] for key in keys & found.keys()} or None

    try:
        return _of_object(json.loads(text, object_hook=relevant_keys), file)
    except (ValueError, RecursionError):
        return None


def parse_text(text: str, file: ProgressFile) -> StepAndTotal:
    """Returns step and total by their patterns."""
    match = re.search(file.step, text)
    if match is None:
        return None
    total = re.search(file.total, text) if file.total else None
    return parse_count(match["step"]), None if total is None else parse_count(total["total"])


def parse_jsonl(_: str, tail: str, file: ProgressFile) -> StepAndTotal:
    """Returns step and total from the last line with a step; skips an incomplete line."""
    return _first_with_step(parse_json(line, file) for line in reversed(tail.splitlines()))


def parse_csv(head: str, tail: str, file: ProgressFile) -> StepAndTotal:
    """Returns step and total from the last row with a step, by the column names."""
    names = _csv_names(head)
    rows = tail.splitlines()
    whole = rows if tail.endswith(("\n", "\r")) else rows[:-1]

    def of_row(row: str) -> StepAndTotal:
        return _of_object(dict(zip(names, _csv_fields(row), strict=False)), file)

    return _first_with_step(of_row(row) for row in reversed(whole))


def _first_with_step(found: Iterable[StepAndTotal]) -> StepAndTotal:
    return next((one for one in found if one is not None and one[0] is not None), None)


def _of_object(content: object, file: ProgressFile) -> StepAndTotal:
    total = _value(content, file.total) if file.total else None
    return parse_count(_value(content, file.step)), parse_count(total)


def _value(content: object, key: str) -> object:
    """Returns the value at `key`: a name, or names joined by `/`."""
    if isinstance(content, dict) and key in content:
        return content[key]  # verl and others have slashes in their names
    for part in key.split("/"):
        if not isinstance(content, Mapping) or part not in content:
            return None
        content = content[part]
    return content


_READ_WHOLE: Mapping[str, Callable[[str, ProgressFile], StepAndTotal]] = {
    "json": parse_json,
    "text": parse_text,
}
_READ_ENDS: Mapping[str, Callable[[str, str, ProgressFile], StepAndTotal]] = {
    "jsonl": parse_jsonl,
    "csv": parse_csv,
}


def _open(path: Path) -> BinaryIO:
    descriptor = open_regular(path)
    if descriptor is None:
        raise ValueError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _read_whole(path: Path) -> str:
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is too large to be read for a step")
        return file.read(size).decode(errors="replace")


def _read_ends(path: Path) -> tuple[str, str]:
    with _open(path) as file:
        head = file.read(HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - TAIL_BYTES)
        file.seek(start)
        tail = file.read(TAIL_BYTES)
    if start:
        tail = tail.partition(b"\n")[2]  # the rest of a line whose beginning is not read
    return head.decode(errors="replace"), tail.decode(errors="replace")
