"""Index of the known step directories of one folder."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from trainwarden_exporter.step_dirs.completeness import StepDir
from trainwarden_exporter.step_dirs.names import StepDirName
from trainwarden_exporter.step_dirs.result import MAX_LISTED, ScanResult, newest_of


class StepIndex:
    """The entries of one folder, by name. For one thread.

    An entry takes 1.0 to 1.4 KiB: 10,000 take 10 to 14 MiB (tracemalloc; 2 files, and 5 files in 2
    folders). Lists of files, which may be long, are kept only for the newest entries.
    """

    def __init__(self) -> None:
        self._entries: dict[str, StepDir] = {}
        self._complete: set[str] = set()
        self._rotation: deque[StepDirName] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> StepDir | None:
        return self._entries.get(name)

    @property
    def complete_count(self) -> int:
        return len(self._complete)

    def put(self, step_dir: StepDir) -> None:
        name = step_dir.name.text
        self._entries[name] = step_dir
        (self._complete.add if step_dir.complete else self._complete.discard)(name)

    def withdraw(self, is_excluded: Callable[[int], bool]) -> None:
        """Counts complete entries of excluded steps as incomplete until they are examined."""
        for name in [*self._complete]:
            one = self._entries[name]
            if one.name.number is not None and is_excluded(one.name.number):
                memory = replace(one.memory, stable=False)
                self.put(replace(one, complete=False, completed_at=0.0, memory=memory))

    def drop(self, name: str) -> None:
        self._entries.pop(name, None)
        self._complete.discard(name)

    def retain(self, names: Collection[str]) -> None:
        """Drops all entries whose name is not in `names`."""
        for gone in [name for name in self._entries if name not in names]:
            self.drop(gone)

    def newest_first(self) -> Sequence[StepDir]:
        """Returns all entries, newest first."""
        return newest_of(self._entries.values(), len(self._entries))

    def above(self, name: StepDirName, most: int) -> list[StepDirName]:
        """The steady entries of the next steps above that of `name`, the lowest first."""
        stable = (step_dir.name for step_dir in self._entries.values() if step_dir.memory.stable)
        higher = (one for one in stable if one.sort_key > name.sort_key)
        return heapq.nsmallest(most, higher, key=lambda one: one.sort_key)

    def next_in_rotation(self, most: int) -> Iterator[StepDirName]:
        """Returns up to `most` entries; repeated calls cycle through all."""
        if not self._rotation:
            self._rotation.extend(step_dir.name for step_dir in self._entries.values())
        for _ in range(min(most, len(self._rotation))):
            name = self._rotation.popleft()
            if name.text in self._entries:
                yield name

    def result(
        self, count: int, others: tuple[str, ...] = (), *, listed: int = MAX_LISTED
    ) -> ScanResult:
        """Returns the state of a folder with `count` entries, and `others`, which are none.

        It lists so many complete and incomplete entries.
        """
        step_dirs = self._entries.values()
        complete = newest_of((step_dir for step_dir in step_dirs if step_dir.complete), listed)
        incomplete = newest_of(
            (step_dir for step_dir in step_dirs if not step_dir.complete), listed
        )
        newest = (*complete[:MAX_LISTED], *incomplete[:MAX_LISTED])
        detailed = {step_dir.name.text for step_dir in newest}
        for name, step_dir in self._entries.items():
            if step_dir.files is not None and name not in detailed:
                self._entries[name] = replace(step_dir, files=None)
        complete_count = self.complete_count
        counts = complete_count, len(self) - complete_count, count - len(self)
        return ScanResult(complete, incomplete, *counts, others)
