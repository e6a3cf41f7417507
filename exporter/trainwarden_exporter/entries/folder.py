"""Knows the entries of one folder, and looks again only at those that may have changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from trainwarden_exporter.entries.disk import Disk, is_denied, is_gone
from trainwarden_exporter.entries.judging import Entry, judge
from trainwarden_exporter.entries.naming import EntryName, Naming
from trainwarden_exporter.entries.reading import Reading, newest_of
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
    is known after some rounds, and its highest steps after the first.
    """

    def __init__(
        self,
        path: str,
        naming: Naming,
        proof: Proof,
        *,
        disk: Disk | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._naming = naming
        self._proof = proof
        self._disk = disk or Disk()
        self._now = now
        self._clock = clock
        self._known: dict[str, Entry] = {}
        self._listed: Mapping[str, EntryName] | None = None
        self._turn: dict[str, None] = {}
        self._texts = Texts(self._disk, path, proof.reads_around)
        self._denied: set[str] = set()

    def look(self, *, share: float = 1.0) -> Reading:
        """One round, at `share` of what it may cost.

        Raises OSError where the folder is gone, closed to us, or the disk does not answer well.
        """
        names = self._read_names()
        fresh = (
            [] if self._listed is None else [n for t, n in names.items() if t not in self._listed]
        )
        self._listed = names
        self._forget(names)
        # what stands around the entries is read before them: it speaks of what was there by then
        around = self._texts.read(self._now())
        budget = _Budget(self._clock, share)
        denied: set[str] = set()
        done: set[str] = set()
        for name in self._agenda(names, fresh):
            if name.text in done:
                continue
            if budget.spent:
                break
            done.add(name.text)
            if not self._examine(name, around, budget):
                denied.add(name.text)
        self._tell(denied)
        return self._reading(names)

    def _read_names(self) -> dict[str, EntryName]:
        listed = self._disk.names(self.path)
        parsed = (self._naming.parse(named.name) for named in listed)
        return {name.text: name for name in parsed if name is not None}

    def _forget(self, names: Mapping[str, EntryName]) -> None:
        for gone in [text for text in self._known if text not in names]:
            del self._known[gone]

    def _agenda(
        self, names: Mapping[str, EntryName], fresh: Iterable[EntryName]
    ) -> Iterator[EntryName]:
        """What to look at, the most telling first; a name may come twice."""
        ranked = newest_of(self._known.values(), len(self._known))
        steady = [entry.name for entry in ranked if entry.memory.steady]
        yield from steady[:RECENT]
        newest = next((entry.name for entry in ranked if entry.complete), None)
        if newest is not None:
            yield from sorted((n for n in steady if n.order > newest.order), key=_order)[:ABOVE]
        yield from [entry.name for entry in ranked if not entry.memory.steady][:RESTLESS]
        yield from sorted(fresh, key=_order, reverse=True)
        if self._texts.changed:
            yield from [entry.name for entry in ranked if not entry.complete][:JUDGED_ANEW]
        unknown = (name for text, name in names.items() if text not in self._known)
        yield from sorted(unknown, key=_order, reverse=True)
        for text in list(islice(self._turn, IN_TURN)):
            del self._turn[text]
            if text in self._known:
                self._turn[text] = None
                yield names[text]

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
            self._known.pop(name.text, None)
            return is_gone(error)
        if found.cut:
            self._known.pop(name.text, None)
            return False
        self._turn.setdefault(name.text)
        self._known[name.text] = judge(
            before, name, found, texts=texts, proof=self._proof, around=around
        )
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

    def _reading(self, names: Mapping[str, EntryName]) -> Reading:
        complete = [entry for entry in self._known.values() if entry.complete]
        incomplete = [entry for entry in self._known.values() if not entry.complete]
        reading = Reading(
            newest_of(complete),
            newest_of(incomplete),
            len(complete),
            len(incomplete),
            len(names) - len(self._known),
        )
        told = {entry.name.text for entry in (*reading.complete, *reading.incomplete)}
        for text, entry in self._known.items():
            if entry.files is not None and text not in told:
                self._known[text] = replace(entry, files=None)
        return reading


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


def _order(name: EntryName) -> tuple[int, str]:
    return name.order
