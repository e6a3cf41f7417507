"""The file by which a person stops actions: all of them, or those on one run or one worker.

Each line is one hold, as JSON. A file that is empty, as `touch` leaves it, or that cannot be
understood holds everything.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.wording import moment
from trainwarden_remediator.exceptions import HoldError

log = logging.getLogger(__name__)

LARGEST = 1 << 20
"""Bytes; a longer file holds everything."""
WHY_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Hold:
    """A person's word that nothing be done: to anything, to a run, or to a worker of it.

    Times are Unix seconds; without `until` it lasts until a person resumes.
    """

    run: str = ""
    worker: str = ""
    until: float | None = None
    since: float | None = None
    who: str = ""
    why: str = ""

    @property
    def everything(self) -> bool:
        return not self.run

    @property
    def scope(self) -> str:
        """What is held, in words."""
        return "/".join(part for part in (self.run, self.worker) if part) or "everything"

    @property
    def told(self) -> str:
        """Who holds, until when and why, as far as that was said."""
        said = f"by {self.who}" if self.who else ""
        if self.until is not None:
            said += f" until {moment(self.until)}"
        return f"{said}{f': {self.why}' if self.why else ''}".strip(" :")

    def covers(self, key: WorkerKey) -> bool:
        """Whether nothing may be done to that worker."""
        return self.everything or (self.run == key.run and self.worker in ("", key.worker))


EVERYTHING = Hold()


def is_held(hold_file: Path, now: float | None = None) -> bool:
    """Whether a person has stopped all actions. Not being able to tell counts as held."""
    at = time.time() if now is None else now
    return any(hold.everything for hold in read_holds(hold_file, at))


def read_holds(hold_file: Path, now: float) -> tuple[Hold, ...]:
    """The holds in force at `now` (Unix seconds). Not being able to tell counts as held."""
    try:
        content = _read(hold_file)
    except OSError as error:
        log.error("cannot read the hold file", extra={"error": str(error)})
        return (EVERYTHING,)
    if content is None:
        return ()
    holds = parse_holds(content)
    return tuple(hold for hold in holds if hold.until is None or hold.until > now)


def parse_holds(content: bytes) -> tuple[Hold, ...]:
    """The holds in the content of a hold file, whether their time has come or not."""
    lines = content.split(b"\n")
    holds = [_parsed(line) for line in lines if line.strip()]
    return tuple(hold or EVERYTHING for hold in holds) or (EVERYTHING,)


def put_on(hold_file: Path, hold: Hold, now: float) -> None:
    """Add `hold`, in the place of one of the same scope. Raises HoldError."""

    def added(holds: Sequence[Hold]) -> Sequence[Hold]:
        same = (hold.run, hold.worker)
        return [*(one for one in holds if (one.run, one.worker) != same), hold]

    _change(hold_file, added, now)


def lift(hold_file: Path, run: str, worker: str, now: float) -> tuple[Hold, ...]:
    """Lift the holds on that run or worker, or all of them where no run is named.

    Returns those that were lifted; one that holds more than that stays. Raises HoldError.
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
    try:
        hold_file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(hold_file):
            holds = change(read_holds(hold_file, now))
            if not holds:
                hold_file.unlink(missing_ok=True)
                return
            fresh = Path(f"{hold_file}.new")
            lines = (json.dumps({k: v for k, v in asdict(one).items() if v}) for one in holds)
            with fresh.open("w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            # Whoever holds need not be whom the remediator runs as.
            fresh.chmod(0o644)
            fresh.replace(hold_file)
    except OSError as error:
        raise HoldError(f"{hold_file}: {error.strerror or error}") from error


@contextmanager
def _locked(hold_file: Path) -> Iterator[None]:
    """Nobody else changes it meanwhile. Where the lock may not be had, the last one counts."""
    try:
        fd = os.open(f"{hold_file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        yield
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _read(hold_file: Path) -> bytes | None:
    """Its content; nothing, for what is there and is no file; None where nothing is there."""
    try:
        hold_file.lstat()
    except FileNotFoundError:
        return None
    try:
        fd = os.open(hold_file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # a link that leads nowhere
        return b""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        content = os.read(fd, LARGEST + 1)
    finally:
        os.close(fd)
    return b"" if len(content) > LARGEST else content


def _parsed(line: bytes) -> Hold | None:
    try:
        content: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(content, dict):
        return None
    texts: dict[str, Any] = {n: content.get(n, "") for n in ("run", "worker", "who", "why")}
    times: dict[str, Any] = {n: content.get(n) for n in ("until", "since")}
    known = all(isinstance(text, str) for text in texts.values()) and all(
        at is None or (isinstance(at, int | float) and not isinstance(at, bool))
        for at in times.values()
    )
    if not known or (texts["worker"] and not texts["run"]):
        return None
    return Hold(**texts, **times)
