"""How the breaker stands in the journal: opened by what is decided, closed again by a person."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from trainwarden_remediator.breaker import LATCHED, REOPENED
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journalfile import connect
from trainwarden_remediator.records import write_event


def latch(db: sqlite3.Connection, at: float, incident: int, detail: str) -> None:
    """Let nothing be done from now on, on behalf of that incident; said once."""
    if db.execute("INSERT OR IGNORE INTO moment VALUES (?, ?)", (LATCHED, at)).rowcount:
        write_event(db, at, "breaker", incident, None, detail=detail)


def reopen(db: sqlite3.Connection, at: float) -> bool:
    """Allow actions again, and count them anew. Returns whether they were not allowed."""
    if not db.execute("DELETE FROM moment WHERE name = ?", (LATCHED,)).rowcount:
        return False
    db.execute("INSERT OR REPLACE INTO moment VALUES (?, ?)", (REOPENED, at))
    # What it has stopped is decided anew: to be stopped again is then news, and latches again.
    db.execute(
        "UPDATE incident SET said = NULL WHERE closed IS NULL AND said = 'wait breaker_open'"
    )
    write_event(db, at, "reopened", None, None)
    return True


def reopen_at(path: Path, at: float) -> bool:
    """As `reopen`, in the journal at `path`, also beside a remediator that uses it.

    Raises JournalError.
    """
    connection = connect(path)
    try:
        connection.execute("BEGIN IMMEDIATE")
        reopened = reopen(connection, at)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error
    finally:
        connection.close()
    return reopened
