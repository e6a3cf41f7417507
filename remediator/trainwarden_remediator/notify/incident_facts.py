"""What the journal knows of an incident beside the event that a notification reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainwarden_exporter.runtime.formatting import format_time
from trainwarden_remediator.journal.evidence_text import (
    FaultFacts,
    fault_facts,
    parse_evidence,
    process_ends,
    proved_wait,
)
from trainwarden_remediator.journal.rows import OF_OUTAGE, Event
from trainwarden_remediator.model import GIVEN_UP

EARLIER_SECONDS, MAX_EARLIER = 3600.0, 8
"""How long before an alert evidence still counts, in which its cause was proved, and how much."""

Read = Callable[[str, Sequence[object]], Sequence[sqlite3.Row]]
"""Returns the rows of a query with these values; raises JournalError."""

# Only constants are formatted into the queries.
_EARLIER = (
    "JOIN incident ON incident.id = incident,"
    " (SELECT run, worker, remediation, starts_at FROM incident WHERE id = ?) AS own"
    " WHERE own.run != '' AND incident.run = own.run AND incident.worker = own.worker"
    " AND incident.remediation = own.remediation"
)
"""Selects the evidence and the actions that are also about the fault of an incident."""


def read_attempts(read: Read, event: Event) -> tuple[tuple[str, str], ...]:
    """Returns the kind and the outcome of each completed action of the incident of an event.

    If an operator is needed without any: of the actions on alerts before, which have used up those
    of the incident.
    """
    rows = read(
        "SELECT kind, outcome FROM action WHERE outcome IS NOT NULL AND kind != 'notify'"  # noqa: S608
        f" AND incident IN {OF_OUTAGE} ORDER BY id",
        (event.incident,),
    )
    if rows or event.facts.get("reason") not in GIVEN_UP:
        return tuple((row["kind"], row["outcome"]) for row in rows)
    rows = read(
        f"SELECT action.kind, outcome FROM action {_EARLIER} AND action.kind != 'notify'"  # noqa: S608
        " AND outcome IS NOT NULL AND intent_at BETWEEN own.starts_at - ? AND ?"
        " ORDER BY action.id",
        (event.incident, EARLIER_SECONDS, event.at),
    )
    return tuple((row["kind"], f"{row['outcome']} in the hour before") for row in rows)


def read_fault(read: Read, incident: int) -> FaultFacts:
    """Returns what the newest evidence of an incident shows."""
    newest = read(
        f"SELECT content FROM evidence WHERE incident IN {OF_OUTAGE} ORDER BY id DESC LIMIT 1",  # noqa: S608
        (incident,),
    )
    if not newest:
        return FaultFacts()
    fault = fault_facts(parse_evidence(newest[0]["content"]))
    return fault if fault.cause else replace(fault, cause=_earlier_wait(read, incident))


def read_healed(read: Read, event: Event) -> FaultFacts:
    """Returns what the evidence from before an action shows of the fault that it has healed.

    No line of a log without the end of a process: it may be an old one.
    """
    rows = read(
        "SELECT content FROM evidence WHERE action = ? ORDER BY id LIMIT 1", (event.action,)
    )
    content = parse_evidence(rows[0]["content"]) if rows else {}
    fault = fault_facts(content)
    error = fault.error if process_ends(content) else ""
    return FaultFacts(cause=fault.cause, error=error, log=fault.log if error else "")


def _earlier_wait(read: Read, incident: int) -> str:
    """Returns for what the stuck run of an incident waited before its last restarts, or ""."""
    rows = read(
        f"SELECT at, content FROM evidence {_EARLIER} AND kind != 'end'"  # noqa: S608
        " AND at > own.starts_at - ? ORDER BY evidence.id DESC LIMIT ?",
        (incident, EARLIER_SECONDS, MAX_EARLIER),
    )
    waits = ((proved_wait(parse_evidence(row["content"])), row["at"]) for row in rows)
    return next((f"{wait} (seen {format_time(at)})" for wait, at in waits if wait), "")
