"""Which ranks have written their share of an entry, and how many it takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwarden_exporter.entries.judging import Entry, Files
from trainwarden_exporter.layouts.proofs import EntrySeen, FolderSeen, Proof

FIRST_REST = 10.0
"""Seconds without a write after which the first entry of all has the ranks that it has."""

LEARNED_FROM = 3
"""Entries before the newest from which is learned how many ranks there are."""


class Ranks:
    """Knows how many ranks a complete entry has: as configured, or learned.

    Learned is the most of the newest entry and the three before it. An entry that a later one
    follows is as whole as it will ever be, so a run that goes on with fewer ranks is understood
    after three steps.
    """

    def __init__(self, pattern: str, configured: int | None) -> None:
        self.expected = configured
        """None while nothing is learned yet."""
        self._pattern = re.compile(pattern)
        self._configured = configured

    def of(self, files: Files) -> frozenset[str]:
        """The ranks whose share is there, and not empty."""
        matches = ((self._pattern.fullmatch(path), file) for path, file in files.items())
        return frozenset(match["rank"] for match, file in matches if match and file.size)

    def learn(self, entries: Iterable[Entry]) -> bool:
        """Take into account all that are known, complete or not, newest first.

        Returns whether another number is expected now.
        """
        before = self.expected
        counts = [len(self.of(entry.files)) for entry in entries if entry.files is not None]
        if self._configured is None and len(counts) > 1:
            self.expected = max(counts[: LEARNED_FROM + 1]) or None
        return self.expected != before


class AllRanks(Proof):
    """All ranks have written their share, and what else proves it complete holds too."""

    def __init__(self, ranks: Ranks, proof: Proof) -> None:
        self._ranks = ranks
        self._proof = proof

    @property
    def reads(self) -> tuple[str, ...]:
        return self._proof.reads

    @property
    def reads_around(self) -> tuple[str, ...]:
        return self._proof.reads_around

    def holds(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        there = len(self._ranks.of(entry.files))
        if not there or not self._proof.holds(entry, folder):
            return False
        if self._ranks.expected is None:
            return folder.now - entry.changed >= FIRST_REST
        return there >= self._ranks.expected

    def completed(self, entry: EntrySeen, folder: FolderSeen) -> float:
        return self._proof.completed(entry, folder)

    def renewed(self, entry: EntrySeen, folder: FolderSeen) -> bool:
        return self._proof.renewed(entry, folder)
