"""What runs announce about themselves, as `trainwarden run` writes it."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainwarden_exporter.config_file.types import Bytes, Name, Seconds
from trainwarden_exporter.exceptions import Problem
from trainwarden_exporter.processes.exit_status import ProcessExit
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.typed_commands import stop_command
from trainwarden_exporter.runtime.redaction import redact

MAX_TYPED = 1000
"""Characters of a command that is shown to be typed again."""
CLOCK_ERROR_SECONDS = 1.0
"""How much earlier a process may seem to have started than its announcement was written."""


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


def describe_end(status: int) -> str:
    """Returns a wait status as `SIGKILL` or `exit status 1`."""
    code = os.waitstatus_to_exitcode(status)
    try:
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
