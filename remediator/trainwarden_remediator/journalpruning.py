"""Lets go of what is over, so that the journal does not grow for ever.

What is open, under way, still to be told, or among the last that was done to a target is never let
go; nor is the newest row of a table, so that no number is ever given twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from trainwarden_remediator.decision import GIVEN_UP
from trainwarden_remediator.journalfile import JournalFile
from trainwarden_remediator.journalsettings import DONE_SECONDS, IDLE_SECONDS, JournalLimits

ROWS_AT_ONCE = 1000
"""So many are looked at in one step; in between, others may write."""

SHARES = 10
"""In so many parts the past is let go where there is too much of it."""

_OVER = """
SELECT id FROM incident WHERE id BETWEEN :first AND :last
AND closed IS NOT NULL AND NOT (:idle AND closed IN (SELECT value FROM json_each(:for_good)))
AND max(last_heard, coalesce(closed_at, 0), coalesce(resolved_at, 0)) < :before
AND id < (SELECT max(id) FROM incident)
AND id NOT IN (
    SELECT incident FROM (
        SELECT *, row_number() OVER (PARTITION BY run, worker ORDER BY id DESC) AS age FROM action)
    WHERE :idle OR age <= :last_actions OR (outcome IS NULL AND result IS NOT 'interrupted')
    OR max(intent_at, coalesce(outcome_at, 0), coalesce(result_at, 0)) >= :before)
AND id NOT IN (
    SELECT incident FROM event WHERE incident IS NOT NULL
    AND id > (SELECT coalesce(max(line), 0) FROM told)
    UNION SELECT incident FROM event WHERE incident IS NOT NULL
    AND id IN (SELECT line FROM notice WHERE settled IS NULL))
"""

_LINES = """
DELETE FROM event WHERE id BETWEEN :first AND :last AND at < :before
AND id < (SELECT max(id) FROM event) AND id <= (SELECT coalesce(max(line), 0) FROM told)
AND id NOT IN (SELECT line FROM notice WHERE settled IS NULL)
AND iif(incident IS NULL, NOT :idle, incident NOT IN (SELECT id FROM incident))
"""


def prune(
    file: JournalFile, limits: JournalLimits, *, now: float, counted: float, last_actions: int
) -> None:
    """Let go of what goes beyond `limits` at `now` (Unix seconds). Raises JournalError.

    Budgets look back on the actions of `counted` seconds, and on the `last_actions` of each target.
    """
    aged = now - max(limits.age, counted)
    _let_go(file, aged, last_actions)
    with file.transaction() as db:
        db.execute(
            "DELETE FROM notice WHERE settled IS NOT NULL AND at < ?"
            " AND line NOT IN (SELECT id FROM event)",
            (aged,),
        )
    for idle, latest in (
        (True, now - IDLE_SECONDS),
        (False, now - max(min(DONE_SECONDS, limits.age), counted)),
    ):
        for before in _parts(file):
            if bytes_used(file) <= limits.size:
                return
            _let_go(file, min(before, latest), last_actions, idle=idle)


def bytes_used(file: JournalFile) -> int:
    """What is in use of the file; the rest of it will be used again."""
    pages, free, size = (
        int(file.read(f"PRAGMA {name}")[0][0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _parts(file: JournalFile) -> tuple[float, ...]:
    """Moments that divide what is told into equal parts, up to the newest line."""
    ((first, last),) = file.read("SELECT min(id), max(id) FROM event")
    if first is None:
        return ()
    ends = (first + (last - first) * share // SHARES for share in range(1, SHARES + 1))
    line = "SELECT at FROM event WHERE id >= ? ORDER BY id LIMIT 1"
    return tuple(file.read(line, (end,))[0][0] for end in ends)


def _let_go(file: JournalFile, before: float, last_actions: int, *, idle: bool = False) -> None:
    """Delete what was over before then; with `idle`, only what nothing was done about."""
    given = {
        "before": before,
        "idle": idle,
        "last_actions": last_actions,
        "for_good": json.dumps(sorted(GIVEN_UP)),
    }
    for window in _windows(file, "incident", "first_heard", before):
        with file.transaction() as db:
            over = json.dumps([row[0] for row in db.execute(_OVER, {**given, **window})])
            for table, column in (
                ("evidence", "incident"),
                ("action", "incident"),
                ("incident", "id"),
            ):
                db.execute(
                    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))",  # noqa: S608 - words of ours
                    (over,),
                )
    for window in _windows(file, "event", "at", before):
        with file.transaction() as db:
            db.execute(_LINES, {**given, **window})


def _windows(file: JournalFile, table: str, begun: str, before: float) -> Iterator[dict[str, int]]:
    """The rows that were written before then, some at a time, by their first and last number."""
    last = 0
    while True:
        rows = file.read(
            f"SELECT id, {begun} FROM {table} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - words of ours
            (last, ROWS_AT_ONCE),
        )
        if not rows or rows[0][1] >= before:
            return
        last = rows[-1][0]
        yield {"first": rows[0][0], "last": last}
