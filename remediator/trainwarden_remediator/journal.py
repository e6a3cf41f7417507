"""The durable record: what was heard, decided, meant, done and found afterwards.

An intent is committed before the act it announces, so that after a crash at any point it is known
what may have been begun. The same file is the audit log, and what budgets are counted from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alerts import Alert
from trainwarden_remediator.deciding import write_decision
from trainwarden_remediator.decision import Decision, Incident, Result
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.hearing import hear_firing, hear_resolved
from trainwarden_remediator.journalfile import JournalFile
from trainwarden_remediator.journalpruning import prune
from trainwarden_remediator.journalsettings import JournalLimits
from trainwarden_remediator.latch import reopen
from trainwarden_remediator.notifying.outbox import Outbox
from trainwarden_remediator.records import (
    FINISHED,
    Outcome,
    add_to_tally,
    incident_of,
    write_event,
)
from trainwarden_remediator.subjects import Subject
from trainwarden_remediator.targets import PERSON
from trainwarden_remediator.telling import LAST_ACTIONS, Kin, Telling

EVIDENCE_SECONDS = 90 * 86400.0
"""How long evidence is kept."""


class Journal(Telling):
    """What is recorded, in a file that is locked to one remediator.

    Every method commits before it returns, or raises JournalError having changed nothing. All may
    block on the disk and may be called from any thread.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        super().__init__(JournalFile(path), clock=clock)
        self.outbox = Outbox(self._file, clock=clock)
        """What a person is to be told of."""

    def close(self) -> None:
        self._file.close()

    # hearing

    def hear(
        self, alerts: Sequence[Alert], *, heartbeat: bool = False, counted: bool = True
    ) -> None:
        """Record a delivery. An alert heard before, by fingerprint and start, is the same one.

        `heartbeat`: it also carried the alert that always fires. `counted`: it was received.
        """
        now = self._clock()
        with self._file.transaction() as db:
            if heartbeat:
                db.execute("INSERT OR REPLACE INTO moment VALUES ('watchdog', ?)", (now,))
            if counted:
                # Once for all of them: in a storm, each write takes its time.
                statuses = Counter("firing" if alert.firing else "resolved" for alert in alerts)
                for status, count in statuses.items():
                    add_to_tally(db, "alerts_received", [status], count)
            for alert in alerts:
                if alert.firing:
                    hear_firing(db, alert, now)
                else:
                    hear_resolved(db, alert, now)

    def note(self, kind: str, **facts: Any) -> None:
        """Record something that is about no incident."""
        now = self._clock()
        with self._file.transaction() as db:
            write_event(db, now, kind, None, None, **facts)

    # deciding

    def decided(self, incident: Incident, decision: Decision) -> bool:
        """Record a decision; one that says what the last one said is not written again.

        Returns whether it was news.
        """
        return self.all_decided([(incident, decision)]) > 0

    def all_decided(self, decisions: Iterable[tuple[Incident, Decision]]) -> int:
        """As `decided`, all at once: in a storm each write of its own would take its time.

        Returns how many were news.
        """
        now = self._clock()
        with self._file.transaction() as db:
            return sum([write_decision(db, now, *one) for one in decisions])

    def reopen(self) -> bool:
        """Let the breaker allow actions again, counted anew. Returns whether it was latched."""
        now = self._clock()
        with self._file.transaction() as db:
            return reopen(db, now)

    # acting

    def mark_of(self, key: WorkerKey, action: int) -> str:
        """What tells that which this action starts from all else.

        Also from what another journal's action of the same number has started, such as that of one
        that was lost.
        """
        return f"{key.run}/{key.worker}/{action}/{self._file.name}"

    def intend(
        self,
        incident: int,
        key: WorkerKey,
        kind: str,
        processes: Iterable[Subject],
        *,
        rung: int = 0,
        step: float | None = None,
        checkpoint: float | None = None,
    ) -> int:
        """Announce an action on `key` before any part of it is done. Returns its id.

        `step` and `checkpoint` say how far its run has come, where that is known.
        """
        now = self._clock()
        subjects = sorted(processes, key=lambda one: (isinstance(one, str), one))
        with self._file.transaction() as db:
            # What is decided after this action is news again, also when it reads the same.
            db.execute("UPDATE incident SET said = NULL WHERE id = ?", (incident,))
            action = db.execute(
                "INSERT INTO action (incident, run, worker, kind, intent_at, processes, rung, step,"
                " checkpoint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (incident, *key, kind, now, json.dumps(subjects), rung, step, checkpoint),
            ).lastrowid
            if action is None:
                raise JournalError("SQLite gave the action no number")
            told = [one if isinstance(one, str) else one.pid for one in subjects]
            write_event(db, now, "intent", incident, action, doing=kind, processes=told, rung=rung)
            return action

    def asked(self, incident: Incident, rung: int) -> None:
        """Record that a person is to be called: this rung of its ladder is done by that."""
        now = self._clock()
        with self._file.transaction() as db:
            db.execute("UPDATE incident SET said = NULL WHERE id = ?", (incident.id,))
            action = db.execute(
                "INSERT INTO action (incident, run, worker, kind, intent_at, processes, rung,"
                " reached, result, result_at, outcome, outcome_at)"
                " VALUES (?, ?, ?, 'notify', ?, '[]', ?, 'asked', 'done', ?, 'not_healed', ?)",
                (incident.id, *PERSON, now, rung, now, now),
            ).lastrowid
            add_to_tally(db, "actions", [*PERSON, "notify", "done"])
            facts = {"run": incident.run, "worker": incident.worker, "rung": rung}
            write_event(db, now, "asked", incident.id, action, **facts)

    def reached(self, action: int, step: str, **facts: Any) -> None:
        """Announce the next step of an action, before it is taken."""
        now = self._clock()
        with self._file.transaction() as db:
            db.execute("UPDATE action SET reached = ? WHERE id = ?", (step, action))
            write_event(db, now, step, incident_of(db, action), action, **facts)

    def finished(self, action: int, result: Result, **facts: Any) -> None:
        """Record what came of an action itself, before its effect is verified."""
        now = self._clock()
        with self._file.transaction() as db:
            row = db.execute(
                "UPDATE action SET result = ?, result_at = ? WHERE id = ?"
                " RETURNING run, worker, kind",
                (result, now, action),
            ).fetchone()
            add_to_tally(db, "actions", [*row, result])
            write_event(db, now, "result", incident_of(db, action), action, result=result, **facts)

    def let_be(self, action: int, why: str) -> None:
        """Record that nothing was done after all: it counts as no attempt."""
        with self._file.transaction() as db:
            db.execute("UPDATE action SET reached = NULL WHERE id = ?", (action,))
        self.finished(action, "interrupted", found=why)

    def verified(self, action: int, outcome: Outcome, **facts: Any) -> None:
        """Record whether an action helped."""
        now = self._clock()
        with self._file.transaction() as db:
            row = db.execute(
                "UPDATE action SET outcome = ?, outcome_at = ? WHERE id = ? RETURNING run, worker",
                (outcome, now, action),
            ).fetchone()
            add_to_tally(db, "outcomes", [*row, outcome])
            write_event(
                db, now, "outcome", incident_of(db, action), action, outcome=outcome, **facts
            )

    # remembering

    def prune(self, limits: JournalLimits, counted: float) -> None:
        """Let go of what goes beyond `limits`; budgets look back `counted` seconds.

        In several steps, of which each commits.
        """
        now = self._clock()
        prune(self._file, limits, now=now, counted=counted, last_actions=LAST_ACTIONS)

    def ended_by_itself(self, key: WorkerKey, *, finished: bool) -> None:
        """Keep whether what an action started for `key` has ended with status 0 since."""
        now = self._clock()
        name = f"{FINISHED}{key.run}/{key.worker}"
        with self._file.transaction() as db:
            if not finished:
                db.execute("DELETE FROM moment WHERE name = ?", (name,))
            elif db.execute("INSERT OR IGNORE INTO moment VALUES (?, ?)", (name, now)).rowcount:
                facts = {"run": key.run, "worker": key.worker}
                write_event(db, now, "finished", None, None, **facts)

    def keep_evidence(self, incident: int, action: int | None, kind: str, content: str) -> None:
        """Keep how the box stood, as JSON; for each occasion of an incident only once.

        What is older than EVIDENCE_SECONDS is let go.
        """
        with self._file.transaction() as db:
            db.execute("DELETE FROM evidence WHERE at < ?", (self._clock() - EVIDENCE_SECONDS,))
            db.execute(
                "INSERT OR IGNORE INTO evidence (incident, action, kind, at, content)"
                " VALUES (?, ?, ?, ?, ?)",
                (incident, action, kind, self._clock(), content),
            )

    def remember(self, boot: str, kin: Mapping[WorkerKey, Kin]) -> None:
        """Keep, for each of these targets, which processes stood below which root; no others.

        `boot` is what the pids and start times are counted in.
        """
        with self._file.transaction() as db:
            for key, trees in kin.items():
                db.execute("DELETE FROM member WHERE run = ? AND worker = ?", key)
                db.executemany(
                    "INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        (*key, boot, *root, *member)
                        for root, members in trees.items()
                        for member in members
                    ),
                )
