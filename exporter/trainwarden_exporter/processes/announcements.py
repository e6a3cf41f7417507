"""Reads the runs that announce themselves: the files of `trainwarden run` in `runs.d/`.

A file speaks only for processes of the account that owns it, which the pid file beside it ensures.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from trainwarden_exporter.config_file.types import Bytes, Name, Seconds
from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.processes.exit_status import ProcessExit
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.typed_commands import stop_command
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.safe_open import open_regular

MAX_RUNS = 200
MAX_FILES = 2000
"""The files of runs that ended in the last week are read too."""
MAX_NAMES = 5 * MAX_FILES
"""Names read from the folder; beside an announcement are a pid file and a socket."""
MAX_BYTES = 256 << 10
MAX_ALL_BYTES = 16 << 20
"""Of all announcements together, beyond which the rest is ignored; one has a few thousand."""
MAX_TYPED = 1000
"""Characters of a command that is shown to be typed again."""
CLOCK_ERROR_SECONDS = 1.0
"""How much earlier a process may seem to have started than its announcement was written."""
SHOWN_SECONDS = 86400.0
"""How long a run that has ended is shown."""


def _check_path(path: Path) -> Path:
    if "\0" in str(path) or any("\ud800" <= one <= "\udfff" for one in str(path)):
        raise ValueError("not a path: it cannot be encoded as UTF-8 or contains a NUL character")
    return path


def _check_template(path: Path) -> Path:
    if set("{}") & set(str(path)):
        raise ValueError("has a brace, which stands for a name in a path of checkpoints")
    return path


def _check_status(status: int) -> int:
    os.waitstatus_to_exitcode(status)  # raises ValueError, as for a process that was stopped
    return status


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


_Text = Annotated[str, Field(max_length=4096)]
_EncodablePath = Annotated[Path, AfterValidator(_check_path)]
_Status = Annotated[int, Field(ge=0, le=0xFFFF), AfterValidator(_check_status)]
_Exit = tuple[int, int, _Status]
_Restart = tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], _Status]


class Announcement(BaseModel):
    """One worker of an announced run. Keys of a newer `trainwarden run` are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Name
    worker: Name
    role: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_check_printable)] = (
        "worker"
    )
    state: Literal["starting", "running", "restarting", "finished", "failed", "stopped"] = "running"
    dismissed: Literal["finished", "failed", ""] = ""
    """How it had ended before an operator dismissed it, if one has."""
    restart: Literal["never", "on-failure", "on-request"] = "never"
    pid: Annotated[int, Field(ge=0)]
    start_ticks: Annotated[int, Field(ge=0)] = 0
    wrapper_pid: Annotated[int, Field(ge=0)] = 0
    """The `trainwarden run` that answers at the socket; 0 if it is not announced."""
    wrapper_start_ticks: Annotated[int, Field(ge=0)] = 0
    starts: Annotated[int, Field(ge=0)] = 1
    started_at: float | None = None
    ended_at: float | None = None
    exits: Annotated[tuple[_Exit, ...], Field(max_length=100)] = ()
    """Pid, start time in ticks and wait status of the last processes that ended."""
    never_works: bool = False
    """Whether its `trainwarden run` has ended as no further start can work."""
    own_restarts: Annotated[tuple[_Restart, ...], Field(max_length=100)] = ()
    """Unix time and wait status of the ends after which `trainwarden run` itself started again."""
    last_lines: Annotated[tuple[_Text, ...], Field(max_length=100)] = ()
    final_error: _Text = ""
    """The error that it printed last before exit status 0; if it has finished, it may have failed
    with it, or have caught it."""
    left: _Text = ""
    """Which processes of an earlier attempt lived when it failed, and what ends them."""
    goes_on: Annotated[tuple[tuple[int, int], ...], Field(max_length=100)] = ()
    """Pid and start time in ticks of processes that lived when the command finished."""
    argv: tuple[str, ...] = ()
    """The command, and its arguments."""
    options: tuple[str, ...] | None = None
    """Those of `trainwarden run`, as they were given."""
    cwd: str = ""
    """The folder in which it runs."""
    log: _EncodablePath | None = None
    log_offset: Annotated[int, Field(ge=0)] = 0
    """Size of the log in bytes when the run was announced."""
    announced_at: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    counted_since: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Unix time of the first start of this command that counts towards a restart loop: earlier ones
    were stopped by an operator, or had other arguments."""
    socket: _EncodablePath | None = None
    framework: Name = "generic"
    path: _EncodablePath | None = None
    checkpoints: Annotated[_EncodablePath, AfterValidator(_check_template)] | None = None
    """Folder of the checkpoints, whatever writes them."""
    memory_limit: Annotated[Bytes, Field(gt=0)] | None = None
    age_limit: Annotated[Seconds, Field(gt=0)] | None = None
    ready: _Text | None = None
    """HTTP address that answers once it is ready, of an inference server."""
    finishes: bool = True
    """Whether exit status 0 is the end of the run."""
    ended_with_run: bool = False
    """If it is stopped: whether `trainwarden run` ended it because the rest of its run had ended,
    and no operator did."""

    @property
    def key(self) -> WorkerKey:
        return WorkerKey(self.run, self.worker)

    @property
    def has_ended(self) -> bool:
        return self.state in ("finished", "failed", "stopped")

    @property
    def wrapper(self) -> Identity | None:
        """The `trainwarden run` that can start the command again, if it is announced."""
        if not self.wrapper_pid or not self.wrapper_start_ticks:
            return None
        return Identity(self.wrapper_pid, self.wrapper_start_ticks)

    @property
    def failure(self) -> str:
        """How the command failed, as `SIGKILL` or `exit status 1`; empty if it did not."""
        if self.state != "failed" or not self.exits:
            return ""
        return describe_end(self.exits[-1][2])

    @property
    def start_command(self) -> str:
        """What an operator types to start it again, without secrets.

        "" if that is not announced, and if a page, a terminal or the journal could not show it: an
        argument may be any bytes, and megabytes long.
        """
        if not self.argv or self.options is None:
            return ""
        # Without it, a command that fails ends its `trainwarden run`, and nobody starts it again.
        needs_detach = self.restart == "on-request" and "--detach" not in self.options
        detach = ["--detach"] if needs_detach else []
        given = ["trainwarden", "run", *self.options, *detach, "--", *self.argv]
        if sum(map(len, given)) > MAX_TYPED or not "".join((*given, self.cwd)).isprintable():
            return ""
        line = shlex.join(given)
        return redact(f"cd {shlex.quote(self.cwd)} && {line}" if self.cwd else line)

    @property
    def restarts_itself(self) -> bool:
        """Whether the command has failed, and its `trainwarden run` is about to start it again."""
        last = self.own_restarts[-1:]
        return self.state == "failed" and bool(last) and last[0][0] == self.ended_at

    def exit_of(self, identity: Identity) -> ProcessExit | None:
        """Returns how a process of this worker ended; None if it is not one.

        A process whose end is not announced yet counts as not reaped: its status follows.
        """
        for pid, ticks, status in self.exits:
            if (pid, ticks) == identity:
                return ProcessExit(status, reaped=True)
        if (self.pid, self.start_ticks) == identity and not self.has_ended:
            return ProcessExit(None, reaped=False)
        return None


@dataclass(frozen=True)
class AnnouncedRuns:
    """The valid announcements, and what is wrong with the other files."""

    workers: Mapping[WorkerKey, AnnouncedWorker] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    stopped: frozenset[WorkerKey] = frozenset()
    """Workers that were stopped, and have not been started again;"""
    dismissed: Mapping[WorkerKey, str] = field(default_factory=dict)
    """of these, how each one had ended that was dismissed later;"""
    ended_with_run: frozenset[WorkerKey] = frozenset()
    """and the ones that no operator stopped: their run had ended."""

    def exit_of(self, key: WorkerKey, identity: Identity) -> ProcessExit | None:
        """Returns how a process of worker `key` ended; None if its announcement does not name it.

        An announcement says nothing about the processes of another worker.
        """
        found = self.workers.get(key)
        return None if found is None else found.announcement.exit_of(identity)

    def start_command(self, key: WorkerKey) -> str:
        """Returns what ends worker `key` if it goes on, and starts it again; "" if not known."""
        if (found := self.workers.get(key)) is None:
            return ""
        start, goes_on = found.announcement.start_command, not found.announcement.has_ended
        # `trainwarden run` refuses a second one
        return f"{stop_command(key, self.workers)}; {start}" if start and goes_on else start

    def counted_since(self, key: WorkerKey, now: float) -> float:
        """Returns the Unix time from which on starts of worker `key` count towards a loop.

        It is ignored if it is later than `now`: the clock has been set since.
        """
        found = self.workers.get(key)
        since = 0.0 if found is None else found.announcement.counted_since
        return max(0.0, since - CLOCK_ERROR_SECONDS) if since <= now else 0.0


@dataclass(frozen=True)
class AnnouncedWorker:
    """A valid announcement with its file and the account (uid) that owns it."""

    announcement: Announcement
    file: Path
    uid: int

    @property
    def pid_file(self) -> Path:
        return self.file.with_suffix(".pid")


ReadAnnouncements = Callable[[float, AnnouncedRuns], AnnouncedRuns]
"""Returns the runs announced at a time (Unix seconds), after those of the read before."""


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


def describe_end(status: int) -> str:
    """Returns a wait status as `SIGKILL` or `exit status 1`."""
    code = os.waitstatus_to_exitcode(status)
    try:
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


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
