"""The row types of the journal, their converters, and the event writer."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.model import Incident, PastAction, Result, TargetInstance

T = TypeVar("T")

Outcome = Literal["healed", "not_healed", "gave_up"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `at` is Unix seconds.

    `alert`, `run` and `worker` are those of its incident; `facts` holds its details by name.
    """

    id: int
    at: float
    incident: int | None
    action: int | None
    kind: str
    alert: str
    run: str
    worker: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OpenAction:
    """An action without a result, or without an outcome.

    At the time of the intent, `processes` were the instances to terminate, `step` was the run's
    step and `checkpoint` the step of its newest complete checkpoint. `last_step` is the last step
    that was recorded; it may not have been performed.
    """

    id: int
    incident: int
    key: WorkerKey
    remediation: str
    intent_at: float
    processes: frozenset[TargetInstance]
    last_step: str | None
    result: Result | None
    rung: int = 0
    checkpoint: float | None = None
    step: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedSaveRequest:
    """A request for a final checkpoint, recorded before it was sent; it may not have been sent.

    `at` is Unix seconds, `instances` are the receivers, and `checkpoint` is the step of the run's
    newest complete checkpoint at that time.
    """

    at: float
    key: WorkerKey
    instances: frozenset[TargetInstance]
    checkpoint: float | None


EVENTS = (
    "SELECT event.id, at, coalesce(part_of, event.incident) AS incident, action, event.kind, facts,"
    " alert, coalesce(action.run, incident.run) AS run,"
    " coalesce(action.worker, incident.worker) AS worker"
    " FROM event LEFT JOIN incident ON incident.id = event.incident"
    " LEFT JOIN action ON action.id = event.action"
)
"""An event of a part of an outage is one of the incident of that outage."""

OF_OUTAGE = (
    "(SELECT incident.id FROM (SELECT ? AS outage) JOIN incident"
    " ON incident.id = outage OR part_of = outage)"
)
"""The incidents of the outage of an incident: that one, and its parts."""


BATCH_ROWS = 1000
"""Rows of one query: a reader that is slow to print must not keep the journal from shrinking."""


def read_events(
    connection: sqlite3.Connection, after: int = 0, *, incident: int | None = None
) -> Iterator[Event]:
    """Yields the events with an id above `after`, or those of one incident, the oldest first.

    A running remediator is not affected.
    """
    values = () if incident is None else (outage(connection, incident),)
    of_incident = f"AND event.incident IN {OF_OUTAGE}" if values else ""
    query = f"{EVENTS} WHERE event.id > ? {of_incident} ORDER BY event.id LIMIT ?"
    while rows := connection.execute(query, (after, *values, BATCH_ROWS)).fetchall():
        yield from map(as_event, rows)
        after = rows[-1]["id"]


def outage(connection: sqlite3.Connection, incident: int) -> int:
    """Returns the incident of whose outage an incident is a part; else that incident itself."""
    query = "SELECT part_of FROM incident WHERE id = ? AND part_of IS NOT NULL"
    found = connection.execute(query, (incident,)).fetchone()
    return incident if found is None else int(found[0])


def last_id_before(connection: sqlite3.Connection, count: int | None, since: float) -> int:
    """Returns the id before the newest `count` events (None: any number) since `since`."""
    rows = []
    if since > -math.inf:
        # From the newest on: the times have no index.
        old = "SELECT id FROM event WHERE at < ? ORDER BY id DESC LIMIT 1"
        rows += connection.execute(old, (since,)).fetchall()
    if count is not None:
        newer = "SELECT id FROM event ORDER BY id DESC LIMIT 1 OFFSET ?"
        rows += connection.execute(newer, (count,)).fetchall()
    return max((row[0] for row in rows), default=0)


