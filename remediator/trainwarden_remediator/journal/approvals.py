"""Approvals of a proposed action, in mode observe: each allows the next action of one incident."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from trainwarden_remediator.exceptions import ApprovalError
from trainwarden_remediator.journal.rows import describe_missing, last_incident, write_event
from trainwarden_remediator.model import Approval

APPROVAL_SECONDS = 600.0
"""How long an approval is valid."""
PROPOSED = frozenset({"wait observe_mode", "wait approval_void"})
"""Last decisions (their text) of an incident whose action can be approved."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An action that mode observe withholds. `at` is when it was decided, in Unix seconds."""

    incident: int
    alert: str
    target: str
    at: float


TARGET = "trim(coalesce(target_run, run) || '/' || coalesce(target_worker, worker), '/') AS target"
"""The target of an incident's last decision, as `run/worker`."""
MAX_PROPOSALS = 20

_APPROVED, _PROPOSED, _USED = "approved ", "proposed ", "approval used "
"""Prefixes of timestamp names: an incident's id follows, and after _PROPOSED also its target."""


def proposed_incident(db: sqlite3.Connection, name: str) -> int:
    """Returns the incident whose action is proposed on a run, or on `run/worker`.

    Raises ApprovalError if there is none, or more than one.
    """
    everything = _proposals(db)
    found = [one for one in everything if name in (one["target"], one["target"].partition("/")[0])]
    if len(found) == 1:
        return int(found[0]["id"])
    shown = "; ".join(f"{_command(one)} ({one['alert']} on {one['target']})" for one in found)
    if not found:
        shown = ", ".join(f"{one['target']} (#{one['id']})" for one in everything) or "nothing"
        raise ApprovalError(f"no action is proposed on {name}; proposed on: {shown}")
    raise ApprovalError(f"several actions are proposed on {name}: {shown}")


def _proposals(db: sqlite3.Connection) -> list[sqlite3.Row]:
    return db.execute(
        f"SELECT id, alert, {TARGET} FROM incident WHERE closed IS NULL AND resolved_at IS NULL"  # noqa: S608 - words of ours
        " AND last_decision IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?",
        (json.dumps(sorted(PROPOSED)), MAX_PROPOSALS),
    ).fetchall()


def _command(row: sqlite3.Row) -> str:
    return f"`trainwarden approve {row['id']}`"


def _continued(db: sqlite3.Connection, over: sqlite3.Row) -> str:
    """Returns which incident continues an incident that is over, and what approves it, or ""."""
    own = [one for one in _proposals(db) if one["target"] == over["target"]]
    same = [one for one in own if one["alert"] == over["alert"]]
    now = next(iter(same or own), None)
    if now is None:
        return ""
    return f"is over; {now['target']} is #{now['id']} now: {_command(now)}"


def approve(
    db: sqlite3.Connection, now: float, incident: int, who: str, proposed_at: float | None = None
) -> str:
    """Approves the next action of an incident, and returns what is approved.

    `proposed_at` is when the proposal was decided that the operator has seen, if known. Raises
    ApprovalError where no such action is proposed any more.
    """
    row = db.execute(
        f"SELECT *, {TARGET} FROM incident WHERE id = ?",  # noqa: S608 - words of ours
        (incident,),
    ).fetchone()
    if row is None:
        raise ApprovalError(describe_missing(incident, last_incident(db)))
    is_over = row["resolved_at"] is not None or row["closed"] is not None
    if is_over and (continued := _continued(db, row)):
        raise ApprovalError(f"incident {incident} {continued}")
    if row["resolved_at"] is not None:
        raise ApprovalError(f"incident {incident}: the alert has resolved")
    if row["closed"] is not None or row["last_decision"] not in PROPOSED:
        decided = row["closed"] or row["last_decision"] or "nothing yet"
        raise ApprovalError(f"incident {incident}: no action is proposed; decided: {decided}")
    if proposed_at is not None and proposed_at != row["last_decided_at"]:
        raise ApprovalError(f"incident {incident}: the proposal has changed since: look again")
    target = str(row["target"])
    db.execute(
        "DELETE FROM timestamp WHERE name GLOB ? OR name GLOB ? OR (at < ?"
        " AND (name GLOB ? OR name GLOB ? OR name GLOB ?))",
        (
            *(f"{_APPROVED}{incident}", f"{_PROPOSED}{incident} *", now - APPROVAL_SECONDS),
            *(f"{_APPROVED}*", f"{_PROPOSED}*", f"{_USED}*"),
        ),
    )
    for name, at in (
        (f"{_APPROVED}{incident}", now),
        (f"{_PROPOSED}{incident} {target}", row["last_decided_at"]),
    ):
        db.execute("INSERT OR REPLACE INTO timestamp VALUES (?, ?)", (name, at))
    write_event(db, now, "approved", incident, None, who=who, target=target)
    return f"{row['alert']} on {target}" if target else str(row["alert"])


def use_approval(db: sqlite3.Connection, incident: int) -> None:
    """Marks the approval of an incident as used; called with the intent, in its transaction."""
    db.execute(
        "UPDATE OR REPLACE timestamp SET name = ? WHERE name = ?",
        (f"{_USED}{incident}", f"{_APPROVED}{incident}"),
    )


def valid_approvals(timestamps: Mapping[str, float], now: float) -> Mapping[int, Approval]:
    """Returns the approvals that are neither used nor expired, by incident."""
    found = {}
    for name, at in timestamps.items():
        if name.startswith(_PROPOSED):
            number, _, target = name.removeprefix(_PROPOSED).partition(" ")
            if is_valid(approved_at := timestamps.get(f"{_APPROVED}{number}"), now):
                found[int(number)] = Approval(approved_at or 0.0, at, target)
    return found


def is_approved(timestamps: Mapping[str, float], incident: int, now: float) -> bool:
    """Whether the action of an incident that has begun may go on by an approval."""
    return is_valid(timestamps.get(f"{_USED}{incident}"), now)


def is_valid(approved_at: float | None, now: float) -> bool:
    """Whether an approval of that time (Unix seconds) has not expired."""
    return approved_at is not None and 0 <= now - approved_at < APPROVAL_SECONDS
