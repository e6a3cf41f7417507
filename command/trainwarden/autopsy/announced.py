"""Finds the runs that `trainwarden run` started in a folder, or that saved there."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwarden.autopsy.model import LogReading
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.safe_open import open_regular

MAX_FILES = 2000
_MAX_BYTES = 256 << 10
NOT_STARTED = "not started"
_ENDED = ("finished", "failed", "stopped", NOT_STARTED)
_NOT_FOUND, _NOT_EXECUTABLE = 127 << 8, 126 << 8
"""Wait statuses of `trainwarden run` that could not start its command."""


@dataclass(frozen=True, slots=True)
class AnnouncedWorker:
    """What `trainwarden run` recorded of one worker."""

    run: str
    worker: str
    state: str
    log: Path
    alive: bool = False
    status: int | None = None
    """Wait status of the last process; None if it is not known to have ended."""
    started_at: float = 0.0
    ended_at: float | None = None
    checkpoints: Path | None = None
    """The folder of its checkpoints, as it was given to `trainwarden run`."""
    command: str = ""
    silent: float = 0.0
    """For how many seconds it had printed nothing when its stop was requested, if that is known."""
    not_started: str = ""
    """Why the command could never be started."""
    announced_at: float = 0.0
    """When it was started by an operator, not by a restart."""

    @property
    def own_path(self) -> Path:
        """What `trainwarden autopsy` is to be given for this run alone."""
        if self.not_started:
            return Path(self.run)  # it has no log
        return self.log if self.checkpoints is None else self.checkpoints

    def wrote(self, log: LogReading) -> bool:
        return self.log.resolve() == log.log.path.resolve()

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def failed(self) -> bool:
        """Whether it ended with a status of its own other than 0, and no signal ended it."""
        return self.status is not None and 0 < os.waitstatus_to_exitcode(self.status) <= 128  # noqa: PLR2004 - above it, that of a signal

    @property
    def how(self) -> str:
        """`killed by SIGKILL`, `exit status 3`; empty if unknown."""
        if self.status is None:
            return ""
        code = os.waitstatus_to_exitcode(self.status)
        if code >= 0:
            return f"exit status {code}"
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"


def has_finished(workers: Sequence[AnnouncedWorker]) -> bool | None:
    """Whether the run finished; None if that is not recorded."""
    states = {one.state for one in workers}
    if "failed" in states:
        return False
    is_over = all(one.ended and not one.failed for one in workers)
    return True if "finished" in states and is_over else None


def as_it_ended(worker: AnnouncedWorker, logs: Sequence[LogReading]) -> AnnouncedWorker:
    """Returns `worker` as failed if its last process had ended before its stop was requested."""
    log = next((one for one in logs if worker.wrote(one)), None)
    if log is None or worker.state != "stopped":
        return worker
    kinds = ("started_again", "process_ended", "stop_requested")
    start, end, stop = (log.tallies[one].last.order if one in log.tallies else 0 for one in kinds)
    return replace(worker, state="failed") if worker.status and start < end < stop else worker


def read_announced(
    folder: Path | None, runs: Path, running_pid: Callable[[Path], int]
) -> tuple[AnnouncedWorker, ...]:
    """Returns the workers of the runs that belong to `folder`, which may be a log; None: of all.

    These are the runs that were started in it, and those whose log or checkpoints it is or holds.
    `runs` holds the announcements, and `running_pid` returns the living process of one, or 0.
    Announcements that cannot be read, or that belong to another account, are left out.
    """
    try:
        files = sorted(runs.glob("[!.]*.json"))[:MAX_FILES]
    except OSError:
        return ()
    folder = None if folder is None else folder.resolve()
    return tuple(one for path in files for one in _read(path, folder, running_pid))


def split_runs(
    workers: Sequence[AnnouncedWorker],
) -> tuple[tuple[AnnouncedWorker, ...], tuple[AnnouncedWorker, ...]]:
    """Returns the workers of the run that started last, and one worker of each other run.

    An earlier start of the same run is none: it has the same checkpoints, or without any given, the
    same command, and has not finished.
    """
    runs: dict[str, list[AnnouncedWorker]] = defaultdict(list)
    for one in sorted(workers, key=lambda one: -one.started_at):
        runs[one.run].append(one)
    own, *others = runs.values() or [[]]
    shown = (max(one, key=lambda worker: worker.checkpoints is not None) for one in others)
    apart = (worker for worker in shown if not _goes_on(runs[worker.run], own))
    return tuple(own), tuple(apart)


def _goes_on(run: Sequence[AnnouncedWorker], own: Sequence[AnnouncedWorker]) -> bool:
    before, now = ({one.checkpoints for one in some} - {None} for some in (run, own))
    if before or now:
        return not before.isdisjoint(now)
    return not has_finished(run) and {one.command for one in run} == {one.command for one in own}


def _read(
    path: Path, folder: Path | None, running_pid: Callable[[Path], int]
) -> Iterator[AnnouncedWorker]:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = _content(path)
        places = (content.get(key) for key in ("cwd", "path", "log", "checkpoints"))
        started, base, log, saved = (
            Path(one).resolve() if isinstance(one, str) else None for one in places
        )
        files = [one for one in (log, saved) if one is not None]
        if folder in (None, started, base) or any(one.is_relative_to(folder) for one in files):
            status, ended = content["exit_status"], content["ended_at"]
            reason = _why_not_started(content)
            yield AnnouncedWorker(
                str(content["run"]),
                str(content["worker"]),
                NOT_STARTED if reason else str(content.get("dismissed") or content["state"]),
                Path(content["log"]),
                running_pid(path) > 0,
                None if status is None else int(status) & 0xFFFF,
                float(content["started_at"] or 0.0),
                None if ended is None else float(ended),
                saved,
                str(content.get("argv")),
                float(content.get("silent_before_stop") or 0.0),
                reason,
                float(content.get("announced_at") or 0.0),
            )


def _why_not_started(content: Mapping[str, Any]) -> str:
    status = content["exit_status"]
    if content.get("starts") != 0 or status not in (_NOT_FOUND, _NOT_EXECUTABLE):
        return ""
    command = f"The command {redact(content['argv'][0])}"
    if status == _NOT_FOUND:
        return f"{command} was not found"
    return f"{command} cannot be executed: {', '.join(content['last_lines'])}"


def _content(path: Path) -> dict[str, Any]:
    """Raises OSError, and ValueError for what is no announcement of this account."""
    descriptor = open_regular(path)
    if descriptor is None:
        raise ValueError(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise ValueError(f"{path}: belongs to another account")
        content = json.loads(file.read(_MAX_BYTES))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not an announcement")  # noqa: TRY004 - the content is wrong
    return content