def last_id(connection: sqlite3.Connection) -> int:
    """Returns the id of the newest event; 0 without any."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM event").fetchone()[0])


FINISHED_PREFIX = "finished "
"""Prefix of the timestamp names that record when a worker exited with status 0."""


def finished_workers(timestamps: Mapping[str, float]) -> Mapping[WorkerKey, float]:
    """Returns when workers have finished, from the timestamps of a journal."""
    found = {}
    for name, at in timestamps.items():
        if name.startswith(FINISHED_PREFIX):
            run, worker = name.removeprefix(FINISHED_PREFIX).split("/", 1)
            found[WorkerKey(run, worker)] = at
    return found


RESUMED_PREFIX = "resumed "
"""Prefix of the timestamp names that record when an operator resumed a target (run/worker) or an
incident (its id) that had been given up."""


def actions_since_resume(
    actions: Sequence[PastAction], timestamps: Mapping[str, float]
) -> tuple[PastAction, ...]:
    """Returns the actions without those from before an operator resumed their target or incident.

    The operator has dealt with the cause: earlier attempts count no more.
    """

    def resumed_at(subject: str) -> float:
        return timestamps.get(f"{RESUMED_PREFIX}{subject}", 0.0)

    return tuple(
        action
        for action in actions
        if action.ended_at is None
        or action.intent_at
        > max(resumed_at(str(action.incident)), resumed_at("/".join(action.key)))
    )


def from_row(kind: type[T], row: sqlite3.Row, **changed: Any) -> T:
    """Returns a `kind` whose fields are the columns of the same name, except those in `changed`."""
    values = dict(row) | changed
    return kind(**{name: values[name] for name in kind.__annotations__ if name in values})


def as_event(row: sqlite3.Row) -> Event:
    facts = json.loads(row["facts"])
    return from_row(
        Event,
        row,
        alert=row["alert"] or facts.get("alert", ""),
        # A decision may be about another worker than its alert.
        run=facts.get("run", row["run"]) or "",
        worker=facts.get("worker", row["worker"]) or "",
        facts=facts,
    )


def as_incident(row: sqlite3.Row) -> Incident:
    return from_row(
        Incident,
        row,
        resolved=row["resolved_at"] is not None,
        last_decision=row["last_decision"] or "",
        last_decided_at=row["last_decided_at"] or 0.0,
        last_detail=row["last_detail"] or "",
        labels=json.loads(row["labels"]),
    )


def as_past_action(row: sqlite3.Row) -> PastAction:
    return from_row(PastAction, row, key=_as_key(row), healed=bool(row["healed"]))


def as_open_action(row: sqlite3.Row) -> OpenAction:
    processes = frozenset(_as_instance(one) for one in json.loads(row["processes"]))
    return from_row(OpenAction, row, key=_as_key(row), processes=processes)


def as_save_request(row: sqlite3.Row) -> RecordedSaveRequest:
    """Returns the request of an event; an event of an earlier version has no instances."""
    facts = json.loads(row["facts"])
    return RecordedSaveRequest(
        at=row["at"],
        key=_as_key(facts),
        instances=frozenset(_as_instance(one) for one in facts.get("subjects", ())),
        checkpoint=facts.get("checkpoint"),
    )


def as_save_result(row: sqlite3.Row) -> tuple[WorkerKey, bool]:
    """Returns the worker of a request's result, and whether the request was sent."""
    facts = json.loads(row["facts"])
    return _as_key(facts), bool(facts["sent"])


def recorded_alert(facts: str) -> Alert:
    """Returns the alert of an event `unhandled` or `stalled`."""
    known = json.loads(facts)
    labels = {"alertname": known["alert"], "run": known["run"], "worker": known["worker"]}
    return Alert(known["fingerprint"], known["starts_at"], firing=True, labels=labels)


def _as_key(facts: Mapping[str, Any] | sqlite3.Row) -> WorkerKey:
    return WorkerKey(facts["run"], facts["worker"])


def _as_instance(content: str | list[int]) -> TargetInstance:
    return content if isinstance(content, str) else Identity(*content)


def incident_of(db: sqlite3.Connection, action: int) -> int:
    found: int = db.execute("SELECT incident FROM action WHERE id = ?", (action,)).fetchone()[0]
    return found


def last_incident(db: sqlite3.Connection) -> int:
    """Returns the number of the newest incident; 0 without any."""
    return int(db.execute("SELECT coalesce(max(id), 0) FROM incident").fetchone()[0])


def describe_missing(number: int, last: int) -> str:
    """Returns that there is no incident `number`, where `last` is the newest one."""
    shown = f"the last is {last}" if last else "there is none at all"
    return f"no incident {number} ({shown})"


def write_event(
    db: sqlite3.Connection,
    at: float,
    kind: str,
    incident: int | None,
    action: int | None,
    **facts: Any,
) -> None:
    db.execute(
        "INSERT INTO event (at, incident, action, kind, facts) VALUES (?, ?, ?, ?, ?)",
        (at, incident, action, kind, json.dumps(facts)),
    )


def increment_counter(
    db: sqlite3.Connection, metric: str, labels: Sequence[str], count: int = 1
) -> None:
    db.execute(
        "INSERT INTO counter VALUES (?, ?, ?)"
        " ON CONFLICT (metric, labels) DO UPDATE SET value = value + excluded.value",
        (metric, json.dumps(list(labels)), count),
    )
