"""Reads accounts of incidents out of a journal, beside a running remediator or without one."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journalfile import VERSION, connect, is_begun
from trainwarden_remediator.records import EVENTS, as_event
from trainwarden_remediator.reporting.account import Account, Act, Other, Piece

MOST_EVENTS = 2000
MOST_OTHERS = 30
AROUND_SECONDS = 120.0
"""What began or ended so shortly before or after was at the same time."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The journal at `path`, to be read only. Raises JournalError, also for what is read inside."""
    if not is_begun(path):
        raise JournalError(f"{path}: there is no journal yet; has the remediator run?")
    connection = connect(path, mode="ro")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            raise JournalError(
                f"{path}: written by another version ({version}); start the remediator once"
            )
        # One moment of it, however long the reading takes.
        connection.execute("BEGIN")
        yield connection
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error
    finally:
        connection.close()


def read_account(connection: sqlite3.Connection, incident: int) -> Account | None:
    """The incident of that number; None where there is none."""
    row = connection.execute("SELECT * FROM incident WHERE id = ?", (incident,)).fetchone()
    return None if row is None else _account(connection, row)


def read_accounts(connection: sqlite3.Connection, since: float) -> tuple[Account, ...]:
    """The incidents that were heard of, or still stood, after `since` (Unix seconds).

    The oldest first.
    """
    rows = connection.execute(
        "SELECT * FROM incident WHERE coalesce(closed_at, 1e999) >= ? OR last_heard >= ?"
        " ORDER BY starts_at, id",
        (since, since),
    ).fetchall()
    return tuple(_account(connection, row) for row in rows)


def _account(connection: sqlite3.Connection, row: sqlite3.Row) -> Account:
    number = row["id"]
    events = connection.execute(
        f"{EVENTS} WHERE event.incident = ? ORDER BY event.id LIMIT ?", (number, MOST_EVENTS)
    )
    acts = connection.execute("SELECT * FROM action WHERE incident = ? ORDER BY id", (number,))
    pieces = connection.execute("SELECT * FROM evidence WHERE incident = ? ORDER BY id", (number,))
    return Account(
        id=number,
        alert=row["alert"],
        run=row["run"],
        worker=row["worker"],
        remediation=row["remediation"],
        labels=json.loads(row["labels"]),
        annotations=json.loads(row["annotations"]),
        starts_at=row["starts_at"],
        first_heard=row["first_heard"],
        last_heard=row["last_heard"],
        resolved_at=row["resolved_at"],
        closed=row["closed"],
        closed_at=row["closed_at"],
        said=row["said"] or "",
        events=tuple(map(as_event, events)),
        acts=tuple(map(_act, acts)),
        evidence=tuple(map(_piece, pieces)),
        others=_others(connection, row),
    )


def _others(connection: sqlite3.Connection, row: sqlite3.Row) -> tuple[Other, ...]:
    """What else stood at that time, in the same run or of no run at all."""
    end = row["resolved_at"] or row["closed_at"] or math.inf
    found = connection.execute(
        "SELECT * FROM incident WHERE id != ? AND run IN (?, '') AND starts_at <= ?"
        " AND coalesce(resolved_at, closed_at, 1e999) >= ? ORDER BY starts_at LIMIT ?",
        (row["id"], row["run"], end, row["starts_at"] - AROUND_SECONDS, MOST_OTHERS),
    )
    return tuple(
        Other(
            id=other["id"],
            alert=other["alert"],
            run=other["run"],
            worker=other["worker"],
            starts_at=other["starts_at"],
            ended_at=other["resolved_at"] or other["closed_at"],
        )
        for other in found
    )


def _act(row: sqlite3.Row) -> Act:
    return Act(
        id=row["id"],
        run=row["run"],
        worker=row["worker"],
        kind=row["kind"],
        at=row["intent_at"],
        rung=row["rung"],
        result=row["result"],
        outcome=row["outcome"],
        outcome_at=row["outcome_at"] or row["result_at"],
        step=row["step"],
        checkpoint=row["checkpoint"],
    )


def _piece(row: sqlite3.Row) -> Piece:
    try:
        content: Any = json.loads(row["content"])
    except ValueError:
        content = {}
    known = content if isinstance(content, dict) else {}
    return Piece(row["at"], row["kind"], row["action"], known)
