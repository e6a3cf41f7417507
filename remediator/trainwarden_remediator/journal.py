"""The durable record: what was heard, decided, meant, done and found afterwards.

An intent is committed before the act it announces, so that after a crash at any point it is known
what may have been begun. The same file is the audit log, and what budgets are counted from.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.policy import Decision, Incident, PastAction

VERSION = 1

_SCHEMA = """
CREATE TABLE incident (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    starts_at REAL NOT NULL,
    alert TEXT NOT NULL,
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    remediation TEXT NOT NULL,
    labels TEXT NOT NULL,
    first_heard REAL NOT NULL,
    last_heard REAL NOT NULL,
    resolved_at REAL,
    closed TEXT,                 -- why it is decided no more; NULL while it is
    said TEXT,                   -- verdict and reason last written down
    target_run TEXT,             -- the worker it turned out to be about
    target_worker TEXT,
    UNIQUE (fingerprint, starts_at)
);
CREATE INDEX incident_open ON incident (id) WHERE closed IS NULL;
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL REFERENCES incident (id),
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    kind TEXT NOT NULL,
    intent_at REAL NOT NULL,
    processes TEXT NOT NULL,     -- what the target consisted of when the intent was formed
    reached TEXT,                -- the last step announced before it was taken
    result TEXT,
    result_at REAL,
    outcome TEXT,
    outcome_at REAL
);
CREATE INDEX action_target ON action (run, worker, intent_at);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    incident INTEGER,
    action INTEGER,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE TABLE tally (
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (metric, labels)
);
CREATE TABLE moment (name TEXT PRIMARY KEY, at REAL NOT NULL);
"""

Result = Literal["done", "failed", "interrupted"]
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

    `processes` are those of the target when the intent was formed; `reached` is the last step
    that was announced (it may or may not have been taken), `result` what came of it.
    """

    id: int
    incident: int
    key: WorkerKey
    remediation: str
    intent_at: float
    processes: frozenset[Identity]
    reached: str | None
    result: Result | None
    result_at: float | None


