"""Knows the entries of one folder, and looks again only at those that may have changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator

from trainwarden_exporter.entries.disk import Disk, is_denied, is_gone
from trainwarden_exporter.entries.judging import Entry, judge
from trainwarden_exporter.entries.known import Known
from trainwarden_exporter.entries.listing import Listing
from trainwarden_exporter.entries.naming import EntryName, Naming
from trainwarden_exporter.entries.pace import Pace
from trainwarden_exporter.entries.reading import Reading
from trainwarden_exporter.entries.texts import Texts
from trainwarden_exporter.entries.walking import Walk, file_seen, stamp_of, walk
from trainwarden_exporter.layouts.proofs import FolderSeen, Proof
from trainwarden_exporter.wording import printable

log = logging.getLogger(__name__)

MOST_QUESTIONS = 2_000
"""Names and files asked about in one round; an entry that was begun is finished beyond it."""
MOST_SECONDS = 5.0
"""Time for one round; an entry that was begun is finished beyond it."""

RESTLESS = 4
"""Of those that are not complete, or were so only just now, the newest are walked each round."""
RECENT = 8
"""Of the complete ones, the newest are asked each round whether they are the same."""
ABOVE = 4
"""So are those of the next steps above the newest, which a run that went back writes anew."""
IN_TURN = 64
"""Of all others, so many are asked each round, in turn."""
JUDGED_ANEW = 16
"""Of those that are not complete, so many are judged when what stands around them has changed."""
TEXT_QUESTIONS = 1 << 16
"""Bytes of text that are read for one question."""


class EntryFolder:
    """The entries of the folder at `path`. For one thread.

    A round reads the names in the folder once, and goes into a bounded number of entries: first
    those that may be the newest, then new ones, then the others in turn. So a folder of thousands
    is known after some rounds, and its highest steps after the first. It works in little slices,
    and an old entry takes some tens of bytes: however many there are, no scrape waits for them.
    """

    def __init__(
        self,
        path: str,
        naming: Naming,
        proof: Proof,
        *,
        disk: Disk | None = None,
        pace: Pace | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._proof = proof
        self._disk = disk or Disk()
        self._now = now
        self._clock = clock
        self._pace = pace or Pace()
        self._listing = Listing(self._disk, path, naming, pace=self._pace, now=now, clock=clock)
        self._known = Known(self._pace)
        self._texts = Texts(self._disk, path, proof.reads_around)
        self._denied: set[str] = set()

    def look(self, *, share: float = 1.0) -> Reading:
        """One round, at `share` of what it may cost.

        Raises OSError where the folder is gone, closed to us, or the disk does not answer well.
        """
        self._pace.hurried = self._listing.names is None  # the first scrape waits for it
        names = self._listing.read(self._known)
        if self._listing.has_lost:
            self._known.keep(names)
        # what stands around the entries is read before them: it speaks of what was there by then
        around = self._texts.read(self._now())
        budget = _Budget(self._clock, share)
        denied: set[str] = set()
        done: set[str] = set()
        for name in self._agenda():
            if name.text in done:
                continue
            if budget.spent:
                break
            done.add(name.text)
            if not self._examine(name, around, budget):
                denied.add(name.text)
            self._pace.keep()
        self._tell(denied)
        return self._known.reading(len(names))

    def _agenda(self) -> Iterator[EntryName]:
        """What to look at, the most telling first; a name may come twice."""
        ranked = self._known.ranked()
        yield from [entry.name for entry in ranked if entry.memory.steady][:RECENT]
        newest = next((entry.name for entry in ranked if entry.complete), None)
        if newest is not None:
            yield from self._known.above(newest, ABOVE)
        yield from [entry.name for entry in ranked if not entry.memory.steady][:RESTLESS]
        yield from self._listing.fresh
        if self._texts.changed:
            yield from [entry.name for entry in ranked if not entry.complete][:JUDGED_ANEW]
        yield from self._listing.unknown
        yield from self._known.in_turn(IN_TURN)

    def _examine(self, name: EntryName, around: FolderSeen, budget: _Budget) -> bool:
        """Look at one entry; False where it may not be looked at."""
        path = f"{self.path}/{name.text}"
        before = self._known.get(name.text)
        try:
            if before is not None and before.memory.steady and self._is_same(path, before, budget):
                return True
            found = walk(self._disk, path)
            budget.charge(found.questions)
            texts = self._read_texts(path, found, budget)
        except OSError as error:
            budget.charge(1)
            if not (is_gone(error) or is_denied(error)):
                raise  # not the entry is ill, but the disk
            self._known.drop(name.text)
            return is_gone(error)
        if found.cut:
            self._known.drop(name.text)
            return False
        self._known.put(judge(before, name, found, texts=texts, proof=self._proof, around=around))
        return True

    def _is_same(self, path: str, entry: Entry, budget: _Budget) -> bool:
        """Whether neither the entry itself, nor a folder in it, nor a witness has changed."""
        memory = entry.memory
        try:
            return (
                stamp_of(self._status(path, budget)) == memory.stamp
                and all(
                    stamp_of(self._status(f"{path}/{inner}", budget)) == stamp
                    for inner, stamp in memory.folders.items()
                )
                and all(
                    file_seen(self._status(f"{path}/{inner}" if inner else path, budget)) == file
                    for inner, file in memory.witnesses.items()
                )
            )
        except OSError as error:
            if is_gone(error):
                return False
            raise

    def _status(self, path: str, budget: _Budget) -> os.stat_result:
        budget.charge(1)
        return self._disk.status(path)

    def _read_texts(self, path: str, found: Walk, budget: _Budget) -> dict[str, str]:
        texts = {}
        for inner in self._proof.reads:
            if inner in found.files:
                texts[inner] = self._disk.text(f"{path}/{inner}")
                budget.charge(1 + found.files[inner].size // TEXT_QUESTIONS)
        return texts

    def _tell(self, denied: set[str]) -> None:
        if denied and not self._denied:
            facts = {"folder": printable(self.path), "entries": len(denied)}
            log.warning("entries cannot be looked at", extra=facts)
        self._denied = denied


class _Budget:
    """What a round may cost."""

    def __init__(self, clock: Callable[[], float], share: float) -> None:
        self._clock = clock
        self._end = clock() + MOST_SECONDS * share
        self._left = int(MOST_QUESTIONS * share)

    def charge(self, questions: int) -> None:
        self._left -= questions

    @property
    def spent(self) -> bool:
        return self._left <= 0 or self._clock() >= self._end
