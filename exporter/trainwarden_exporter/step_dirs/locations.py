"""Locates the entries of a run: the folders that its templates currently match."""

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

from trainwarden_exporter.frameworks.completeness_rules import CompletenessRule
from trainwarden_exporter.frameworks.path_resolution import PathTemplate, RunInstance, resolve
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.runtime.formatting import printable
from trainwarden_exporter.step_dirs.filesystem import FileSystem, is_gone
from trainwarden_exporter.step_dirs.names import NameParser
from trainwarden_exporter.step_dirs.result import MAX_LISTED, ScanResult, combine
from trainwarden_exporter.step_dirs.scanner import FolderScanner

log = logging.getLogger(__name__)

FOUND_SECONDS = 30.0
"""Seconds for which found folders count as those of the newest run."""

SEARCH_SHARE = 0.01
"""Share of time spent on searching missing folders again within that time."""

MAX_SHARE = 0.05
"""Maximum share of time spent on searching: a huge folder is searched less often."""

MAX_FOUND_SECONDS = 300.0
"""Seconds after which a search is repeated in any case: a long duration may have been a hanging
mount.
"""

MAX_FOLDERS = 16
"""Maximum number of folders of one template: the most recently changed ones."""

Resolve = Callable[[Path, Sequence[str], Mapping[str, str]], RunInstance]


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Location of a run's files; the same for all searches of the run."""

    path: Path
    templates: tuple[str, ...]
    """All templates of its layout and configuration: together they select the newest run."""
    variables: tuple[tuple[str, str], ...] = ()
    account: int | None = None
    """The account (uid) that named it, if no more than that one may read is read there."""


class InstanceFinder:
    """Finds the folders of a run's newest instance, once for all of its files.

    Thread-safe. Concurrent callers wait for one search.
    """

    def __init__(
        self,
        location: RunLocation,
        *,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.location = location
        self._resolve = resolve
        self._clock = clock
        self._lock = Lock()
        self._found: RunInstance | None = None
        self._search_started = self._search_seconds = 0.0
        self._warned_truncated = self._warned_other_runs = False

    def find(self, *, refresh: bool = False) -> RunInstance:
        """Returns a recent result; with `refresh`, a current one as far as that is cheap.

        Raises OSError like `path_resolution.resolve`.
        """
        with self._lock:
            age = self._clock() - self._search_started
            if self._found is None or age >= self._valid_seconds(refresh=refresh):
                self._search_started, location = self._clock(), self.location
                with reading_for(location.account):
                    self._found = self._resolve(
                        location.path, location.templates, dict(location.variables)
                    )
                self._search_seconds = self._clock() - self._search_started
                self._log_warnings(self._found)
            return self._found

    def _valid_seconds(self, *, refresh: bool) -> float:
        """Returns the seconds for which the last result is valid."""
        seconds = (
            min(FOUND_SECONDS, self._search_seconds / SEARCH_SHARE) if refresh else FOUND_SECONDS
        )
        return max(seconds, min(self._search_seconds / MAX_SHARE, MAX_FOUND_SECONDS))

    def _log_warnings(self, found: RunInstance) -> None:
        """Logs problems that an operator should fix, once each."""
        path = printable(str(self.location.path))
        if found.truncated and not self._warned_truncated:
            log.warning("too much lies in the path of a run to be found", extra={"path": path})
        if found.other_recent_runs and not self._warned_other_runs:
            others = len(found.other_recent_runs)
            names = {"path": path, "newest": dict(found.names), "others": others}
            log.warning("several runs lie in one path; variables tell them apart", extra=names)
        self._warned_truncated = found.truncated
        self._warned_other_runs = bool(found.other_recent_runs)


class StepDirScanner:
    """Scans the entries in all folders of `template`. For one thread."""

    def __init__(
        self,
        finder: InstanceFinder,
        template: str,
        name_parser: NameParser,
        rule: CompletenessRule,
        *,
        filesystem: FileSystem | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        listed: int = MAX_LISTED,
    ) -> None:
        self.instance: RunInstance | None = None
        """Result of the last search."""
        self.folders: Mapping[Path, ScanResult] = {}
        """Results of the last scan by folder."""
        self._finder = finder
        self._template = template
        self._listed = listed
        self._missing = False
        self._scanners: dict[Path, FolderScanner] = {}
        self._open_folder: Callable[[Path], FolderScanner] = lambda path: FolderScanner(
            str(path), name_parser, rule, filesystem=filesystem, now=now, clock=clock, listed=listed
        )

    @property
    def path(self) -> Path | None:
        """The first folder, or where a missing one is expected, if known."""
        if self.folders or self.instance is None:
            return next(iter(self.folders), None)
        return self.instance.expected_path(self._finder.location.path, self._template)

    def scan(self) -> ScanResult:
        """Scans each folder once. Raises OSError if one cannot be read."""
        self.instance = instance = self._finder.find(refresh=self._missing)
        paths = instance.folders(self._template)[:MAX_FOLDERS]
        self._scanners = {
            path: self._scanners.get(path) or self._open_folder(path) for path in paths
        }
        folders = {}
        for path, scanner in self._scanners.items():
            try:
                folders[path] = scanner.scan(share=1 / len(paths))
            except OSError as error:
                if not is_gone(error):
                    raise
        self._missing = not paths or len(folders) < len(paths)
        if not folders:
            check_access(self._finder.location.path, self._template, instance)
        self.folders = folders
        return combine(folders.values(), self._listed)

    def reset(self) -> None:
        """Assesses all entries again, because the completeness rule has changed."""
        self._scanners = {}


def check_access(path: Path, template: str, instance: RunInstance) -> None:
    """Raises PermissionError if a match of `template` may be in an inaccessible folder.

    That differs from a missing folder. `path` is that of the run.
    """
    start, expected_path = path / _fixed_prefix(template), instance.expected_path(path, template)
    for closed in instance.unreadable:
        below = closed.is_relative_to(start) and expected_path is None
        if below or (expected_path or start).is_relative_to(closed):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(closed))


def _fixed_prefix(template: str) -> str:
    """Returns the leading parts of `template` that can match one name only."""
    parts = (part.literal({}) for part in PathTemplate(template).parts)
    start = "/".join(takewhile(bool, (part or "" for part in parts)))
    return f"/{start}" if template.startswith("/") else start
