"""What waits for a receiver, as lines of text below the journal."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator

from trainwarden_exporter.runtime.formatting import format_duration, format_time, plural
from trainwarden_remediator.journal.event_text import printable


def describe_waiting(connection: sqlite3.Connection, now: float) -> Iterator[str]:
    """Yields a line for each receiver for which notifications wait, with the last error."""
    rows = connection.execute(
        "SELECT receiver, count(*) AS waiting, min(at) AS since,"
        " group_concat(DISTINCT occasion) AS occasions"
        " FROM notice WHERE settled IS NULL GROUP BY receiver"
    )
    for row in rows.fetchall():
        name, since = row["receiver"], row["since"]
        failed = connection.execute(
            "SELECT json_extract(facts, '$.error') FROM event WHERE kind = 'not_sent' AND at >= ?"
            " AND json_extract(facts, '$.receiver') = ? ORDER BY id DESC LIMIT 1",
            (since, name),
        ).fetchone()
        about = row["occasions"].replace(",", ", ")
        why = f": {failed[0]}; `trainwarden notify-test {shlex.quote(name)}` tries it"
        yield printable(
            f"pending for {name}: {plural(row['waiting'], 'notification')} ({about}), since"
            f" {format_time(since)} ({format_duration(round(now - since))}){why if failed else ''}"
        )