class Journal:
    """An SQLite file, locked to one remediator.

    Every method commits before it returns, or raises JournalError having changed nothing. All may
    block on the disk and may be called from any thread.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._guard = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error
        try:
            self._take_lock()
            self._connection = self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        with self._guard:
            self._connection.close()
            os.close(self._lock)

    # hearing

    def hear(self, alerts: Sequence[Alert], *, heartbeat: bool = False) -> None:
        """Record a delivery. An alert heard before, by fingerprint and start, is the same one.

        `heartbeat`: it also carried the alert that always fires.
        """
        now = self._clock()
        with self._transaction() as db:
            if heartbeat:
                db.execute("INSERT OR REPLACE INTO moment VALUES ('watchdog', ?)", (now,))
            for alert in alerts:
                status = "firing" if alert.firing else "resolved"
                _tally(db, "alerts_received", [status])
                if alert.firing:
                    self._hear_firing(db, alert, now)
                else:
                    self._hear_resolved(db, alert, now)

    def _hear_firing(self, db: sqlite3.Connection, alert: Alert, now: float) -> None:
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
            if row["resolved_at"] is not None or row["closed"] in ("resolved", "forgotten"):
                db.execute(
                    "UPDATE incident SET closed = NULL, said = NULL"
                    " WHERE id = ? AND closed IN ('resolved', 'forgotten')",
                    (row["id"],),
                )
                _write(db, now, "alert", row["id"], None, alert=alert.name, again=True)
            return
        incident = db.execute(
            "INSERT INTO incident (fingerprint, starts_at, alert, run, worker, remediation, labels,"
            " first_heard, last_heard) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *known,
                alert.name,
                alert.run,
                alert.worker,
                alert.remediation,
                json.dumps(dict(alert.labels)),
                now,
                now,
            ),
        ).lastrowid
        _write(db, now, "alert", incident, None, alert=alert.name, started=alert.starts_at)

    def _hear_resolved(self, db: sqlite3.Connection, alert: Alert, now: float) -> None:
        row = db.execute(
            "UPDATE incident SET resolved_at = ?, last_heard = ? WHERE fingerprint = ?"
            " AND starts_at = ? AND resolved_at IS NULL RETURNING id",
            (now, now, alert.fingerprint, alert.starts_at),
        ).fetchone()
        if row is not None:
            _write(db, now, "resolved", row[0], None, alert=alert.name)

    # deciding

    def open_incidents(self) -> tuple[Incident, ...]:
        """Those still to be decided, the oldest first."""
        rows = self._read("SELECT * FROM incident WHERE closed IS NULL ORDER BY starts_at, id")
        return tuple(_incident(row) for row in rows)

    def decided(self, incident: Incident, decision: Decision) -> bool:
        """Record a decision; one that says what the last one said is not written again.

        Returns whether it was news.
        """
        closed = decision.reason if decision.final else None
        target = decision.target.key if decision.target else (None, None)
        with self._transaction() as db:
            changed = db.execute(
                "UPDATE incident SET said = ?, closed = ?, target_run = coalesce(?, target_run),"
                " target_worker = coalesce(?, target_worker) WHERE id = ? AND said IS NOT ?",
                (decision.text, closed, *target, incident.id, decision.text),
            ).rowcount
            if not changed:
                return False
            _tally(db, "decisions", [decision.verdict, decision.reason])
            facts: dict[str, str] = {"verdict": decision.verdict, "reason": decision.reason}
            if decision.detail:
                facts["detail"] = decision.detail
            _write(db, self._clock(), "decision", incident.id, None, **facts)
            if decision.reason == "attempts_exhausted":
                known = decision.target.key if decision.target else (incident.run, incident.worker)
                _tally(db, "outcomes", [*known, "gave_up"])
            return True

    # acting

    def intend(
        self, incident: int, key: WorkerKey, kind: str, processes: Iterable[Identity]
    ) -> int:
        """Announce an action on `key` before any part of it is done. Returns its id."""
        now = self._clock()
        identities = sorted(processes)
        with self._transaction() as db:
            # What is decided after this action is news again, also when it reads the same.
            db.execute("UPDATE incident SET said = NULL WHERE id = ?", (incident,))
            action = db.execute(
                "INSERT INTO action (incident, run, worker, kind, intent_at, processes)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (incident, *key, kind, now, json.dumps(identities)),
            ).lastrowid
            if action is None:
                raise JournalError("SQLite gave the action no number")
            pids = [identity.pid for identity in identities]
            _write(db, now, "intent", incident, action, doing=kind, processes=pids)
            return action

    def reached(self, action: int, step: str, **facts: Any) -> None:
        """Announce the next step of an action, before it is taken."""
        now = self._clock()
        with self._transaction() as db:
            db.execute("UPDATE action SET reached = ? WHERE id = ?", (step, action))
            _write(db, now, step, _incident_of(db, action), action, **facts)

    def finished(self, action: int, result: Result, **facts: Any) -> None:
        """Record what came of an action itself, before its effect is verified."""
        now = self._clock()
        with self._transaction() as db:
            row = db.execute(
                "UPDATE action SET result = ?, result_at = ? WHERE id = ?"
                " RETURNING run, worker, kind",
                (result, now, action),
            ).fetchone()
            _tally(db, "actions", [*row, result])
            _write(db, now, "result", _incident_of(db, action), action, result=result, **facts)

    def verified(self, action: int, outcome: Outcome, **facts: Any) -> None:
        """Record whether an action helped."""
        now = self._clock()
        with self._transaction() as db:
            row = db.execute(
                "UPDATE action SET outcome = ?, outcome_at = ? WHERE id = ? RETURNING run, worker",
                (outcome, now, action),
            ).fetchone()
            _tally(db, "outcomes", [*row, outcome])
            _write(db, now, "outcome", _incident_of(db, action), action, outcome=outcome, **facts)

    def unfinished(self) -> tuple[OpenAction, ...]:
        """Actions without an outcome: in flight, or cut short by a crash."""
        rows = self._read(
            "SELECT action.*, remediation FROM action JOIN incident ON incident.id = incident"
            " WHERE outcome IS NULL AND result IS NOT 'interrupted' ORDER BY action.id"
        )
        return tuple(
            OpenAction(
                id=row["id"],
                incident=row["incident"],
                key=WorkerKey(row["run"], row["worker"]),
                remediation=row["remediation"],
                intent_at=row["intent_at"],
                processes=frozenset(Identity(*pair) for pair in json.loads(row["processes"])),
                reached=row["reached"],
                result=row["result"],
                result_at=row["result_at"],
            )
            for row in rows
        )

    def past_actions(self, since: float) -> tuple[PastAction, ...]:
        """Actions meant or ended since then (Unix seconds), and those that have not ended."""
        rows = self._read(
            "SELECT incident, run, worker, intent_at, outcome IS 'healed' AS healed,"
            " CASE WHEN result IS 'interrupted' THEN result_at ELSE outcome_at END AS ended_at"
            " FROM action WHERE (intent_at >= ? OR coalesce(ended_at, 1e999) >= ?)"
            # One cut short before its first step has done nothing to the target.
            " AND NOT (result IS 'interrupted' AND reached IS NULL) ORDER BY id",
            (since, since),
        )
        return tuple(
            PastAction(
                incident=row["incident"],
                key=WorkerKey(row["run"], row["worker"]),
                intent_at=row["intent_at"],
                ended_at=row["ended_at"],
                healed=bool(row["healed"]),
            )
            for row in rows
        )

    # telling

    def newest_events(self, count: int) -> tuple[Event, ...]:
        """The last `count` lines, the newest first."""
        rows = self._read(f"{_EVENTS} ORDER BY event.id DESC LIMIT ?", (count,))
        return tuple(_event(row) for row in rows)

    def tallies(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """Totals by metric and label values, since the journal was begun."""
        totals: dict[str, dict[tuple[str, ...], float]] = {}
        for row in self._read("SELECT metric, labels, value FROM tally"):
            totals.setdefault(row["metric"], {})[tuple(json.loads(row["labels"]))] = row["value"]
        return totals

    def moments(self) -> Mapping[str, float]:
        return {row["name"]: row["at"] for row in self._read("SELECT name, at FROM moment")}

    def given_up(self, heard_since: float) -> tuple[WorkerKey, ...]:
        """Targets given up while the alert about them, heard since then, still stands."""
        rows = self._read(
            "SELECT DISTINCT coalesce(target_run, run), coalesce(target_worker, worker)"
            " FROM incident"
            " WHERE closed = 'attempts_exhausted' AND resolved_at IS NULL AND last_heard >= ?",
            (heard_since,),
        )
        return tuple(WorkerKey(*row) for row in rows)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"{self._path}: another remediator is using it") from error

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._path)
        with ExitStack() as unless_sound:
            unless_sound.callback(connection.close)
            self._make_sound(connection)
            unless_sound.pop_all()
        return connection

    def _make_sound(self, connection: sqlite3.Connection) -> None:
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                connection.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT"
                )
            elif version != VERSION:
                raise JournalError(f"{self._path}: written by another version ({version})")
            if (found := connection.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
                raise JournalError(f"{self._path}: damaged: {' '.join(found.split())}")
        except sqlite3.Error as error:
            raise JournalError(f"{self._path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            db = self._connection
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: {error}") from error
            finally:
                # Also where COMMIT itself failed: a full disk leaves the transaction open.
                with suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("ROLLBACK")

    def _read(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._guard:
            try:
                return self._connection.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise JournalError(f"{self._path}: {error}") from error


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection in which what is committed is on the disk. Raises JournalError."""
    mode = "ro" if readonly else "rwc"
    with ExitStack() as unless_good:
        try:
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=5,
            )
            unless_good.callback(connection.close)
            connection.row_factory = sqlite3.Row
            if not readonly:
                connection.execute("PRAGMA journal_mode = WAL")
                # FULL, not NORMAL: an intent lost with the power would be an act never announced.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise JournalError(f"{path}: {error}") from error
        unless_good.pop_all()
    return connection


