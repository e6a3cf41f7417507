"""Reads the files in `runs.d/`, in which runs announce themselves.

A file speaks only for processes of the account that owns it, which the pid file beside it ensures.
"""

from __future__ import annotations

import json
import os
import stat
from functools import partial
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.processes.announcements import (
    AnnouncedRuns,
    AnnouncedWorker,
    Announcement,
)
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.safe_open import open_regular

MAX_RUNS = 200
MAX_FILES = 2000
"""The files of runs that ended in the last week are read too."""
MAX_NAMES = 5 * MAX_FILES
"""Names read from the folder; beside an announcement are a pid file and a socket."""
MAX_BYTES = 256 << 10
MAX_ALL_BYTES = 16 << 20
"""Of all announcements together, beyond which the rest is ignored; one has a few thousand."""
SHOWN_SECONDS = 86400.0
"""How long a run that has ended is shown."""


def read_announcements(
    folder: Path | None, now: float, before: AnnouncedRuns | None = None, *, past: bool = False
) -> AnnouncedRuns:
    """Returns the runs announced in `folder` that are shown at `now` (Unix seconds).

    A run in `before`, the result of the previous read, remains while an error prevents the read of
    its file: the error does not show that the run is over. With `past`, also workers that are not
    shown any more: stopped, or ended earlier.
    """
    if folder is None:
        return AnnouncedRuns()
    known = {} if before is None else {one.file: one for one in before.workers.values()}
    found: list[AnnouncedWorker] = []
    problems: list[Problem] = []
    try:
        files, has_more = bounded_call(folder, partial(announcement_files, folder))
        owner = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return AnnouncedRuns()
    except OSError as error:
        problems.append(Problem(folder, None, "", error.strerror or str(error)))
        files, has_more = [], False
        found = [one for one in known.values() if one.file.parent == folder]
    if has_more:
        problems.append(Problem(folder, None, "", f"more than {MAX_FILES} files: the rest ignored"))
    left = MAX_ALL_BYTES
    for path in files:
        try:
            left -= min(path.lstat().st_size, MAX_BYTES)
            if left < 0:
                size = f"{MAX_ALL_BYTES >> 20} MiB"
                problems.append(Problem(folder, None, "", f"more than {size}: the rest ignored"))
                break
            found.append(_read_file(path, owner))
        except FileNotFoundError:
            continue
        except _InvalidFileError as error:
            problems.append(error.problem)
        except OSError as error:
            problems.append(Problem(path, None, "", error.strerror or str(error)))
            found += [known[path]] if path in known else []
    shown = [one for one in found if past or _is_shown(one.announcement, now)]
    workers, left_out = _by_key(folder, shown)
    ended = [one.announcement for one in found if one.announcement.state == "stopped"]
    stopped = frozenset(one.key for one in ended if one.key not in workers)
    with_run = stopped.intersection(one.key for one in ended if one.ended_with_run)
    dismissed = {one.key: one.dismissed for one in ended if one.dismissed and one.key in stopped}
    return AnnouncedRuns(workers, (*problems, *left_out), stopped, dismissed, with_run)


def announcement_files(folder: Path) -> tuple[list[Path], bool]:
    """Returns the files of announcements, and whether there are more than are read.

    Raises OSError.
    """
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_NAMES + 1)]
    found = sorted(name for name in names if name.endswith(".json") and not name.startswith("."))
    has_more = len(names) > MAX_NAMES or len(found) > MAX_FILES
    return [folder / name for name in found[:MAX_FILES]], has_more


def _by_key(
    folder: Path, shown: list[AnnouncedWorker]
) -> tuple[dict[WorkerKey, AnnouncedWorker], list[Problem]]:
    """Returns the workers, at most one for each key, and what is wrong with the others."""
    workers: dict[WorkerKey, AnnouncedWorker] = {}
    problems: list[Problem] = []
    if len(shown) > MAX_RUNS:
        problems.append(Problem(folder, None, "", f"more than {MAX_RUNS} runs: the rest ignored"))
    # the runs that are not over come first: the limit must not leave them out
    for one in sorted(shown, key=lambda one: one.announcement.has_ended)[:MAX_RUNS]:
        key = one.announcement.key
        if workers.setdefault(key, one) is not one:
            problems.append(Problem(one.file, None, "", f"another file announces {'/'.join(key)}"))
    return workers, problems


def _is_shown(announcement: Announcement, now: float) -> bool:
    """A run that an operator stopped, or that has not started yet, is not."""
    if announcement.state in ("stopped", "starting"):
        return False
    ended = announcement.ended_at
    return not announcement.has_ended or ended is None or now - ended < SHOWN_SECONDS


class _InvalidFileError(Exception):
    def __init__(self, path: Path, message: str, line: int | None = None, where: str = "") -> None:
        super().__init__(message)
        self.problem = Problem(path, line, where, message)


def _read_file(path: Path, folder: os.stat_result) -> AnnouncedWorker:
    """Raises OSError or _InvalidFileError."""
    descriptor = open_regular(path)
    if descriptor is None:
        raise _InvalidFileError(path, "not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid not in (0, os.geteuid(), folder.st_uid):
            raise _InvalidFileError(path, "belongs to another account than its folder")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _InvalidFileError(path, "can be written by other accounts")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _InvalidFileError(path, "too large to be an announcement")
    announcement = _parse(path, content)
    # a file of another account must not have this program read for it what it cannot read itself
    state_folder = path.parent.parent
    named = (announcement.log, announcement.socket)
    if status.st_uid not in (0, os.geteuid()) and not all(
        one is None or (one.is_relative_to(state_folder) and ".." not in one.parts) for one in named
    ):
        raise _InvalidFileError(path, f"names a file outside {state_folder}")
    return AnnouncedWorker(announcement, path, status.st_uid)


def _parse(path: Path, content: bytes) -> Announcement:
    try:
        found = json.loads(content)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise _InvalidFileError(path, f"not JSON: {getattr(error, 'msg', error)}", line) from None
    except RecursionError:
        raise _InvalidFileError(path, "not an announcement: nested too deeply") from None
    try:
        return Announcement.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        key = f'"{first["loc"][0]}"'.encode() if first["loc"] else b""
        line = next(
            (n for n, text in enumerate(content.splitlines(), 1) if key and key in text), None
        )
        raise _InvalidFileError(path, first["msg"], line, where) from None
