"""The hold file, which stops all actions, or the actions on one run or worker.

Each line is one hold, as JSON. A file that is empty (`touch`) or cannot be parsed holds everything.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.start_times import boot_seconds
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_remediator.exceptions import HoldError
from trainwarden_remediator.runtime.clock import Clock, boot_id

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 20
"""Bytes; a longer file holds everything."""
MAX_REASON_LENGTH = 500
CHANGE_SECONDS = 10.0
"""How long a change of the hold file waits for its disk."""
LOCK_SECONDS = 2.0
"""How long a change of the hold file waits for its lock; other writers need milliseconds."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Stops actions on everything, on a run, or on a worker of a run.

    Times are Unix seconds; without `until` the hold lasts until `resume`.
    """

    run: str = ""
    worker: str = ""
    until: float | None = None
    since: float | None = None
    who: str = ""
    why: str = ""
    boot: str = ""
    boot_until: float | None = None
    """The end in seconds since the boot that `boot` identifies: a clock that is set does not move
    it."""

    @classmethod
    def lasting(cls, seconds: float, clock: Clock) -> Hold:
        """Returns a hold on everything that ends `seconds` from now."""
        now, end = clock.now(), clock.since_boot() + seconds
        return cls(until=now + seconds, since=now, boot=clock.boot(), boot_until=end)

    def in_force(self, now: float, since_boot: float, boot: str) -> bool:
        """Whether it is in force at `now` (Unix seconds), `since_boot` seconds after `boot`."""
        if self.until is None:
            return True
        if self.boot_until is None:  # of an earlier version
            return now < self.until
        if boot and self.boot == boot:
            return since_boot < self.boot_until
        # After a reboot only the time of day tells what has passed; it may be wrong by years.
        longest = self.until - (self.until if self.since is None else self.since)
        return now < self.until and since_boot < longest

    @property
    def everything(self) -> bool:
        return not self.run

    @property
    def scope(self) -> str:
        """The run or worker that is held, or "everything"."""
        return "/".join(part for part in (self.run, self.worker) if part) or "everything"

    @property
    def description(self) -> str:
        """Who set the hold, until when and why, as far as known."""
        text = f"by {self.who}" if self.who else ""
        if self.until is not None:
            text += f" until {format_time(self.until)}"
        return f"{text}{f': {self.why}' if self.why else ''}".strip(" :")

    def covers(self, key: WorkerKey) -> bool:
        """Whether actions on that worker are held."""
        return self.everything or (self.run == key.run and self.worker in ("", key.worker))


EVERYTHING = Hold()

_HOLD = TypeAdapter(Hold)


def read_holds(hold_file: Path, now: float, since_boot: float | None = None) -> tuple[Hold, ...]:
    """Returns the holds in force at `now` (Unix seconds). An unreadable file holds everything.

    `since_boot`: seconds since boot, if not those of this moment.
    """
    try:
        content = bounded_call(hold_file, partial(_read, hold_file))
    except OSError as error:
        log.error("cannot read the hold file", extra={"error": str(error)})
        return (EVERYTHING,)
    if content is None:
        return ()
    holds = parse_holds(content)
    passed, boot = boot_seconds() if since_boot is None else since_boot, boot_id()
    return tuple(hold for hold in holds if hold.in_force(now, passed, boot))


def parse_holds(content: bytes) -> tuple[Hold, ...]:
    """Returns the holds in the content of a hold file, including expired ones."""
    lines = content.split(b"\n")
    holds = [_parse_line(line) for line in lines if line.strip()]
    return tuple(hold or EVERYTHING for hold in holds) or (EVERYTHING,)


def add_hold(hold_file: Path, hold: Hold, now: float) -> None:
    """Adds `hold`, replacing a hold of the same scope. Raises HoldError."""

    def added(holds: Sequence[Hold]) -> Sequence[Hold]:
        same = (hold.run, hold.worker)
        return [*(one for one in holds if (one.run, one.worker) != same), hold]

    _change(hold_file, added, now)


def lift_holds(hold_file: Path, run: str, worker: str, now: float) -> tuple[Hold, ...]:
    """Lifts the holds on that run or worker, or all holds without a run.

    Returns the lifted holds; a hold with a wider scope stays. Raises HoldError.
    """
    lifted: list[Hold] = []

    def left(holds: Sequence[Hold]) -> Sequence[Hold]:
        gone = [one for one in holds if not run or (one.run == run and worker in ("", one.worker))]
        lifted.extend(gone)
        return [one for one in holds if one not in gone]

    _change(hold_file, left, now)
    return tuple(lifted)


def _change(
    hold_file: Path, change: Callable[[Sequence[Hold]], Sequence[Hold]], now: float
) -> None:
    def write() -> None:
        hold_file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(hold_file):
            holds = change(read_holds(hold_file, now))
            if not holds:
                hold_file.unlink(missing_ok=True)
                return
            lines = (json.dumps({k: v for k, v in asdict(one).items() if v}) for one in holds)
            fresh = _create(hold_file, "".join(f"{line}\n" for line in lines))
            fresh.replace(hold_file)

    try:
        run_with_timeout(CHANGE_SECONDS, write)
    except OSError as error:
        raise HoldError(f"{hold_file}: {error.strerror or error}") from error


def _create(hold_file: Path, text: str) -> Path:
    """Writes `text` to a new file beside the hold file. Raises OSError."""
    fresh = Path(f"{hold_file}.new")
    fresh.unlink(missing_ok=True)
    # "x": a link that another account puts in its place is not followed.
    with fresh.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    # The operator and the remediator may be different users.
    fresh.chmod(0o644)
    return fresh


@contextmanager
def _locked(hold_file: Path) -> Iterator[None]:
    """Locks the hold file against other writers for up to LOCK_SECONDS.

    Without the lock the last writer wins: an emergency stop is never refused.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(f"{hold_file}.lock", flags, 0o600)
    except OSError as error:
        log.warning("hold file not locked", extra={"error": str(error)})
        yield
        return
    try:
        with suppress(PermissionError):
            os.fchmod(fd, 0o600)  # any account that can open the file can lock it
        if not _lock_within(fd, LOCK_SECONDS):
            log.warning("hold file locked by another process, written anyway")
        yield
    finally:
        os.close(fd)


def _lock_within(fd: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def _read(hold_file: Path) -> bytes | None:
    """Returns the content; b"" if it is not a regular file or too long, None if it is missing."""
    try:
        hold_file.lstat()
    except FileNotFoundError:
        return None
    try:
        fd = os.open(hold_file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # a dangling link
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        content = os.read(fd, MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    return b"" if len(content) > MAX_FILE_BYTES else content


def _parse_line(line: bytes) -> Hold | None:
    try:
        hold = _HOLD.validate_json(line, strict=True)
    except ValidationError:
        return None
    return hold if hold.run or not hold.worker else None
