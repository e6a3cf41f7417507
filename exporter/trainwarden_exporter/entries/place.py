"""Where the entries of a run lie: the folders that its templates stand for now."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Lock

from trainwarden_exporter.entries.disk import Disk, is_gone
from trainwarden_exporter.entries.folder import EntryFolder
from trainwarden_exporter.entries.naming import Naming
from trainwarden_exporter.entries.reading import Reading, combined
from trainwarden_exporter.layouts.places import Instance, Place, resolve
from trainwarden_exporter.layouts.proofs import Proof
from trainwarden_exporter.wording import printable

log = logging.getLogger(__name__)

FOUND_SECONDS = 30.0
"""For how long folders that were found are taken for those of the newest run."""

SEARCH_SHARE = 0.01
"""Of all time, for which what was not found is looked for again within that."""

MOST_SHARE = 0.05
"""Of all time, for which is looked at all: a huge folder is looked through more seldom."""

LONGEST_FOUND = 300.0
"""Seconds after which is looked again at any rate: what took long may have been a mount that hung.
"""

MOST_FOLDERS = 16
"""Folders that one template may stand for; of more, those are read that changed last."""

Resolve = Callable[[Path, Sequence[str], Mapping[str, str]], Instance]


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run keeps its traces; the same for all that is looked for in it."""

    path: Path
    templates: tuple[str, ...]
    """All that its layout and its configuration name: jointly they tell which run is the newest."""
    variables: tuple[tuple[str, str], ...] = ()


class Finder:
    """Finds the folders of a run's newest instance, once for all that lies in them.

    For any thread. Whoever asks waits while another one looks: for the same folders.
    """

    def __init__(
        self,
        place: RunPlace,
        *,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self._resolve = resolve
        self._clock = clock
        self._lock = Lock()
        self._found: Instance | None = None
        self._began = self._took = 0.0
        self._cut = self._rivalled = False

    def find(self, *, again: bool = False) -> Instance:
        """As found not long ago; with `again`, as found just now, as far as that is cheap.

        Raises OSError as `places.resolve` does.
        """
        with self._lock:
            age = self._clock() - self._began
            if self._found is None or age >= self._lasts(again=again):
                self._began, place = self._clock(), self.place
                self._found = self._resolve(place.path, place.templates, dict(place.variables))
                self._took = self._clock() - self._began
                self._tell(self._found)
            return self._found

    def _lasts(self, *, again: bool) -> float:
        """Seconds for which what was found last is good enough."""
        lasts = min(FOUND_SECONDS, self._took / SEARCH_SHARE) if again else FOUND_SECONDS
        return max(lasts, min(self._took / MOST_SHARE, LONGEST_FOUND))

    def _tell(self, found: Instance) -> None:
        """Say what a person should set right, once."""
        path = printable(str(self.place.path))
        if found.cut and not self._cut:
            log.warning("too much lies in the path of a run to be found", extra={"path": path})
        if found.rivals and not self._rivalled:
            names = {"path": path, "newest": dict(found.names), "others": len(found.rivals)}
            log.warning("several runs lie in one path; variables tell them apart", extra=names)
        self._cut, self._rivalled = found.cut, bool(found.rivals)


class Entries:
    """The entries in all folders that `template` stands for. For one thread."""

    def __init__(
        self,
        finder: Finder,
        template: str,
        naming: Naming,
        proof: Proof,
        *,
        disk: Disk | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.instance: Instance | None = None
        """As it was found last."""
        self.folders: Mapping[Path, Reading] = {}
        """What was read of each folder in the last round, by where it lies."""
        self._finder = finder
        self._template = template
        self._missing = False
        self._eyes: dict[Path, EntryFolder] = {}
        self._open: Callable[[Path], EntryFolder] = lambda path: EntryFolder(
            str(path), naming, proof, disk=disk, now=now, clock=clock
        )

    @property
    def expected(self) -> Path | None:
        """Where the folder will be while it is not there, as far as that is known."""
        if self.instance is None:
            return None
        return self.instance.expected(self._finder.place.path, self._template)

    def look(self) -> Reading:
        """One round in each folder. Raises OSError where one cannot be read."""
        self.instance = instance = self._finder.find(again=self._missing)
        paths = instance.folders(self._template)[:MOST_FOLDERS]
        self._eyes = {path: self._eyes.get(path) or self._open(path) for path in paths}
        folders = {}
        for path, eye in self._eyes.items():
            try:
                folders[path] = eye.look(share=1 / len(paths))
            except OSError as error:
                if not is_gone(error):
                    raise
        self._missing = not paths or len(folders) < len(paths)
        if not folders:
            check_access(self._finder.place.path, self._template, instance)
        self.folders = folders
        return combined(folders.values())

    def forget(self) -> None:
        """Judge everything anew, for the proof has become another one."""
        self._eyes = {}


def check_access(path: Path, template: str, instance: Instance) -> None:
    """Raise PermissionError where what `template` stands for may lie in a folder closed to us.

    That is not the same as that it is not there. `path` is that of the run.
    """
    start, expected = path / _start(template), instance.expected(path, template)
    for closed in instance.unreadable:
        below = closed.is_relative_to(start) and expected is None
        if below or (expected or start).is_relative_to(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))


def _start(template: str) -> str:
    """The part of `template` up to the first that may stand for several names."""
    parts = (part.fixed({}) for part in Place(template).parts)
    start = "/".join(takewhile(bool, (part or "" for part in parts)))
    return f"/{start}" if template.startswith("/") else start
