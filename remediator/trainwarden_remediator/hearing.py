"""How a delivered alert changes the journal: what it begins, repeats, opens again or resolves."""

from __future__ import annotations

import json
import sqlite3

from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.decision import OVER
from trainwarden_remediator.records import write_event


def hear_firing(db: sqlite3.Connection, alert: Alert, now: float) -> None:
    known = (alert.fingerprint, alert.starts_at)
    row = db.execute(
        "SELECT id, resolved_at, closed FROM incident WHERE fingerprint = ? AND starts_at = ?",
        known,
    ).fetchone()
    if row is not None:
        db.execute(
            "UPDATE incident SET last_heard = ?, resolved_at = NULL WHERE id = ?",
            (now, row["id"]),
        )
        # Neither says that the trouble is over: Alertmanager calls resolved what Prometheus
        # could not repeat in time, and was itself away when nothing was heard.
        if row["resolved_at"] is not None or row["closed"] in OVER:
            if row["closed"] in OVER:
                db.execute(
                    "UPDATE incident SET closed = NULL, closed_at = NULL, said = NULL WHERE id = ?",
                    (row["id"],),
                )
            write_event(db, now, "alert", row["id"], None, alert=alert.name, again=True)
        return
    incident = db.execute(
        "INSERT INTO incident (fingerprint, starts_at, alert, run, worker, remediation, labels,"
        " annotations, first_heard, last_heard) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *known,
            alert.name,
            alert.run,
            alert.worker,
            alert.remediation,
            json.dumps(dict(alert.labels)),
            json.dumps(dict(alert.annotations)),
            now,
            now,
        ),
    ).lastrowid
    write_event(db, now, "alert", incident, None, alert=alert.name, started=alert.starts_at)


def hear_resolved(db: sqlite3.Connection, alert: Alert, now: float) -> None:
    row = db.execute(
        "UPDATE incident SET resolved_at = ?, last_heard = ? WHERE fingerprint = ?"
        " AND starts_at = ? AND resolved_at IS NULL RETURNING id",
        (now, now, alert.fingerprint, alert.starts_at),
    ).fetchone()
    if row is not None:
        write_event(db, now, "resolved", row[0], None, alert=alert.name)
