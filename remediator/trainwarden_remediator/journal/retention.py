"""Deletes old records, so that the size of the journal is bounded.

Open incidents, actions in progress, events with pending notifications and the last actions of each
target are never deleted; nor is the newest row of a table, so that no id is used twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainwarden_remediator.config.limits import (
    KEEP_TREATED_SECONDS,
    KEEP_UNTREATED_SECONDS,
    JournalLimits,
)
from trainwarden_remediator.journal.database import JournalFile
from trainwarden_remediator.model import GIVEN_UP

BATCH_ROWS = 1000
"""Rows of one transaction; other writers may run in between."""

SLICES = 10
"""Number of steps in which the oldest records are deleted if the journal is too large."""

_CLOSED_INCIDENTS = """
SELECT id FROM incident WHERE id BETWEEN :first AND :last
AND closed IS NOT NULL AND NOT (:idle AND closed IN (SELECT value FROM json_each(:for_good)))
AND max(last_received_at, coalesce(closed_at, 0), coalesce(resolved_at, 0)) < :before
AND id < (SELECT max(id) FROM incident)
AND id NOT IN (
    SELECT incident FROM (
        SELECT *, row_number() OVER (PARTITION BY run, worker ORDER BY id DESC) AS age FROM action)
    WHERE :idle OR age <= :last_actions OR (outcome IS NULL AND result IS NOT 'interrupted')
    OR max(intent_at, coalesce(outcome_at, 0), coalesce(result_at, 0)) >= :before)
AND id NOT IN (
    SELECT incident FROM event WHERE incident IS NOT NULL
    AND id > (SELECT coalesce(max(event), 0) FROM notice_cursor)
    UNION SELECT incident FROM event WHERE incident IS NOT NULL
    AND id IN (SELECT event FROM notice WHERE settled IS NULL))
"""

_OLD_EVENTS = """
DELETE FROM event WHERE id BETWEEN :first AND :last AND at < :before
AND id < (SELECT max(id) FROM event) AND id <= (SELECT coalesce(max(event), 0) FROM notice_cursor)
AND id NOT IN (SELECT event FROM notice WHERE settled IS NULL)
AND iif(incident IS NULL, NOT :idle, incident NOT IN (SELECT id FROM incident))
"""


def prune(
    file: JournalFile, limits: JournalLimits, *, now: float, counted: float, last_actions: int
) -> None:
    """Deletes records beyond `limits` at `now` (Unix seconds). Raises JournalError.

    Keeps the actions of the last `counted` seconds and the `last_actions` newest of each target,
    for the budgets.
    """
    aged = now - max(limits.age, counted)
    _delete_closed(file, aged, last_actions)
    with file.transaction() as db:
        db.execute(
            "DELETE FROM notice WHERE settled IS NOT NULL AND at < ?"
            " AND event NOT IN (SELECT id FROM event)",
            (aged,),
        )
    for idle, latest in (
        (True, now - KEEP_UNTREATED_SECONDS),
        (False, now - max(min(KEEP_TREATED_SECONDS, limits.age), counted)),
    ):
        for before in _time_slices(file):
            if bytes_used(file) <= limits.size:
                return
            _delete_closed(file, min(before, latest), last_actions, idle=idle)


def bytes_used(file: JournalFile) -> int:
    """Returns the used bytes of the file; free pages will be reused."""
    pages, free, size = (
        int(file.read(f"PRAGMA {name}")[0][0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _time_slices(file: JournalFile) -> tuple[float, ...]:
    """Returns the times that divide the events into parts of equal number, up to the newest."""
    ((first, last),) = file.read("SELECT min(id), max(id) FROM event")
    if first is None:
        return ()
    ends = (first + (last - first) * share // SLICES for share in range(1, SLICES + 1))
    line = "SELECT at FROM event WHERE id >= ? ORDER BY id LIMIT 1"
    return tuple(file.read(line, (end,))[0][0] for end in ends)


def _delete_closed(
    file: JournalFile, before: float, last_actions: int, *, idle: bool = False
) -> None:
    """Deletes incidents closed before `before`; with `idle`, only those without an action."""
    given = {
        "before": before,
        "idle": idle,
        "last_actions": last_actions,
        "for_good": json.dumps(sorted(GIVEN_UP)),
    }
    for window in _batches(file, "incident", "first_received_at", before):
        with file.transaction() as db:
            rows = db.execute(_CLOSED_INCIDENTS, {**given, **window})
            over = json.dumps([row[0] for row in rows])
            columns = {"evidence": "incident", "action": "incident", "incident": "id"}
            for table, column in columns.items():
                db.execute(
                    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))",  # noqa: S608 - words of ours
                    (over,),
                )
    for window in _batches(file, "event", "at", before):
        with file.transaction() as db:
            db.execute(_OLD_EVENTS, {**given, **window})


def _batches(file: JournalFile, table: str, begun: str, before: float) -> Iterator[dict[str, int]]:
    """Yields the first and last id of each batch of rows written before `before`."""
    last = 0
    while True:
        rows = file.read(
            f"SELECT id, {begun} FROM {table} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - words of ours
            (last, BATCH_ROWS),
        )
        if not rows or rows[0][1] >= before:
            return
        last = rows[-1][0]
        yield {"first": rows[0][0], "last": last}
