"""The announcement of a run: a file in `runs.d/` that the exporter and the remediator read."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainwarden.run.folder import (
    RunFiles,
    find_all_announcements,
    make_folders,
    write_private,
)
from trainwarden.run.left_processes import describe_left, left_behind
from trainwarden.run.process_tree import read_start_ticks

MAX_BYTES = 16 << 20
"""A longer file is no announcement: a command line of 2 MiB has six times that as JSON."""
KEPT_EXITS = 8
"""Number of ended processes whose exit status is kept."""
KEPT_RESTARTS = 100
"""Number of restarts by this program that are kept."""
SETTLED = ("finished", "stopped")
"""States of a run that nobody starts again."""


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
            silent_before_stop=None,
            final_error="",
            left="",
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
        # before the first restart there is no earlier attempt
        again = state == "failed" and self.content["starts"] > 1
        known = self.content.get("run_id", ""), self.content["start_ticks"]
        self.content["left"] = describe_left(*known) if again else ""
        self.content["goes_on"] = left_behind(known[0]) if state == "finished" else []
        self.save()

    def record_silence(self, seconds: float | None) -> None:
        """Notes for how long the command had printed nothing when its stop was requested."""
        self.content["silent_before_stop"] = seconds

    def record_dismissal(self) -> None:
        """Records that nobody is to be called for the end of the command, as `dismiss` does."""
        self.content.update(state="stopped", dismissed=self.content["state"])
        self.save()

    def record_hopeless(self, hopeless: bool) -> None:
        """Records whether the command is not started again as no start of it can work."""
        if hopeless:
            self.content["never_works"] = True
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

    def restore(self) -> bool:
        """Writes the file again if it was removed, as with its folder; returns whether it was.

        A file in its place is that of a new start of the name, and stays.
        """
        if self.files.announcement.exists():
            return False
        with suppress(OSError):
            make_folders(self.files.announcement.parent.parent)
            with FolderLock(self.files.announcement.parent):
                if not self.files.announcement.exists():
                    self.content["log_offset"] = 0  # the log is gone, too
                    self.save()
                    return True
        return False

    def save(self) -> None:
        """Writes the file. A full disk does not end the run: the file is then out of date."""
        with suppress(OSError):
            if self.content["pid"]:
                write_private(self.files.pid_file, f"{self.content['pid']}\n")
            # what is not UTF-8 in the command line is replaced: the file is for readers
            text = json.dumps(self.content, ensure_ascii=False, indent=1) + "\n"
            text = text.encode("utf-8", "replace").decode()
            write_private(self.files.announcement, text)


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


def find_running() -> dict[str, list[Path]]:
    """Returns the announcements of the workers that are not over, by run."""
    found = {run: [*filter(running_pid, all_)] for run, all_ in find_all_announcements().items()}
    return {run: running for run, running in found.items() if running}


def list_running() -> list[str]:
    """Returns a line for each run that goes on: what stops it, its workers and its folder."""
    lines = []
    for run, paths in find_running().items():
        folder = read_content(paths[0]).get("cwd") or "an unknown folder"
        workers = ", ".join(path.stem.partition("@")[2] for path in paths)
        lines.append(f"  trainwarden stop {run:<12}  ({workers}, in {folder})")
    return lines


def end_of(content: Mapping[str, Any]) -> str:
    """Returns the state in which a command has ended, also if it was dismissed since."""
    return str(content.get("dismissed") or content.get("state", ""))


def dismiss(path: Path) -> str:
    """Announces a run that failed or finished as stopped: it is no longer shown or restarted.

    Returns the state it was in, "" if there is no such run. Raises OSError.
    """
    with FolderLock(path.parent):  # a new start of the name must not be marked
        if running_pid(path):
            return ""
        content = read_content(path)
        state = end_of(content)
        if not content or content.get("state") == "stopped":
            return ""
        shown = {**content, "state": "stopped", "dismissed": state}
        write_private(path, json.dumps(shown, ensure_ascii=False, indent=1) + "\n")
    return state


class FolderLock:
    """Of the folder of the announcements: no name is taken and no run dismissed meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
