"""How a decision changes the journal."""

from __future__ import annotations

import sqlite3
from typing import Any

from trainwarden_remediator.decision import GIVEN_UP, STUCK, Decision, Incident
from trainwarden_remediator.latch import latch
from trainwarden_remediator.records import add_to_tally, write_event


def write_decision(
    db: sqlite3.Connection, now: float, incident: Incident, decision: Decision
) -> bool:
    """Write it down, unless it says what the last one said. Returns whether it was news."""
    closed = decision.reason if decision.final else None
    target = decision.target.key if decision.target else (None, None)
    changed = db.execute(
        "UPDATE incident SET said = ?, said_at = ?, closed = ?, closed_at = ?,"
        " target_run = coalesce(?, target_run),"
        " target_worker = coalesce(?, target_worker) WHERE id = ? AND said IS NOT ?",
        (
            *(decision.text, now, closed, now if closed else None),
            *(*target, incident.id, decision.text),
        ),
    ).rowcount
    if not changed:
        return False
    add_to_tally(db, "decisions", [decision.verdict, decision.reason])
    facts: dict[str, Any] = {"verdict": decision.verdict, "reason": decision.reason}
    if decision.detail:
        facts["detail"] = decision.detail
    if decision.target and target != (incident.run, incident.worker):
        facts |= {"run": target[0], "worker": target[1]}
    write_event(db, now, "decision", incident.id, None, **facts)
    if decision.reason == "breaker_open":
        latch(db, now, incident.id, decision.detail)
    if decision.reason in GIVEN_UP | STUCK:
        known = decision.target.key if decision.target else (incident.run, incident.worker)
        add_to_tally(db, "outcomes", [*known, "gave_up"])
    return True
