"""Loads incidents from a journal, also while the remediator runs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.database import check_version, journal_exists, open_database
from trainwarden_remediator.journal.evidence_text import parse_evidence
from trainwarden_remediator.journal.queries import JournalReader
from trainwarden_remediator.journal.rows import (
    EVENTS,
    OF_OUTAGE,
    as_event,
    as_incident,
    from_row,
    outage,
)
from trainwarden_remediator.model import GIVEN_UP, RESTART_LOOP
from trainwarden_remediator.policy.failing_starts import LOOP_SECONDS
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.model import (
    ActionRecord,
    AlertRecord,
    EvidenceRecord,
    IncidentRecord,
    RelatedIncident,
)

MAX_EVENTS = 2000
MAX_RELATED = 30
OVERLAP_SECONDS = 120.0
"""Incidents that end up to so many seconds before another one's start still count as related."""


@contextmanager
def open_journal(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens the journal at `path` read-only. Raises JournalError, also for errors in the body."""
    if not journal_exists(path):
        raise JournalError(f"{path}: there is no journal yet; has the remediator run?")
    with open_database(path, mode="ro") as connection:
        check_version(connection, path)
        # One transaction, so that all queries see the same state.
        connection.execute("BEGIN")
        yield connection


def with_given_up(
    current: CurrentState, connection: sqlite3.Connection, now: float
) -> CurrentState:
    """Returns `current` with the workers that were given up, as the status pages show them."""
    reader = JournalReader(lambda *query: connection.execute(*query).fetchall(), clock=lambda: now)
    received_since = now - current.alert_stale_after
    taken_over = current.started, current.situation.is_stopped
    situation = replace(
        current.situation,
        given_up=reader.given_up(received_since, *taken_over),
        given_up_before=reader.given_up_before(*taken_over),
    )
    return replace(current, situation=situation)


def created_at(connection: sqlite3.Connection) -> float:
    """Returns when the journal was created (Unix seconds); 0 if it does not know.

    Earlier faults are in the journal of another stack, if in any.
    """
    row = connection.execute("SELECT * FROM journal").fetchone()
    return dict(row).get("created") or 0.0


def read_incident(connection: sqlite3.Connection, incident: int) -> IncidentRecord | None:
    """Returns the incident with that number, or that of its outage; else None."""
    number = outage(connection, incident)
    row = connection.execute("SELECT * FROM incident WHERE id = ?", (number,)).fetchone()
    return None if row is None else _incident_record(connection, row, _loops(connection))


def read_incidents(connection: sqlite3.Connection, since: float) -> tuple[IncidentRecord, ...]:
    """Returns the incidents received or open after `since` (Unix seconds), oldest first."""
    rows = connection.execute(
        "SELECT * FROM incident WHERE id IN (SELECT coalesce(part_of, id) FROM incident"
        " WHERE coalesce(closed_at, 1e999) >= ? OR last_received_at >= ?) ORDER BY starts_at, id",
        (since, since),
    ).fetchall()
    loops = _loops(connection)
    return tuple(_incident_record(connection, row, loops) for row in rows)


def _loops(connection: sqlite3.Connection) -> Sequence[tuple[int, int]]:
    """Returns each restart loop with each other incident that one of its restarts is of.

    A healing ends an incident, so that a worker that leaks again has several of them.
    """
    found = connection.execute(
        "SELECT DISTINCT coalesce(loop.part_of, loop.id) AS outage,"
        " coalesce(own.part_of, own.id) AS other FROM incident AS loop"
        " JOIN action ON action.run = loop.run AND action.worker = loop.worker"
        " AND action.kind = 'restart' AND intent_at BETWEEN loop.starts_at - ? AND loop.starts_at"
        " JOIN incident AS own ON own.id = action.incident"
        " WHERE loop.alert = ? AND outage != other ORDER BY outage, other",
        (LOOP_SECONDS, RESTART_LOOP),
    )
    return [(loop, incident) for loop, incident in found]


def _incident_record(
    connection: sqlite3.Connection, row: sqlite3.Row, loops: Sequence[tuple[int, int]]
) -> IncidentRecord:
    """Returns the incident of `row`, with what its parts have."""
    number = row["id"]
    events = connection.execute(
        f"{EVENTS} WHERE event.incident IN {OF_OUTAGE} ORDER BY event.id LIMIT ?",
        (number, MAX_EVENTS),
    )
    actions, records = (
        connection.execute(
            f"SELECT * FROM {table} WHERE incident IN {OF_OUTAGE} ORDER BY id",  # noqa: S608 - our own words
            (number,),
        )
        for table in ("action", "evidence")
    )
    rows = connection.execute(
        f"SELECT * FROM incident WHERE id IN {OF_OUTAGE} ORDER BY part_of IS NOT NULL, id",  # noqa: S608 - our own words
        (number,),
    ).fetchall()
    parts = tuple(map(_alert_record, rows))
    found = tuple(map(as_event, events))
    # An alert that fires again within an outage has a later start.
    starts = [event.facts["started"] for event in found if "started" in event.facts]
    # It is over once all of its alerts are; a given up alert stays so.
    given_up = [one for one in parts if one.closed in GIVEN_UP]
    still_open = [one for one in parts if one.closed is None]
    state = next(iter([*given_up, *still_open, *parts[::-1]]))
    ends = [one.resolved_at for one in parts]
    return from_row(
        IncidentRecord,
        row,
        labels=json.loads(row["labels"]),
        annotations=json.loads(row["annotations"]),
        starts_at=min([row["starts_at"], *starts]),
        resolved_at=None if None in ends else max(filter(None, ends)),
        closed=state.closed,
        closed_at=state.closed_at,
        alerts=parts,
        events=found,
        actions=tuple(map(_action_record, actions)),
        evidence=tuple(map(_record, records)),
        related=_related(connection, row),
        loop=next((loop for loop, other in reversed(loops) if other == number), None),
        looped=tuple(other for loop, other in loops if loop == number),
    )


def _alert_record(row: sqlite3.Row) -> AlertRecord:
    annotations = json.loads(row["annotations"])
    return from_row(AlertRecord, row, annotations=annotations, incident=as_incident(row))


def _related(connection: sqlite3.Connection, row: sqlite3.Row) -> tuple[RelatedIncident, ...]:
    """Returns the concurrent incidents of the same run or without a run, of other outages."""
    end = row["resolved_at"] or row["closed_at"] or math.inf
    found = connection.execute(
        "SELECT * FROM incident WHERE id != ? AND part_of IS NULL AND run IN (?, '')"
        " AND starts_at <= ? AND coalesce(resolved_at, closed_at, 1e999) >= ?"
        " ORDER BY starts_at LIMIT ?",
        (row["id"], row["run"], end, row["starts_at"] - OVERLAP_SECONDS, MAX_RELATED),
    )
    return tuple(
        from_row(RelatedIncident, other, ended_at=other["resolved_at"] or other["closed_at"])
        for other in found
    )


def _action_record(row: sqlite3.Row) -> ActionRecord:
    ended_at = row["outcome_at"] or row["result_at"]
    return from_row(ActionRecord, row, at=row["intent_at"], outcome_at=ended_at)


def _record(row: sqlite3.Row) -> EvidenceRecord:
    content = parse_evidence(row["content"])
    return EvidenceRecord(row["at"], row["kind"], row["action"], content)
