"""What the journal holds, row by row: its events, and actions that have not come to an end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.decision import Incident, PastAction, Result
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.subjects import Subject

Outcome = Literal["healed", "not_healed", "gave_up"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal. `at` is Unix seconds.

    `alert`, `run` and `worker` are those of its incident; `facts` are its particulars by name.
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
    """An action whose result, or whose outcome, is not known yet.

    `processes` are what it was to end when the intent was formed, `checkpoint` the step of the
    run's newest complete one; `reached` is the last step that was announced (it may or may not have
    been taken), `result` what came of it.
    """

    id: int
    incident: int
    key: WorkerKey
    remediation: str
    intent_at: float
    processes: frozenset[Subject]
    reached: str | None
    result: Result | None
    result_at: float | None
    rung: int = 0
    checkpoint: float | None = None


NOT_ASKED = "not asked"
"""How it begins to say what came of a request for a checkpoint that certainly was not made."""


@dataclass(frozen=True, slots=True)
class SaveAsked:
    """A request for a last checkpoint, announced before it was made: it may not have been made.

    `at` is Unix seconds, `subjects` are those that were to be asked, `checkpoint` is the step of
    the run's newest complete one at that time.
    """

    at: float
    key: WorkerKey
    subjects: frozenset[Subject]
    checkpoint: float | None


EVENTS = (
    "SELECT event.*, alert, coalesce(action.run, incident.run) AS run,"
    " coalesce(action.worker, incident.worker) AS worker"
    " FROM event LEFT JOIN incident ON incident.id = event.incident"
    " LEFT JOIN action ON action.id = event.action"
)


def read_events(connection: sqlite3.Connection, after: int = 0) -> tuple[Event, ...]:
    """Lines of a journal with an id above `after`, the oldest first.

    Raises JournalError. Reads beside a running remediator without disturbing it.
    """
    try:
        rows = connection.execute(f"{EVENTS} WHERE event.id > ? ORDER BY event.id", (after,))
        return tuple(as_event(row) for row in rows)
    except sqlite3.Error as error:
        raise JournalError(str(error)) from error


FINISHED = "finished "
"""What the name of a moment begins with at which a worker ended with status 0."""


def finished_workers(moments: Mapping[str, float]) -> frozenset[WorkerKey]:
    """The workers that have finished, by the moments of a journal."""
    names = (name.removeprefix(FINISHED) for name in moments if name.startswith(FINISHED))
    return frozenset(WorkerKey(*name.split("/", 1)) for name in names)


def as_event(row: sqlite3.Row) -> Event:
    facts = json.loads(row["facts"])
    return Event(
        id=row["id"],
        at=row["at"],
        incident=row["incident"],
        action=row["action"],
        kind=row["kind"],
        alert=row["alert"] or "",
        # A decision may be about another worker than its alert.
        run=facts.get("run", row["run"]) or "",
        worker=facts.get("worker", row["worker"]) or "",
        facts=facts,
    )


def as_incident(row: sqlite3.Row) -> Incident:
    return Incident(
        id=row["id"],
        fingerprint=row["fingerprint"],
        starts_at=row["starts_at"],
        alert=row["alert"],
        run=row["run"],
        worker=row["worker"],
        remediation=row["remediation"],
        last_heard=row["last_heard"],
        resolved=row["resolved_at"] is not None,
        said=row["said"] or "",
        said_at=row["said_at"] or 0.0,
        labels=json.loads(row["labels"]),
    )


def as_past_action(row: sqlite3.Row) -> PastAction:
    return PastAction(
        incident=row["incident"],
        key=WorkerKey(row["run"], row["worker"]),
        intent_at=row["intent_at"],
        ended_at=row["ended_at"],
        healed=bool(row["healed"]),
        rung=row["rung"],
        step=row["step"],
        checkpoint=row["checkpoint"],
        kind=row["kind"],
        result=row["result"],
    )


def as_open_action(row: sqlite3.Row) -> OpenAction:
    return OpenAction(
        id=row["id"],
        incident=row["incident"],
        key=WorkerKey(row["run"], row["worker"]),
        remediation=row["remediation"],
        intent_at=row["intent_at"],
        processes=frozenset(_as_subject(one) for one in json.loads(row["processes"])),
        reached=row["reached"],
        result=row["result"],
        result_at=row["result_at"],
        rung=row["rung"],
        checkpoint=row["checkpoint"],
    )


def as_save_asked(row: sqlite3.Row) -> SaveAsked:
    """Of a line that an earlier version has written, nobody was asked."""
    facts = json.loads(row["facts"])
    return SaveAsked(
        at=row["at"],
        key=_as_key(facts),
        subjects=frozenset(_as_subject(one) for one in facts.get("subjects", ())),
        checkpoint=facts.get("checkpoint"),
    )


def as_save_told(row: sqlite3.Row) -> tuple[WorkerKey, bool]:
    """Of which worker it was told what came of a request, and whether that had been made."""
    facts = json.loads(row["facts"])
    return _as_key(facts), not facts["came"].startswith(NOT_ASKED)


def _as_key(facts: Mapping[str, Any]) -> WorkerKey:
    return WorkerKey(facts["run"], facts["worker"])


def _as_subject(content: str | list[int]) -> Subject:
    return content if isinstance(content, str) else Identity(*content)


def incident_of(db: sqlite3.Connection, action: int) -> int:
    found: int = db.execute("SELECT incident FROM action WHERE id = ?", (action,)).fetchone()[0]
    return found


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


def add_to_tally(
    db: sqlite3.Connection, metric: str, labels: Sequence[str], count: int = 1
) -> None:
    db.execute(
        "INSERT INTO tally VALUES (?, ?, ?)"
        " ON CONFLICT (metric, labels) DO UPDATE SET value = value + excluded.value",
        (metric, json.dumps(list(labels)), count),
    )
