"""The journal: a durable record of alerts, decisions, intents, actions and outcomes.

An intent is committed before its action starts, so that after a crash at any point it is known
which actions may have started. The same file is the audit log, and budgets are counted from it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.limits import JournalLimits
from trainwarden_remediator.config.targets import ON_CALL
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.approvals import use_approval
from trainwarden_remediator.journal.clock_times import bounded_time, move_future_times, move_times
from trainwarden_remediator.journal.database import JournalFile
from trainwarden_remediator.journal.queries import (
    LAST_ACTIONS,
    RESTARTS,
    DescendantsByRoot,
    JournalReader,
)
from trainwarden_remediator.journal.recurrence import recurrence_facts
from trainwarden_remediator.journal.retention import prune
from trainwarden_remediator.journal.rows import (
    FINISHED_PREFIX,
    Outcome,
    incident_of,
    increment_counter,
    write_event,
)
from trainwarden_remediator.journal.transitions import (
    join_outage,
    mark_resolved,
    upsert_firing,
    write_decision,
)
from trainwarden_remediator.model import Decision, Incident, Result, TargetInstance

EVIDENCE_SECONDS = 90 * 86400.0
"""Seconds for which evidence is kept."""


class Journal(JournalReader):
    """Writes and reads the journal, in a file that is locked to one remediator.

    Every method commits before it returns, or raises JournalError without having changed anything.
    All methods may block on the disk, and may be called from any thread.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        self._file = JournalFile(path)
        super().__init__(self._file.read, clock=clock)

    @property
    def file(self) -> JournalFile:
        """The database, for modules with tables of their own in it."""
        return self._file

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _transaction(self) -> Iterator[tuple[sqlite3.Connection, float]]:
        """A transaction, and the time at which it began (Unix seconds)."""
        now = self._clock()
        with self._file.transaction() as db:
            yield db, now

    # alerts

    def record_alerts(
        self, alerts: Sequence[Alert], *, heartbeat: bool = False, counted: bool = True
    ) -> None:
        """Records the alerts of a delivery, identified by fingerprint and start time.

        `heartbeat`: the delivery also carried the watchdog alert. `counted`: include the alerts in
        the counter of received alerts.
        """
        with self._transaction() as (db, now):
            if heartbeat:
                db.execute("INSERT OR REPLACE INTO timestamp VALUES ('watchdog', ?)", (now,))
            if counted:
                # One write for all of them, for speed in an alert storm.
                statuses = Counter("firing" if alert.firing else "resolved" for alert in alerts)
                for status, count in statuses.items():
                    increment_counter(db, "alerts_received", [status], count)
            for alert in alerts:
                if alert.firing:
                    upsert_firing(db, alert, now)
                else:
                    mark_resolved(db, alert, now)

    def record_event(self, kind: str, **facts: Any) -> None:
        """Records an event that belongs to no incident."""
        with self._transaction() as (db, now):
            write_event(db, now, kind, None, None, **facts)

    def ends_of_runs(self) -> tuple[float, Mapping[str, float]]:
        """Returns when this journal begins, and when the last end of each run was recorded.

        Both in Unix seconds; the journal begins at infinity if it is empty.
        """
        ((began,),) = self._read("SELECT coalesce(min(at), 1e999) FROM event")
        rows = self._read(
            "SELECT json_extract(facts, '$.run') AS run, max(at) AS at FROM event"
            " WHERE kind = 'run_finished' GROUP BY 1"
        )
        return began, {row["run"]: row["at"] for row in rows}

    # decisions

    def record_decisions(self, decisions: Iterable[tuple[Incident, Decision]]) -> int:
        """Records the decisions that differ from the last ones of their incidents.

        Returns their number.
        """
        with self._transaction() as (db, now):
            return sum([write_decision(db, now, *one) for one in decisions])

    # actions

    def action_token(self, key: WorkerKey, action: int) -> str:
        """Returns the token that identifies the processes started by an action.

        It differs from the tokens of another journal, such as a lost journal.
        """
        return f"{key.run}/{key.worker}/{action}/{self._file.name}"

    def record_intent(
        self,
        incident: int,
        key: WorkerKey,
        kind: str,
        processes: Iterable[TargetInstance],
        *,
        rung: int = 0,
        step: float | None = None,
        checkpoint: float | None = None,
        attempt: tuple[int, int] | None = None,
        account: int | None = None,
        interrupted_since: float | None = None,
    ) -> int:
        """Records an action on `key` before any part of it is performed. Returns its id.

        `step` and `checkpoint` are the progress of its run, if known; `attempt` is which of its
        target's attempts it is, from 1, and how many there may be; `account` that of the target.
        `interrupted_since` (Unix seconds): the last new step of the run, while it makes none.
        """
        count, limit = attempt or (None, None)
        instances = sorted(processes, key=lambda one: (isinstance(one, str), one))
        with self._transaction() as (db, now):
            use_approval(db, incident)
            if interrupted_since is not None:
                join_outage(db, incident, key, interrupted_since)
            # The next decision is recorded even if it equals the one before this action.
            db.execute("UPDATE incident SET last_decision = NULL WHERE id = ?", (incident,))
            action = db.execute(
                "INSERT INTO action (incident, run, worker, kind, intent_at, processes, rung, step,"
                " checkpoint, attempt, attempts, account)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(incident, *key, kind, now, json.dumps(instances), rung, step, checkpoint),
                    *(count, limit, account),
                ),
            ).lastrowid
            if action is None:
                raise JournalError("SQLite returned no id for the action")
            pids = [one if isinstance(one, str) else one.pid for one in instances]
            facts = {"doing": kind, "processes": pids, "rung": rung}
            if attempt is not None:
                query = f"SELECT ({RESTARTS}) FROM action WHERE id = ?"  # noqa: S608 - our own words
                (restarts,) = db.execute(query, (action,)).fetchone()
                facts |= {"attempt": count, "attempts": limit, "restarts": restarts}
            write_event(db, now, "intent", incident, action, **facts)
            return action

    def record_page(self, incident: int, key: WorkerKey, rung: int, detail: str = "") -> None:
        """Records a notification of the on-call about a worker; this completes the rung."""
        with self._transaction() as (db, now):
            use_approval(db, incident)
            db.execute("UPDATE incident SET last_decision = NULL WHERE id = ?", (incident,))
            action = db.execute(
                "INSERT INTO action (incident, run, worker, kind, intent_at, processes, rung,"
                " last_step, result, result_at, outcome, outcome_at)"
                " VALUES (?, ?, ?, 'notify', ?, '[]', ?, 'paged', 'done', ?, 'not_healed', ?)",
                (incident, *ON_CALL, now, rung, now, now),
            ).lastrowid
            increment_counter(db, "actions", [*ON_CALL, "notify", "done"])
            facts = {**key._asdict(), "rung": rung} | ({"detail": detail} if detail else {})
            write_event(db, now, "paged", incident, action, **facts)

    def record_step(self, action: int, step: str, **facts: Any) -> None:
        """Records the next step of an action, before it is performed.

        A deferred stop is an event only: the action has not changed anything yet.
        """
        with self._transaction() as (db, now):
            if step != "stop_deferred":
                db.execute("UPDATE action SET last_step = ? WHERE id = ?", (step, action))
            write_event(db, now, step, incident_of(db, action), action, **facts)

    def record_result(self, action: int, result: Result, **facts: Any) -> None:
        """Records the result of an action, before its effect is verified."""
        with self._transaction() as (db, now):
            row = db.execute(
                "UPDATE action SET result = ?, result_at = ? WHERE id = ?"
                " RETURNING run, worker, kind",
                (result, now, action),
            ).fetchone()
            increment_counter(db, "actions", [*row, result])
            write_event(db, now, "result", incident_of(db, action), action, result=result, **facts)

    def record_not_attempted(self, action: int, why: str) -> None:
        """Records that an action did nothing, so that it does not count as an attempt."""
        with self._file.transaction() as db:
            db.execute("UPDATE action SET last_step = NULL WHERE id = ?", (action,))
        self.record_result(action, "interrupted", found=why)

    def record_outcome(self, action: int, outcome: Outcome, **facts: Any) -> None:
        with self._transaction() as (db, now):
            row = db.execute(
                "UPDATE action SET outcome = ?, outcome_at = ? WHERE id = ? RETURNING run, worker",
                (outcome, now, action),
            ).fetchone()
            increment_counter(db, "outcomes", [*row, outcome])
            if outcome == "healed":
                facts |= recurrence_facts(db, action, now, facts)
            write_event(
                db, now, "outcome", incident_of(db, action), action, outcome=outcome, **facts
            )

    # retention and state

    def prune(self, limits: JournalLimits, counted: float, now: float | None = None) -> None:
        """Deletes records beyond `limits` at `now`, in several transactions.

        Actions of the last `counted` seconds are kept, for the budgets.
        """
        at = self._clock() if now is None else now
        prune(self._file, limits, now=at, counted=counted, last_actions=LAST_ACTIONS)

    def record_clock_jump(self, seconds: float, counted: float) -> None:
        """Records that the clock was set forward by `seconds`, or backward.

        Moves the times of the last `counted` seconds by as much: they are as long ago as before.
        """
        with self._transaction() as (db, now):
            move_times(db, now - seconds - counted, now - seconds, seconds)
            write_event(db, now, "clock_set", None, None, seconds=round(seconds))

    def bounded_time(self, since_boot: float, boot: str) -> float:
        """Returns the time of day, at most a day later than it can be if the host never rested.

        `since_boot`: seconds since the boot that `boot` identifies. A wrong clock gains a day at
        most in each boot, however often the program is started.
        """
        with self._transaction() as (db, now):
            return bounded_time(db, now, since_boot, boot)

    def move_future_times(self) -> int:
        """Moves times that are over a day in the future to now; returns the number of actions.

        They were recorded while the clock was wrong, and budgets would be blocked until then.
        """
        with self._transaction() as (db, now):
            return move_future_times(db, now)

    def set_worker_finished(self, key: WorkerKey, *, finished: bool) -> None:
        """Records whether a worker that an action started has since exited with status 0."""
        name = f"{FINISHED_PREFIX}{key.run}/{key.worker}"
        with self._transaction() as (db, now):
            if not finished:
                db.execute("DELETE FROM timestamp WHERE name = ?", (name,))
            elif db.execute("INSERT OR IGNORE INTO timestamp VALUES (?, ?)", (name, now)).rowcount:
                facts = {"run": key.run, "worker": key.worker}
                write_event(db, now, "finished", None, None, **facts)

    def keep_evidence(self, incident: int, action: int | None, kind: str, content: str) -> None:
        """Stores evidence as JSON, once for each action and kind of an incident.

        Deletes evidence older than EVIDENCE_SECONDS.
        """
        with self._transaction() as (db, now):
            db.execute("DELETE FROM evidence WHERE at < ?", (now - EVIDENCE_SECONDS,))
            db.execute(
                "INSERT OR IGNORE INTO evidence (incident, action, kind, at, content)"
                " VALUES (?, ?, ?, ?, ?)",
                (incident, action, kind, now, content),
            )

    def save_descendants(
        self, boot: str, descendants_by_root: Mapping[WorkerKey, DescendantsByRoot]
    ) -> None:
        """Replaces the stored descendants of each root process of these targets.

        `boot` identifies the boot in which the pids and start times are valid.
        """
        with self._file.transaction() as db:
            for key, trees in descendants_by_root.items():
                db.execute("DELETE FROM descendant WHERE run = ? AND worker = ?", key)
                db.executemany(
                    "INSERT INTO descendant VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        (*key, boot, *root, *member)
                        for root, members in trees.items()
                        for member in members
                    ),
                )
