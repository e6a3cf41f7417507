"""Corrects the times of the journal after the clock was set, and bounds the time of day."""

from __future__ import annotations

import sqlite3

from trainwarden_remediator.journal.rows import FINISHED_PREFIX

_TIMES = {
    "action": ("intent_at", "result_at", "outcome_at"),
    "incident": (
        *("first_received_at", "last_received_at", "last_decided_at", "closed_at"),
        "blocked_since",
    ),
    "timestamp": ("at",),
    "evidence": ("at",),
}
"""The columns with times by which the remediator decides or deletes, by table."""

FUTURE_SECONDS = 86400.0
"""A clock that is a day off may be right again soon; budgets wait for a day at most."""

MAX_REST_SECONDS = 86400.0
"""For how long the host may have been off before its clock counts as doubtful."""

_BOUNDED = "bounded"
"""The name of the timestamp with the last bounded time."""
_BOOT_PREFIX = "boot "
"""Prefix of the name of the timestamp with the bound at the beginning of a boot."""

_NOT_MOVED = (f"{FINISHED_PREFIX}*", _BOUNDED, f"{_BOOT_PREFIX}*")
"""Timestamps that are compared with those of the exporter, or hold the bound itself."""


def move_future_times(db: sqlite3.Connection, now: float) -> int:
    """Sets times over FUTURE_SECONDS after `now` to `now`. Returns the number of intents."""
    moved = 0
    for table, columns in _TIMES.items():
        for column in columns:
            changed = db.execute(
                f"UPDATE {table} SET {column} = ? WHERE {column} > ?",  # noqa: S608 - words of ours
                (now, now + FUTURE_SECONDS),
            ).rowcount
            moved += changed if column == "intent_at" else 0
    return moved


def move_times(db: sqlite3.Connection, first: float, last: float, seconds: float) -> None:
    """Moves the times between `first` and `last` by `seconds`."""
    for table, columns in _TIMES.items():
        kept = " AND ".join(["name NOT GLOB ?"] * len(_NOT_MOVED) if table == "timestamp" else "1")
        for column in columns:
            db.execute(
                f"UPDATE {table} SET {column} = {column} + ?"  # noqa: S608 - words of ours
                f" WHERE {column} BETWEEN ? AND ? AND {kept}",
                (seconds, first, last, *(_NOT_MOVED if table == "timestamp" else ())),
            )


def bounded_time(db: sqlite3.Connection, now: float, since_boot: float, boot: str) -> float:
    """Returns `now`, or the latest time that it can be; records it."""

    def read(query: str, *values: object) -> float | None:
        row = db.execute(query, values).fetchone()
        return None if row is None else float(row[0])

    name = f"{_BOOT_PREFIX}{boot}"
    begin = read("SELECT at FROM timestamp WHERE name = ?", name)
    if begin is None:
        last = read("SELECT at FROM timestamp WHERE name = ?", _BOUNDED)
        if last is None:
            last = read("SELECT at FROM event ORDER BY id DESC LIMIT 1")
        begin = (now if last is None else last) + MAX_REST_SECONDS - since_boot
        db.execute("DELETE FROM timestamp WHERE name GLOB ?", (f"{_BOOT_PREFIX}*",))
        db.execute("INSERT INTO timestamp VALUES (?, ?)", (name, begin))
    bounded = min(now, begin + since_boot)
    db.execute(
        "INSERT INTO timestamp VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET at = max(at, excluded.at)",
        (_BOUNDED, bounded),
    )
    return bounded
