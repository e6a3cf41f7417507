"""Looks whether a process is writing a checkpoint at this moment.

The exporter scans checkpoint folders every ten seconds; SIGTERM would interrupt a save that began
since (harm 17).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.processes.procfs import PROC, read_open_links, read_text
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.step_dirs.names import NameParser

LOOK_SECONDS = 1.0
"""Seconds after which a folder that does not respond counts as not being written to: a save there
makes no progress either, and SIGKILL waits for it."""

RECENT_SECONDS = 5.0
"""Seconds since its last write for which an incomplete checkpoint counts as being written: between
two of its files, none is open."""


class SaveCheck:
    """Looks for the checkpoints of `specs`. For one thread."""

    def __init__(
        self,
        specs: Sequence[CheckpointSpec],
        *,
        now: Callable[[], float] = time.time,
        proc: Path = PROC,
    ) -> None:
        self._scanners = [CheckpointScanner(spec) for spec in specs]
        self._parsers = [
            (spec.location.path, NameParser(spec.layout.entry, spec.layout.partial))
            for spec in specs
        ]
        self._now = now
        self._proc = proc

    def saving(self, pids: Iterable[int]) -> bool:
        """Whether one of `pids` writes to a checkpoint, or one was written to just now.

        Blocks for at most LOOK_SECONDS for each look.
        """
        if not self._scanners:
            return False
        return _answer(partial(self._writes, list(pids))) or _answer(self._is_recent)

    def _writes(self, pids: Sequence[int]) -> bool:
        roots = [(os.path.realpath(path), parser) for path, parser in self._parsers]
        return any(
            path.startswith(f"{root}/") and any(map(parser.parse, path[len(root) + 1 :].split("/")))
            for pid in pids
            for path in written_files(pid, self._proc)
            for root, parser in roots
        )

    def _is_recent(self) -> bool:
        for scanner in self._scanners:
            found = scanner().in_progress
            if found is not None and self._now() - found[0].changed_at < RECENT_SECONDS:
                return True
        return False


def written_files(pid: int, proc: Path = PROC) -> Iterator[str]:
    """Yields the paths that a process has open for writing (proc_pid_fdinfo(5)).

    Yields none if the process has ended or belongs to another account.
    """
    for name, path in read_open_links(pid, proc):
        if path.startswith("/") and _is_writable(f"{proc}/{pid}/fdinfo/{name}"):
            yield path


def _is_writable(fdinfo: str) -> bool:
    for line in (read_text(fdinfo) or "").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _answer(look: Callable[[], bool]) -> bool:
    try:
        return run_with_timeout(LOOK_SECONDS, look)
    except (OSError, TimeoutError):
        return False
