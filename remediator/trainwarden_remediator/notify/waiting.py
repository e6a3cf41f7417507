"""What waits for a receiver, as lines of text below the journal."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator

from trainwarden_exporter.runtime.formatting import format_duration, format_time, plural
from trainwarden_remediator.journal.event_text import printable
from trainwarden_remediator.notify.held_back import held_back


def describe_waiting(connection: sqlite3.Connection, now: float) -> Iterator[str]:
    """Yields a line for each receiver for which notifications wait, with the last error.

    Not for what is held back until an operator is needed no more.
    """
    held = held_back(lambda query, values: connection.execute(query, values).fetchall(), now)
    rows = connection.execute(
        "SELECT receiver, count(*) AS waiting, min(at) AS since,"
        " group_concat(DISTINCT occasion) AS occasions"
        " FROM notice WHERE settled IS NULL AND id NOT IN (SELECT value FROM json_each(?))"
        " GROUP BY receiver",
        (json.dumps(sorted(held)),),
    )
    for row in rows.fetchall():
        name, since = row["receiver"], row["since"]
        failed = connection.execute(
            "SELECT json_extract(facts, '$.error') FROM event WHERE kind = 'not_sent' AND at >= ?"
            " AND json_extract(facts, '$.receiver') = ? ORDER BY id DESC LIMIT 1",
            (since, name),
        ).fetchone()
        about = row["occasions"].replace(",", ", ")
        tries = f"`trainwarden notify-test {shlex.quote(name)}` tries it"
        why = "" if failed is None else f": {failed[0]}; {tries}"
        yield printable(
            f"pending for {name}: {plural(row['waiting'], 'notification')} ({about}), since"
            f" {format_time(since)} ({format_duration(round(now - since))}){why}"
        )
