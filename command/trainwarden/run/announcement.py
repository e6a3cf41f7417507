"""The announcement of a run: a file in `runs.d/` that the exporter and the remediator read."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from trainwarden.run.folder import RunFiles, make_folders, run_files, write_private
from trainwarden.run.process_tree import read_start_ticks

MAX_BYTES = 16 << 20
"""A longer file is no announcement: a command line of 2 MiB has six times that as JSON."""
KEPT_SECONDS = 7 * 86400.0
"""How long the announcement of an ended run is kept."""
KEPT_EXITS = 8
"""Number of ended processes whose exit status is kept."""
KEPT_RESTARTS = 100
"""Number of restarts by this program that are kept."""
_SETTLED = ("finished", "stopped")


class Announcement:
    """What is announced of one worker of a run; `save` writes it.

    `exits` holds pid, start ticks and wait status of the last processes that ended,
    `own_restarts` the times and wait statuses of the ends after which this program starts it again.
    """

    def __init__(self, files: RunFiles, content: dict[str, Any]) -> None:
        self.files = files
        self.content = content

    @property
    def exits(self) -> list[list[int]]:
        exits: list[list[int]] = self.content["exits"]
        return exits

    def record_wrapper(self) -> None:
        """Announces this process as that which answers at the socket."""
        own = os.getpid()
        self.content.update(wrapper_pid=own, wrapper_start_ticks=read_start_ticks(own))
        self.save()

    def record_start(self, pid: int, start_ticks: int) -> None:
        self.content.update(
            state="running",
            pid=pid,
            start_ticks=start_ticks,
            started_at=time.time(),
            exit_status=None,
            ended_at=None,
            last_lines=[],
            starts=self.content["starts"] + 1,
        )
        self.save()

    def record_exit(self, state: str, status: int, last_lines: Sequence[str] = ()) -> None:
        """Records the end of the process; `status` is its wait status."""
        ended = [self.content["pid"], self.content["start_ticks"], status]
        if ended not in self.exits:
            self.exits.append(ended)
        del self.exits[:-KEPT_EXITS]
        self.content.update(
            state=state, exit_status=status, ended_at=time.time(), last_lines=list(last_lines)
        )
        self.save()

    def record_own_restart(self) -> None:
        """Records that this program starts the command again, without a request."""
        restarts = [
            *self.content.get("own_restarts", ()),
            [self.content["ended_at"], self.content["exit_status"]],
        ]
        self.content["own_restarts"] = restarts[-KEPT_RESTARTS:]
        self.save()

    def reload(self) -> None:
        """Reads what another wrapper of the run has written."""
        self.content = read_content(self.files.announcement) or self.content

    def save(self) -> None:
        """Writes the file. A full disk does not end the run: the file is then out of date."""
        with suppress(OSError):
            if self.content["pid"]:
                write_private(self.files.pid_file, f"{self.content['pid']}\n")
            # what is not UTF-8 in the command line is replaced: the file is for readers
            text = json.dumps(self.content, ensure_ascii=False, indent=1) + "\n"
            text = text.encode("utf-8", "replace").decode()
            write_private(self.files.announcement, text)


def claim(folder: Path, content: dict[str, Any], *, free_name: bool) -> Announcement:
    """Returns the announcement of a new run, and writes it: no other start can take its name.

    A number is added to the name of a run that has finished: its step and its starts are not those
    of the new run. With `free_name`, also to the name of a run that goes on or is of another
    folder. Raises ValueError if the worker already runs, OSError if the folder cannot be written.
    """
    make_folders(folder)
    runs = folder / "runs.d"
    numbered = _numbered(content["run"])
    with _lock(runs):
        _remove_old(runs)
        while True:
            content["run"] = next(numbered)
            files = run_files(folder, content["run"], content["worker"])
            if files.announcement.exists() and has_finished(runs, content["run"]):
                continue
            pid = running_pid(files.announcement)
            if not free_name and pid:
                which = f"run {content['run']}, worker {content['worker']}"
                raise ValueError(f"{which}: already runs as process {pid}")
            if not free_name or not (pid or _is_of_another_folder(runs, content)):
                break
        before, now = read_content(files.announcement), time.time()
        goes_on = before.get("argv") == content["argv"] and before.get("state") not in _SETTLED
        found = Announcement(
            files,
            {
                **content,
                # a restart loop has no part in which an operator stopped or changed the command
                "counted_since": before.get("counted_since", 0.0) if goes_on else now,
                "log": str(files.log),
                "log_offset": _size(files.log),
                "announced_at": now,
                "socket": str(files.socket),
                "state": "starting",
                "pid": 0,
                "start_ticks": 0,
                "started_at": None,
                "starts": 0,
                "exit_status": None,
                "ended_at": None,
                "exits": [],
                "last_lines": [],
            },
        )
        found.record_wrapper()
    return found


def read_content(path: Path) -> dict[str, Any]:
    """Returns what is announced; empty if there is no valid file. Never blocks on a pipe."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a Path cannot be opened with flags
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return {}
            content = json.loads(file.read(MAX_BYTES + 1))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def has_finished(runs: Path, run: str) -> bool:
    """Returns whether all announced commands of a run that finish have done so, and none runs."""
    found = list(runs.glob(f"{run}@*.json"))
    contents = [content for content in map(read_content, found) if content.get("finishes", True)]
    ended = all(content.get("state") == "finished" for content in contents)
    return bool(contents) and ended and not any(map(running_pid, found))


def next_name(runs: Path, run: str) -> str:
    """Returns the name of a new start of a run: with a number if the run has finished."""
    return next(name for name in _numbered(run) if not has_finished(runs, name))


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def _is_of_another_folder(runs: Path, content: dict[str, Any]) -> bool:
    workers = runs.glob(f"{content['run']}@*.json")
    return any(read_content(one).get("cwd", content["cwd"]) != content["cwd"] for one in workers)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def running_pid(path: Path) -> int:
    """Returns the process of an announced run that is not over, or 0."""
    content = read_content(path)
    try:
        for which in ("", "wrapper_"):
            pid, ticks = int(content[f"{which}pid"]), int(content[f"{which}start_ticks"])
            if pid > 0 and ticks and read_start_ticks(pid) == ticks:
                return pid
    except (ValueError, KeyError, TypeError, OverflowError):
        return 0
    return 0


def dismiss(path: Path) -> bool:
    """Announces a run that failed as stopped, so that it is no longer shown or restarted.

    Returns whether there was such a run. Raises OSError.
    """
    with _lock(path.parent):  # a new start of the name must not be marked
        if running_pid(path):
            return False
        content = read_content(path)
        if not content or content.get("state") in ("finished", "stopped"):
            return False
        write_private(
            path, json.dumps({**content, "state": "stopped"}, ensure_ascii=False, indent=1) + "\n"
        )
    return True


class _lock:  # noqa: N801 - a context manager; contextlib's would be no shorter
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _remove_old(runs: Path) -> None:
    """Removes what this program wrote for runs that ended long ago; their logs stay."""
    for path in runs.glob("*.json"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS and not running_pid(path):
                for suffix in (".pid", ".sock", ".json"):
                    path.with_suffix(suffix).unlink(missing_ok=True)
