"""The queue of notifications, stored in the journal: each is delivered exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.notifications import (
    LASTING,
    URGENT,
    NotificationEvent,
    NotifySettings,
    Receiver,
)
from trainwarden_remediator.config.restart_methods.run import NEVER_WORKS
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.database import JournalFile
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import (
    EVENTS,
    Event,
    as_event,
    increment_counter,
    write_event,
)
from trainwarden_remediator.model import (
    BLOCKED_SECONDS,
    BLOCKING,
    RESTART_LOOP,
    Decision,
    Reason,
    Verdict,
)
from trainwarden_remediator.notify.classification import (
    deduplication_key,
    notification_event_of,
    subject_of,
)
from trainwarden_remediator.notify.held_back import ACTED_AGAIN, held_back, reported_healing
from trainwarden_remediator.notify.incident_facts import read_attempts, read_fault, read_healed
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.policy.hold_text import end_soon

MAX_QUEUE = 200
"""The maximum number of pending notifications of one receiver; beyond it, the least urgent and
oldest are dropped."""

EVIDENCE_SECONDS = 3.0
"""How long a notification waits for the evidence of its incident, which takes up to two seconds."""

EVENTS_PER_BATCH = 500
"""The number of journal events to process in one step."""

_OPPOSITES = {"unhandled": "unhandled_ended", "unhandled_ended": "unhandled"}

_STATE = (
    "cause.id IS NOT NULL AND cause.resolved_at IS NULL AND CASE own.kind WHEN 'decision'"
    " THEN cause.last_decision = json_extract(own.facts, '$.verdict') || ' '"
    " || json_extract(own.facts, '$.reason')"
    " ELSE NOT EXISTS (SELECT 1 FROM action WHERE incident = own.incident"
    " AND outcome = 'healed' AND outcome_at >= own.at) END AS still_true,"
    " EXISTS (SELECT 1 FROM event AS consent WHERE consent.kind = 'approved'"
    " AND consent.incident = own.incident AND own.action IS NOT NULL) AS approved,"
    " (SELECT step FROM action WHERE id = own.action) AS step"
)
"""Whether a notification's own alert still fires and is as it reports, whether an operator approved
its action, and the step of the run at that action."""

LOOP_PAUSE_SECONDS = 60.0
"""After such a pause a restart loop is another one, and not the same that comes and goes; and what
calls so long after an operator has started its worker."""

_ENDED = (
    "SELECT coalesce(max(resolved_at), 0) FROM incident WHERE run = ? AND worker = ? AND alert = ?"
)
"""Selects when an alert of a worker last ended."""

_WITH_EVIDENCE = json.dumps(["gave_up", "held_by_alert"])
"""The calls that say what the evidence of their incident shows."""

DeliveryResult = Literal["sent", "dropped", "nobody"]
"""The result of a notification; `nobody`: its receiver was removed from the configuration, or what
it says is not true any more."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue of one receiver: its length, and the time of its oldest entry (Unix seconds)."""

    pending: int
    oldest_at: float


_RESTARTED_BY_NOBODY = Decision(Verdict.WAIT, "managed_elsewhere").text
"""After a restart that did not help, and of a script that does not exist, it lasts: it is reported
at once."""


