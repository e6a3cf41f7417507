"""Looks whether a process is writing a checkpoint at this moment.

The exporter scans checkpoint folders every ten seconds; SIGTERM would interrupt a save that began
since (harm 17).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.processes.procfs import PROC, read_open_links, read_text
from trainwarden_exporter.runtime.bounded_calls import bounded_call
from trainwarden_exporter.runtime.resolved_path import resolved_path
from trainwarden_exporter.step_dirs.names import NameParser, StepDirName

RECENT_SECONDS = 5.0
"""Seconds since its last write for which an incomplete checkpoint counts as being written: between
two of its files, none is open."""


OUTSIDE_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp")
"""Names of files that are checkpoints wherever they lie."""

OUTSIDE_RECENT_SECONDS = 60.0
"""Seconds since its last write for which such a file outside the folders of the run counts as being
written: a file may stay open for writing and never be written to."""


class Save(NamedTuple):
    """A checkpoint that is being written, by its folder, or its path outside these, and its step.

    A save may write to another name and rename it, so the name counts only without a step.
    """

    place: str
    step: int | None = None
    name: str = ""


class SaveCheck:
    """Looks for the checkpoints of `specs`. For one thread."""

    def __init__(
        self, specs: Sequence[CheckpointSpec], *, now: Callable[[], float] = time.time
    ) -> None:
        self._scanners = [CheckpointScanner(spec) for spec in specs]
        self._parsers = [
            (spec.location.path, NameParser(spec.layout.entry, spec.layout.partial))
            for spec in specs
        ]
        self._now = now

    def saves(self, pids: Iterable[int]) -> frozenset[Save]:
        """Returns the checkpoints that `pids` write to, or that were written to just now.

        Each folder is waited for as in `bounded_call`. A folder that does not respond counts as
        written to only while one of `pids` has a file open in it for writing; SIGKILL waits for
        the others.
        """
        if not self._scanners:
            return frozenset()
        roots = [(resolved_path(str(path)), parser) for path, parser in self._parsers]
        open_saves = (self._save_of(path, roots) for pid in pids for path in written_files(pid))
        recent = map(self._recent_save, self._scanners, roots)
        return frozenset(save for save in (*open_saves, *recent) if save is not None)

    def _save_of(self, path: str, roots: Iterable[tuple[str, NameParser]]) -> Save | None:
        outside = True
        for root, parser in roots:
            if path.startswith(f"{root}/"):
                outside = False
                for part in path[len(root) + 1 :].split("/"):
                    if (name := parser.parse(part)) is not None:
                        return _save(root, name)
        if outside and path.endswith(OUTSIDE_SUFFIXES):
            # A link in /proc names a file that this account may not reach.
            with suppress(OSError):
                written = bounded_call(path, lambda: os.stat(path).st_mtime)  # noqa: PTH116 - a path of /proc
                if self._now() - written < OUTSIDE_RECENT_SECONDS:
                    return Save(path)
        return None

    def _recent_save(self, scanner: CheckpointScanner, root: tuple[str, NameParser]) -> Save | None:
        try:
            progress = bounded_call(root[0], scanner).in_progress
        except OSError:
            return None
        if progress is None or self._now() - progress[0].changed_at >= RECENT_SECONDS:
            return None
        return _save(root[0], progress[0].name)


class SaveWait:
    """Whether a save that was under way at the first look still is.

    A run that saves every few seconds begins the next save meanwhile: it is none to wait for.
    """

    def __init__(self, check: SaveCheck) -> None:
        self._check = check
        self._awaited: frozenset[Save] | None = None

    def goes_on(self, pids: Iterable[int]) -> bool:
        """Blocks as `SaveCheck.saves` does."""
        now = self._check.saves(pids)
        self._awaited = now if self._awaited is None else self._awaited & now
        return bool(self._awaited)


def _save(root: str, name: StepDirName) -> Save:
    return Save(root, name.number, "" if name.number is not None else name.text)


def written_files(pid: int) -> Iterator[str]:
    """Yields the paths that a process has open for writing (proc_pid_fdinfo(5)).

    Yields none if the process has ended or belongs to another account.
    """
    for name, path in read_open_links(pid):
        if path.startswith("/") and _is_writable(f"{PROC}/{pid}/fdinfo/{name}"):
            yield path


def _is_writable(fdinfo: str) -> bool:
    for line in (read_text(fdinfo) or "").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
