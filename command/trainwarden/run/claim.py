"""Takes the name of a new run, and the place of a failed one whose wrapper still waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from trainwarden.run.announcement import (
    SETTLED,
    Announcement,
    FolderLock,
    end_of,
    read_content,
    running_pid,
)
from trainwarden.run.folder import make_folders, run_files
from trainwarden.run.left_processes import NO_PROCESS
from trainwarden.run.process_tree import find_processes, read_start_ticks

KEPT_SECONDS = 7 * 86400.0
"""How long the announcement of an ended run is kept."""
END_SECONDS = 60.0
"""How long the wrapper of a run whose place is taken may need to end."""
POLL_SECONDS = 0.02
"""No process has this pid, and none this parent."""
_START = {
    "state": "starting",
    "pid": 0,
    "start_ticks": 0,
    "started_at": None,
    "starts": 0,
    "exit_status": None,
    "ended_at": None,
}

_COMMAND = ("argv", "cwd")
"""What makes two runs the same command in the same folder."""

Say = Callable[[str], None]
"""Tells the user one line about the start."""


def claim(folder: Path, content: dict[str, Any], *, free_name: bool, say: Say) -> Announcement:
    """Returns the announcement of a new run, and writes it: no other start can take its name.

    A run of this name whose command has ended, and whose wrapper waits to start it again, ends: two
    trainers would write the same checkpoints. With `free_name` only one of the same arguments and
    folder does. A number is added to the name of a run that has finished: its step and its starts
    are not those of the new run. With `free_name`, also to the name of a run that goes on or is of
    another folder. Raises ValueError if the worker already runs, OSError if the folder cannot be
    written.
    """
    make_folders(folder)
    runs = folder / "runs.d"
    wanted, taken = content["run"], ""
    with FolderLock(runs):
        _remove_old(runs)
        for name in _numbered(wanted):
            content["run"] = name
            files = run_files(folder, name, content["worker"])
            if files.announcement.exists() and has_finished(runs, name):
                taken = taken or "has finished"
                continue
            before = read_content(files.announcement)
            pid = running_pid(files.announcement)
            is_same = all(before.get(key) == content[key] for key in _COMMAND)
            if pid and (is_same or not free_name) and _end_waiting(files.announcement, before, say):
                before, pid = read_content(files.announcement), 0
            if not free_name and pid:
                which = f"run {name}, worker {content['worker']}"
                end = f"`trainwarden stop {name}` ends it"
                raise ValueError(f"{which}: already runs as process {pid}; {end}")
            if not free_name or not (pid or _is_of_another_folder(runs, content)):
                break
            if not taken:
                taken = _describe_state(files.announcement) if pid else "is of another folder"
        if name != wanted:
            say(f"the run {wanted} {taken}; this one is {name}")
        for line in (*_shared_files(runs, content), *_left_processes(before)):
            say(line)
        goes_on = before.get("argv") == content["argv"] and before.get("state") not in SETTLED
        now = time.time()
        found = Announcement(
            files,
            {
                **content,
                **_START,
                # a restart loop has no part in which an operator stopped or changed the command
                "counted_since": before.get("counted_since", 0.0) if goes_on else now,
                "log": str(files.log),
                "log_offset": _size(files.log),
                "announced_at": now,
                "socket": str(files.socket),
                "exits": [],
                "last_lines": [],
            },
        )
        found.record_wrapper()
    return found


def has_finished(runs: Path, run: str) -> bool:
    """Returns whether all announced commands of a run that finish have done so, and none runs.

    A command that was stopped with its run has no part in it.
    """
    found = list(runs.glob(f"{run}@*.json"))
    contents = [content for content in map(read_content, found) if content.get("finishes", True)]
    ends = [end_of(one) for one in contents if not one.get("ended_with_run")]
    return bool(ends) and set(ends) == {"finished"} and not any(map(running_pid, found))


def next_name(runs: Path, run: str) -> str:
    """Returns the name of a new start of a run: with a number if the run has finished."""
    return next(name for name in _numbered(run) if not has_finished(runs, name))


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def _is_of_another_folder(runs: Path, content: dict[str, Any]) -> bool:
    workers = runs.glob(f"{content['run']}@*.json")
    return any(read_content(one).get("cwd", content["cwd"]) != content["cwd"] for one in workers)


def _waits(path: Path, content: dict[str, Any]) -> bool:
    """Returns whether the command of a run has failed, and only its wrapper lives."""
    return content.get("state") == "failed" and running_pid(path) == content.get("wrapper_pid")


def _describe_state(path: Path) -> str:
    waits = _waits(path, read_content(path))
    return "waits to be started again" if waits else f"runs as process {running_pid(path)}"


def _end_waiting(path: Path, content: dict[str, Any], say: Say) -> bool:
    """Ends the wrapper of a run that waits to be started again; returns whether it has ended."""
    if not _waits(path, content):
        return False
    # here: a start that takes no place needs none of it
    from trainwarden_exporter.processes.run_socket import ask_run  # noqa: PLC0415

    deadline = time.monotonic() + END_SECONDS
    # of this process alone: the remediator may have it started again at this moment
    meant = {name: content[name] for name in ("pid", "start_ticks")}
    try:
        answer = ask_run(
            path.with_suffix(".sock"),
            owner=os.geteuid(),
            timeout=END_SECONDS,
            command="stop",
            **meant,
        )
    except (OSError, ValueError):
        return False
    wrapper = content["wrapper_pid"], content["wrapper_start_ticks"]
    # at its end it removes its socket, whose place is that of ours
    while answer.get("ok") and time.monotonic() < deadline:
        if read_start_ticks(wrapper[0]) != wrapper[1]:
            say(f"the run {content['run']} had failed and waited; this start takes its place")
            return True
        time.sleep(POLL_SECONDS)
    return False


def _shared_files(runs: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yields a warning for each other run that goes on and writes to the same checkpoints.

    And one for all that may, as they are the same command, and not known to save elsewhere.
    """
    folder, same = content.get("checkpoints"), {}
    for path in sorted(runs.glob("*.json")):
        other = read_content(path)
        if not running_pid(path) or other.get("run") == content["run"]:
            continue
        which = f"{path.stem.replace('@', '/')} {_describe_state(path)}"
        its = other.get("checkpoints")
        if folder and os.path.realpath(folder) == os.path.realpath(its or ""):
            end = f"end one of them, as by `trainwarden stop {other.get('run')}`"
            yield f"warning: {which} and writes its checkpoints to {folder} too: {end}"
        elif not (folder and its) and all(other.get(key) == content[key] for key in _COMMAND):
            same[str(other.get("run"))] = which
    if same:
        several = len(same) > 1
        each = f"{', '.join(same.values())}{', and each' if several else ' and'}"
        end = (
            "several write there, end all but one"
            if several
            else "both write there, end one of them"
        )
        yield (
            f"warning: {each} is the same command in the same folder: if {end}, as by"
            f" `trainwarden stop {' '.join(same)}`"
        )


def _left_processes(before: dict[str, Any]) -> Iterator[str]:
    """Yields a warning if processes of the start before still live: they may write its files."""
    left = find_processes(NO_PROCESS, before["run_id"]) if before.get("run_id") else []
    if left:
        pids = ", ".join(str(pid) for pid, _ in left)
        yield f"warning: of the start before, process {pids} still runs"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove_old(runs: Path) -> None:
    """Removes what this program wrote for runs that ended long ago; their logs stay."""
    for path in runs.glob("*.json"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS and not running_pid(path):
                for suffix in (".pid", ".sock", ".json"):
                    path.with_suffix(suffix).unlink(missing_ok=True)