def is_begun(path: Path) -> bool:
    """Whether there is a journal at `path`; raises JournalError when that cannot be told."""
    if not path.exists():
        return False
    connection = connect(path, readonly=True)
    try:
        return bool(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error
    finally:
        connection.close()


_EVENTS = (
    "SELECT event.*, alert, coalesce(target_run, incident.run) AS run,"
    " coalesce(target_worker, incident.worker) AS worker"
    " FROM event LEFT JOIN incident ON incident.id = event.incident"
)


def read_events(connection: sqlite3.Connection, after: int = 0) -> tuple[Event, ...]:
    """Lines of a journal with an id above `after`, the oldest first.

    Raises JournalError. Reads beside a running remediator without disturbing it.
    """
    try:
        rows = connection.execute(f"{_EVENTS} WHERE event.id > ? ORDER BY event.id", (after,))
        return tuple(_event(row) for row in rows)
    except sqlite3.Error as error:
        raise JournalError(str(error)) from error


def _event(row: sqlite3.Row) -> Event:
    return Event(
        id=row["id"],
        at=row["at"],
        incident=row["incident"],
        action=row["action"],
        kind=row["kind"],
        alert=row["alert"] or "",
        run=row["run"] or "",
        worker=row["worker"] or "",
        facts=json.loads(row["facts"]),
    )


def _incident(row: sqlite3.Row) -> Incident:
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
    )


def _incident_of(db: sqlite3.Connection, action: int) -> int:
    found: int = db.execute("SELECT incident FROM action WHERE id = ?", (action,)).fetchone()[0]
    return found


def _write(
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


def _tally(db: sqlite3.Connection, metric: str, labels: Sequence[str]) -> None:
    db.execute(
        "INSERT INTO tally VALUES (?, ?, 1)"
        " ON CONFLICT (metric, labels) DO UPDATE SET value = value + 1",
        (metric, json.dumps(list(labels))),
    )
