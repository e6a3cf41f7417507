"""Scans one folder, and examines only entries that may have changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from trainwarden_exporter.frameworks.completeness_rules import (
    CompletenessRule,
    FolderContent,
    SettledRule,
)
from trainwarden_exporter.runtime.formatting import printable
from trainwarden_exporter.step_dirs.completeness import StepDir, assess_step_dir
from trainwarden_exporter.step_dirs.filesystem import FileSystem, is_denied, is_gone
from trainwarden_exporter.step_dirs.index import StepIndex
from trainwarden_exporter.step_dirs.listing import MAX_ENTRIES, FolderListing
from trainwarden_exporter.step_dirs.names import NameParser, StepDirName
from trainwarden_exporter.step_dirs.result import MAX_LISTED, ScanResult, without_cut_short
from trainwarden_exporter.step_dirs.tensor_files import check_tensor_files
from trainwarden_exporter.step_dirs.throttle import Throttle
from trainwarden_exporter.step_dirs.tree_walk import (
    FolderFiles,
    WalkResult,
    file_info,
    stamp_of,
    walk,
)

log = logging.getLogger(__name__)

MAX_DISK_CALLS = 2_000
"""Maximum number of names and files queried per scan; the current entry is finished beyond it."""
MAX_SEARCH_CALLS = 20_000
"""The same as long as no complete entry is known: incomplete ones may hide it."""
MAX_SECONDS = 5.0
"""Maximum duration of a scan; the current entry is finished beyond it."""

MAX_UNSTABLE = 4
"""Number of newest incomplete or recently completed entries that are walked in each scan."""
MAX_RECENT = 8
"""Number of newest complete entries that are checked in each scan."""
MAX_ABOVE = 4
"""Number of checked entries above the newest one, which a resumed run writes again."""
MAX_IN_ROTATION = 64
"""Number of other entries that are checked in each scan, in rotation."""
MAX_REASSESSED = 16
"""Number of incomplete entries that are assessed again when the files around them have changed."""
BYTES_PER_DISK_CALL = 1 << 16
"""Bytes of text that count as one disk call."""


class FolderScanner:
    """The entries of the folder at `path`. For one thread.

    A round reads the names in the folder once, and goes into a bounded number of entries: first the
    entries that may be the newest, then new ones, then the others in turn. So a folder of thousands
    is known after some rounds, and its highest steps after the first. It works in little slices, so
    that no scrape waits for it.
    """

    def __init__(
        self,
        path: str,
        name_parser: NameParser,
        rule: CompletenessRule,
        *,
        filesystem: FileSystem | None = None,
        throttle: Throttle | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        listed: int = MAX_LISTED,
    ) -> None:
        self.path = path
        self._listed = listed
        self._rule = rule
        self._filesystem = filesystem or FileSystem()
        self._now = now
        self._clock = clock
        self._throttle = throttle or Throttle()
        self._listing = FolderListing(
            self._filesystem, path, name_parser, throttle=self._throttle, now=now, clock=clock
        )
        self._index = StepIndex()
        self._folder_files = FolderFiles(self._filesystem, path, rule.folder_files_to_read)
        self._denied: set[str] = set()
        self._ignored: set[str] = set()
        """Names of what is no entry, though its name is like that of one."""
        self._cut = False

    def scan(self, *, share: float = 1.0) -> ScanResult:
        """Runs one scan at `share` of its budget.

        Raises OSError if the folder is gone, inaccessible, or the disk fails.
        """
        self._throttle.disabled = self._listing.names is None  # the first scrape waits for it
        names = self._listing.read(self._index)
        if self._listing.has_missing:
            self._index.retain(names)
        self._ignored &= names
        # read before the entries: these files describe the entries that exist by then
        folder_content = self._folder_files.read(self._now())
        if self._folder_files.changed:  # a tracker may have gone back
            self._index.withdraw(partial(self._rule.is_excluded, folder=folder_content))
        budget = _Budget(self._clock, share)
        denied: set[str] = set()
        done: set[str] = set()
        for name in self._scan_order():
            if name.text in done:
                continue
            if budget.is_exhausted(searching=self._index.complete_count == 0):
                break
            done.add(name.text)
            if not self._examine(name, folder_content, budget):
                denied.add(name.text)
            self._throttle.pause_if_due()
        self._log_denied(denied)
        self._log_cut()
        count = self._listing.count - len(self._ignored)
        result = self._index.result(count, self._listing.others, listed=self._listed)
        has_no_proof = isinstance(self._rule, SettledRule)
        return without_cut_short(result, self._listed) if has_no_proof else result

    def _scan_order(self) -> Iterator[StepDirName]:
        """Yields the names to examine, most important first; a name may repeat."""
        newest_first = self._index.newest_first()
        stable = [step_dir.name for step_dir in newest_first if step_dir.memory.stable]
        yield from stable[:MAX_RECENT]
        newest = next((step_dir.name for step_dir in newest_first if step_dir.complete), None)
        if newest is not None:
            yield from self._index.above(newest, MAX_ABOVE)
        unstable = [step_dir.name for step_dir in newest_first if not step_dir.memory.stable]
        yield from unstable[:MAX_UNSTABLE]
        yield from self._listing.fresh
        if self._folder_files.changed:
            incomplete = [step_dir.name for step_dir in newest_first if not step_dir.complete]
            yield from incomplete[:MAX_REASSESSED]
        yield from self._listing.unknown
        yield from self._index.next_in_rotation(MAX_IN_ROTATION)

    def _examine(self, name: StepDirName, folder_content: FolderContent, budget: _Budget) -> bool:
        """Examines one entry; returns False if it is inaccessible."""
        path = f"{self.path}/{name.text}"
        before = self._index.get(name.text)
        try:
            if before is not None and before.memory.stable and self._is_same(path, before, budget):
                return True
            found = walk(self._filesystem, path)
            budget.charge(found.disk_calls)
            if self._rule.ignores(name.text, found.files):
                self._index.drop(name.text)
                self._ignored.add(name.text)
                return True
            self._ignored.discard(name.text)
            texts = self._read_texts(path, found, budget)
            whole_files = self._check_tensor_files(path, found, budget)
        except OSError as error:
            budget.charge(1)
            if not (is_gone(error) or is_denied(error)):
                raise  # not the entry is ill, but the disk
            self._index.drop(name.text)
            return is_gone(error)
        if found.truncated:
            self._index.drop(name.text)
            return False
        self._index.put(
            assess_step_dir(
                before,
                name,
                found,
                texts=texts,
                whole_files=whole_files,
                rule=self._rule,
                folder_content=folder_content,
            )
        )
        return True

    def _is_same(self, path: str, step_dir: StepDir, budget: _Budget) -> bool:
        """Whether the entry, its folders and its sentinel files are unchanged."""
        memory = step_dir.memory
        try:
            return (
                stamp_of(self._status(path, budget)) == memory.stamp
                and all(
                    stamp_of(self._status(f"{path}/{inner}", budget)) == stamp
                    for inner, stamp in memory.folders.items()
                )
                and all(
                    file_info(self._status(f"{path}/{inner}" if inner else path, budget)) == file
                    for inner, file in memory.sentinels.items()
                )
            )
        except OSError as error:
            if is_gone(error):
                return False
            raise

    def _status(self, path: str, budget: _Budget) -> os.stat_result:
        budget.charge(1)
        return self._filesystem.status(path)

    def _read_texts(self, path: str, found: WalkResult, budget: _Budget) -> dict[str, str]:
        texts = {}
        for inner in self._rule.files_to_read:
            if inner in found.files:
                texts[inner] = self._filesystem.text(f"{path}/{inner}")
                budget.charge(1 + found.files[inner].size // BYTES_PER_DISK_CALL)
        return texts

    def _check_tensor_files(self, path: str, found: WalkResult, budget: _Budget) -> dict[str, bool]:
        if not self._rule.checks_tensor_files:
            return {}
        checked = check_tensor_files(self._filesystem, path, found.files)
        budget.charge(2 * len(checked))
        return checked

    def _log_denied(self, denied: set[str]) -> None:
        if denied and not self._denied:
            facts = {"folder": printable(self.path), "entries": len(denied)}
            log.warning("entries cannot be looked at", extra=facts)
        self._denied = denied

    def _log_cut(self) -> None:
        """Logs once that a run that begins again at lower steps would not be seen."""
        if not self._cut and (count := self._listing.count) > MAX_ENTRIES:
            facts = {"folder": printable(self.path), "entries": count, "known": MAX_ENTRIES}
            log.warning("of too many entries those of the highest steps are known", extra=facts)
            self._cut = True


class _Budget:
    """Budget of a scan."""

    def __init__(self, clock: Callable[[], float], share: float) -> None:
        self._clock = clock
        self._share = share
        self._end = clock() + MAX_SECONDS * share
        self._disk_calls = 0

    def charge(self, disk_calls: int) -> None:
        self._disk_calls += disk_calls

    def is_exhausted(self, *, searching: bool) -> bool:
        limit = MAX_SEARCH_CALLS if searching else MAX_DISK_CALLS
        return self._disk_calls >= limit * self._share or self._clock() >= self._end