class Outbox:
    """The notifications in a journal. All methods commit or raise JournalError."""

    def __init__(
        self,
        file: JournalFile,
        *,
        clock: Callable[[], float],
        started: Callable[[WorkerKey], float] = lambda _: 0.0,
        holds: Callable[[], Sequence[Hold]] = tuple,
    ) -> None:
        """`started` returns when an operator started a worker, or the trainer of a run.

        `holds` returns the holds in force.
        """
        self._file = file
        self._clock = clock
        self._began = clock()
        self._started = started
        self._holds = holds
        self._blocked: set[tuple[int, float]] = set()
        """The incidents already seen as blocked, each with the time of that decision."""

    def collect(self, notify: NotifySettings) -> bool:
        """Creates notifications for new journal events; returns whether there may be more.

        Advances without receivers too, so that a receiver that is added later gets no old events.
        """
        # Read first: an event that is written meanwhile has a higher ID and belongs to the next
        # step.
        read = "SELECT coalesce((SELECT event FROM notice_cursor), 0)"
        after = self._file.read(read)[0][0]
        rows = self._file.read(
            f"{EVENTS} WHERE event.id > ? ORDER BY event.id LIMIT ?", (after, EVENTS_PER_BATCH)
        )
        if not rows:
            self._collect_blocked(notify)
            return False
        with self._file.transaction() as db:
            for event in map(as_event, rows):
                if (notification_event := notification_event_of(event)) is not None:
                    self._add(db, notify, event, notification_event)
            db.execute("DELETE FROM notice_cursor")
            db.execute("INSERT INTO notice_cursor VALUES (?)", (rows[-1]["id"],))
            for receiver in notify.receivers:
                self._drop_excess(db, receiver.name)
        return len(rows) == EVENTS_PER_BATCH

    def _collect_blocked(self, notify: NotifySettings) -> None:
        """Creates a notification for each alert that is blocked for too long, or for good."""
        blocked = self._file.read(
            "SELECT id, last_decided_at FROM incident WHERE closed IS NULL AND resolved_at IS NULL"
            " AND (blocked_since <= ? OR last_decision = ? AND (last_detail GLOB ? OR id IN"
            " (SELECT incident FROM action WHERE outcome = 'not_healed')))"
            " AND last_decision IN (SELECT value FROM json_each(?))",
            (
                self._clock() - BLOCKED_SECONDS,
                _RESTARTED_BY_NOBODY,
                f"{NEVER_WORKS}*",
                json.dumps([Decision(Verdict.WAIT, reason).text for reason in self._reasons()]),
            ),
        )
        known = {(row["id"], row["last_decided_at"]) for row in blocked}
        for one in known - self._blocked:
            incident, _ = one
            decision = self._file.read(
                f"{EVENTS} WHERE event.incident = ? AND event.kind = 'decision'"
                " ORDER BY event.id DESC LIMIT 1",
                (incident,),
            )
            events = [as_event(row) for row in decision]
            if any(map(self._ends_soon, events)):  # until then each poll asks again
                known.remove(one)
                continue
            with self._file.transaction() as db:
                for event in events:
                    self._add(db, notify, event, "blocked")
        self._blocked = known

    def _ends_soon(self, event: Event) -> bool:
        """Whether a decision to wait is about a hold that ends automatically within moments."""
        held = event.facts.get("reason") == "held"
        return held and end_soon(self._holds(), event.run, self._clock())

    def _reasons(self) -> Collection[Reason]:
        """Returns for which reasons an alert is blocked: the exporter may start with this program.

        An alert that waited before the start would ring for it at once.
        """
        starts = self._clock() - self._began < BLOCKED_SECONDS
        return [one for one in BLOCKING if not starts or one != "observation_failed"]

    def expire(self, notify: NotifySettings) -> None:
        """Drops expired notifications, and the ones that nobody is to get any more."""
        receivers = json.dumps([receiver.name for receiver in notify.receivers])
        without_receiver = self._file.read(
            "SELECT id FROM notice WHERE settled IS NULL"
            " AND receiver NOT IN (SELECT value FROM json_each(?))",
            (receivers,),
        )
        late = self._file.read(
            "SELECT id FROM notice WHERE settled IS NULL AND at < ?",
            (self._clock() - notify.delivery_timeout,),
        )
        overtaken = self._file.read(ACTED_AGAIN)
        if without_receiver or late or overtaken:
            held = self._held_back()
            nobodys = {row["id"] for row in (*without_receiver, *overtaken)}
            nobodys |= {row["id"] for row in late if row["id"] in held}
            with self._file.transaction() as db:
                self._settle(db, sorted(nobodys), "nobody")
                self._settle(db, [row["id"] for row in late], "dropped")

    def pending(self, receiver: str) -> tuple[Notification, ...]:
        """Returns the pending notifications of a receiver, oldest first.

        A call waits for the evidence of its incident, and what has healed of it for the call. A
        healing is held back while another alert of the same fault needs an operator.
        """
        held = self._held_back()
        evident = self._clock() - EVIDENCE_SECONDS
        rows = self._file.read(
            # Only constants are formatted into the query.
            f"SELECT notice.id AS number, occasion, cause.starts_at AS started, {_STATE}, line.*"  # noqa: S608
            f" FROM notice JOIN ({EVENTS}) AS line ON line.id = notice.event"
            " JOIN event AS own ON own.id = notice.event"
            " LEFT JOIN incident AS cause ON cause.id = own.incident"
            " WHERE settled IS NULL AND receiver = ?"
            " AND (occasion NOT IN (SELECT value FROM json_each(?)) OR notice.at <= ?"
            " OR EXISTS (SELECT 1 FROM evidence"
            " JOIN incident ON incident.id = evidence.incident"
            " WHERE line.incident IN (incident.id, part_of) AND evidence.kind != 'act'"
            " AND evidence.at >= notice.at))"
            " AND (occasion != 'healed' OR NOT EXISTS (SELECT 1 FROM notice AS call"
            " JOIN event AS other ON other.id = call.event"
            " JOIN incident ON incident.id = other.incident"
            " WHERE call.settled IS NULL AND call.receiver = notice.receiver AND call.at > ?"
            " AND call.occasion IN (SELECT value FROM json_each(?))"
            " AND line.incident IN (incident.id, part_of))) ORDER BY notice.id",
            (receiver, _WITH_EVIDENCE, evident, evident, _WITH_EVIDENCE),
        )
        rows = [row for row in rows if row["number"] not in held]
        events = [as_event(row) for row in rows]
        urgent = {row["incident"] for row in rows if row["occasion"] in URGENT} - {None}
        faults = {incident: read_fault(self._file.read, incident) for incident in urgent}
        return tuple(
            Notification(
                id=row["number"],
                receiver=receiver,
                notification_event=row["occasion"],
                event=event,
                attempts=read_attempts(self._file.read, event),
                fault=read_healed(self._file.read, event)
                if event.facts.get("outcome") == "healed"
                else faults.get(event.incident or 0, FaultFacts()),
                alert_started_at=row["started"],
                still_true=bool(row["still_true"]),
                approved=bool(row["approved"]),
                step=row["step"],
            )
            for row, event in zip(rows, events, strict=True)
        )

    def _held_back(self) -> set[int]:
        return held_back(self._file.read, self._clock())

    def settle(self, notifications: Collection[Notification], result: DeliveryResult) -> None:
        """Records the result of notifications; they leave the queue."""
        with self._file.transaction() as db:
            self._settle(db, [notification.id for notification in notifications], result)

    def record_failure(self, receiver: str, news: Mapping[str, object]) -> None:
        """Counts a failed delivery, with an event if `news` are its facts."""
        with self._file.transaction() as db:
            if news:
                write_event(db, self._clock(), "not_sent", None, None, **news)
            increment_counter(db, "notifications", [receiver, "failed"])

    def queue_states(self, receivers: Sequence[Receiver]) -> Mapping[str, QueueState | None]:
        """Returns the queue state of each receiver; None for an empty queue.

        What is held back does not wait for its receiver.
        """
        rows = self._file.read(
            "SELECT receiver, count(*) AS waiting, min(at) AS since FROM notice"
            " WHERE settled IS NULL AND id NOT IN (SELECT value FROM json_each(?))"
            " GROUP BY receiver",
            (json.dumps(sorted(self._held_back())),),
        )
        found = {row["receiver"]: QueueState(row["waiting"], row["since"]) for row in rows}
        return {receiver.name: found.get(receiver.name) for receiver in receivers}

    def _add(
        self,
        db: sqlite3.Connection,
        notify: NotifySettings,
        event: Event,
        notification_event: NotificationEvent,
    ) -> None:
        concerned = json.dumps(subject_of(event))
        # After an end the same alert is news, and after it its end. A `resume` ends no alert that
        # holds restarts.
        reset = (
            "SELECT coalesce(max(at), 0) FROM event WHERE id < ? AND (kind = ? OR kind = ?"
            " AND json_extract(facts, '$.alert', '$.run', '$.worker') = json_array(?, ?, ?))"
        )
        resume = None if notification_event == "held_by_alert" else "resume"
        opposite = _OPPOSITES.get(event.kind)
        named = event.id, resume, opposite, event.alert, event.run, event.worker
        reset_at = db.execute(reset, named).fetchone()[0]
        if event.alert == RESTART_LOOP:  # the restarts went on after the last loop
            worker = (event.run, event.worker, event.alert)
            ended_at = db.execute(_ENDED, worker).fetchone()[0]
            if event.at - ended_at >= LOOP_PAUSE_SECONDS:
                reset_at = max(reset_at, ended_at)
        started_at = self._started(WorkerKey(event.run, event.worker))
        if event.at - started_at < LOOP_PAUSE_SECONDS:  # as of a loop that starts it at each end
            started_at = 0.0

        def read(query: str, values: Sequence[object]) -> Sequence[sqlite3.Row]:
            return db.execute(query, values).fetchall()

        begun = notification_event
        for receiver in notify.receivers:
            # A receiver that only wants what has healed gets each of them.
            in_place_of = event.facts.get("outcome") == "healed"
            quiet = in_place_of and begun not in receiver.events
            notification_event = "healed" if quiet else begun
            if notification_event not in receiver.events:
                continue
            since = max(event.at - notify.repeat_interval, reset_at)
            if notification_event in URGENT:
                since = max(since, started_at, reported_healing(read, event, receiver.name))
            # An alert that resolves and fires again is a new incident, but not a new notification
            # where the first was sent.
            recent = db.execute(
                "SELECT 1 FROM notice WHERE receiver = ? AND occasion = ? AND about = ?"
                " AND at > ? AND at <= ? AND settled IS NOT 'nobody'",
                (
                    receiver.name,
                    notification_event,
                    concerned,
                    since,
                    event.at,
                ),
            ).fetchone()
            if recent is not None and notification_event in LASTING:
                continue
            db.execute(
                "INSERT OR IGNORE INTO notice (receiver, occasion, subject, about, event, at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    receiver.name,
                    notification_event,
                    deduplication_key(event),
                    concerned,
                    event.id,
                    event.at,
                ),
            )

    def _drop_excess(self, db: sqlite3.Connection, receiver: str) -> None:
        rows = db.execute(
            "SELECT id FROM notice WHERE settled IS NULL AND receiver = ? ORDER BY"
            " occasion IN (SELECT value FROM json_each(?)) DESC, id DESC LIMIT -1 OFFSET ?",
            (receiver, json.dumps(URGENT), MAX_QUEUE),
        ).fetchall()
        self._settle(db, [row["id"] for row in rows], "dropped")

    def _settle(self, db: sqlite3.Connection, ids: Sequence[int], result: DeliveryResult) -> None:
        for number in ids:
            row = db.execute(
                "UPDATE notice SET settled = ?, settled_at = ? WHERE id = ? AND settled IS NULL"
                " RETURNING receiver",
                (result, self._clock(), number),
            ).fetchone()
            if row is not None and result != "nobody":
                increment_counter(db, "notifications", [row["receiver"], result])
