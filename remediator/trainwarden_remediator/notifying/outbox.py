"""What is still to be told to whom, in the journal's file: so that it is told once, and told."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwarden_remediator.journalfile import JournalFile
from trainwarden_remediator.notifying.messages import Notice, occasion, subject
from trainwarden_remediator.notifying.models import (
    LASTING,
    URGENT,
    Notify,
    Occasion,
    Receiver,
)
from trainwarden_remediator.records import EVENTS, Event, add_to_tally, as_event

LONGEST_QUEUE = 200
"""So many notices may wait for one receiver; beyond, the least pressing and oldest are dropped."""

LINES_AT_ONCE = 500
"""So many lines of the journal are looked at in one step."""

Settled = Literal["sent", "dropped", "nobody"]
"""What became of a notice; `nobody`: its receiver is no longer one."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for one receiver: how much, and since when (Unix seconds) the oldest does."""

    waiting: int
    since: float


class Outbox:
    """The notices in a journal. All methods commit before they return, or raise JournalError."""

    def __init__(self, file: JournalFile, *, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def collect(self, notify: Notify) -> bool:
        """Make notices of what the journal holds that was not looked at before.

        Also where there is nobody to tell: a receiver that is added later is not told of the past.
        Returns whether there may be more to look at.
        """
        # Read first: a line that is written meanwhile has a higher number, and waits for the next.
        read = "SELECT coalesce((SELECT line FROM told), 0)"
        after = self._file.read(read)[0][0]
        rows = self._file.read(
            f"{EVENTS} WHERE event.id > ? ORDER BY event.id LIMIT ?", (after, LINES_AT_ONCE)
        )
        if not rows:
            return False
        with self._file.transaction() as db:
            for event in map(as_event, rows):
                if (told := occasion(event)) is not None:
                    self._add(db, notify, event, told)
            db.execute("DELETE FROM told")
            db.execute("INSERT INTO told VALUES (?)", (rows[-1]["id"],))
            for receiver in notify.receivers:
                self._shorten(db, receiver.name)
        return len(rows) == LINES_AT_ONCE

    def expire(self, notify: Notify) -> None:
        """Drop what could not be delivered for too long, and what is for nobody any more."""
        receivers = json.dumps([receiver.name for receiver in notify.receivers])
        strangers = self._file.read(
            "SELECT id FROM notice WHERE settled IS NULL"
            " AND receiver NOT IN (SELECT value FROM json_each(?))",
            (receivers,),
        )
        late = self._file.read(
            "SELECT id FROM notice WHERE settled IS NULL AND at < ?",
            (self._clock() - notify.patience,),
        )
        if strangers or late:
            with self._file.transaction() as db:
                self._settle(db, [row["id"] for row in strangers], "nobody")
                self._settle(db, [row["id"] for row in late], "dropped")

    def waiting(self, receiver: str) -> tuple[Notice, ...]:
        """What is still to be told to it, the oldest first."""
        rows = self._file.read(
            # Nothing but words of ours is put together here.
            f"SELECT notice.id AS number, occasion, line.* FROM notice JOIN ({EVENTS}) AS line"  # noqa: S608
            " ON line.id = notice.line WHERE settled IS NULL AND receiver = ? ORDER BY notice.id",
            (receiver,),
        )
        events = [as_event(row) for row in rows]
        tried = self._tried({event.incident for event in events if event.incident is not None})
        return tuple(
            Notice(
                id=row["number"],
                receiver=receiver,
                occasion=row["occasion"],
                told=event,
                tried=tuple(tried.get(event.incident or 0, ())),
            )
            for row, event in zip(rows, events, strict=True)
        )

    def settle(self, notices: Collection[Notice], result: Settled) -> None:
        """Record what has become of them: they are not told again."""
        with self._file.transaction() as db:
            self._settle(db, [notice.id for notice in notices], result)

    def failed(self, receiver: str) -> None:
        """Record that a message to it did not arrive; what it was to tell goes on waiting."""
        with self._file.transaction() as db:
            add_to_tally(db, "notifications", [receiver, "failed"])

    def queues(self, receivers: Sequence[Receiver]) -> Mapping[str, Queue | None]:
        """What waits for each of these."""
        rows = self._file.read(
            "SELECT receiver, count(*) AS waiting, min(at) AS since FROM notice"
            " WHERE settled IS NULL GROUP BY receiver"
        )
        found = {row["receiver"]: Queue(row["waiting"], row["since"]) for row in rows}
        return {receiver.name: found.get(receiver.name) for receiver in receivers}

    def _add(self, db: sqlite3.Connection, notify: Notify, event: Event, told: Occasion) -> None:
        about = json.dumps([event.alert, event.run, event.worker])
        for receiver in notify.receivers:
            if told not in receiver.about:
                continue
            # An alert that goes and comes back is a new incident, and no news.
            lately = db.execute(
                "SELECT 1 FROM notice WHERE receiver = ? AND occasion = ? AND about = ?"
                " AND at > ? AND at <= ?",
                (receiver.name, told, about, event.at - notify.quiet, event.at),
            ).fetchone()
            if lately is not None and told in LASTING:
                continue
            db.execute(
                "INSERT OR IGNORE INTO notice (receiver, occasion, subject, about, line, at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (receiver.name, told, subject(told, event), about, event.id, event.at),
            )

    def _shorten(self, db: sqlite3.Connection, receiver: str) -> None:
        rows = db.execute(
            "SELECT id FROM notice WHERE settled IS NULL AND receiver = ? ORDER BY"
            " occasion IN (SELECT value FROM json_each(?)) DESC, id DESC LIMIT -1 OFFSET ?",
            (receiver, json.dumps(URGENT), LONGEST_QUEUE),
        ).fetchall()
        self._settle(db, [row["id"] for row in rows], "dropped")

    def _settle(self, db: sqlite3.Connection, numbers: Sequence[int], result: Settled) -> None:
        for number in numbers:
            row = db.execute(
                "UPDATE notice SET settled = ?, settled_at = ? WHERE id = ? AND settled IS NULL"
                " RETURNING receiver",
                (result, self._clock(), number),
            ).fetchone()
            if row is not None and result != "nobody":
                add_to_tally(db, "notifications", [row["receiver"], result])

    def _tried(self, incidents: Collection[int]) -> Mapping[int, Sequence[tuple[str, str]]]:
        rows = self._file.read(
            "SELECT incident, kind, outcome FROM action WHERE outcome IS NOT NULL"
            " AND kind != 'notify'"
            " AND incident IN (SELECT value FROM json_each(?)) ORDER BY id",
            (json.dumps(sorted(incidents)),),
        )
        found: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for row in rows:
            found[row["incident"]].append((row["kind"], row["outcome"]))
        return found
