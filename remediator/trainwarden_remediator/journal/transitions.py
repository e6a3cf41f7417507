"""State transitions in the journal: of incidents by alerts and decisions, and of the breaker."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.journal.rows import RESUMED_PREFIX, increment_counter, write_event
from trainwarden_remediator.model import (
    BLOCKED_SECONDS,
    BLOCKING,
    BREAKER_OPENED,
    BREAKER_RESET,
    CLOSED,
    GIVEN_UP,
    NEEDS_OPERATOR,
    RESTART_LOOP,
    STALL_LASTS,
    WORKER_GONE,
    Decision,
    Incident,
)


def upsert_firing(db: sqlite3.Connection, alert: Alert, now: float) -> None:
    """Creates the incident of a firing alert, or updates it and reopens it if it was closed.

    `starts_at` becomes that of the alert, if it goes on with an incident that was not healed.
    """
    known = (alert.fingerprint, alert.starts_at)
    row = db.execute(
        "SELECT id, resolved_at, closed FROM incident WHERE fingerprint = ? AND starts_at = ?",
        known,
    ).fetchone()
    fires_again = row is None and (row := _unhealed_before(db, alert)) is not None
    if row is not None:
        db.execute(
            "UPDATE incident SET starts_at = ?, last_received_at = ?, resolved_at = NULL,"
            " blocked_since = CASE WHEN coalesce(resolved_at, last_received_at) >= ?"
            " THEN blocked_since END WHERE id = ?",
            (alert.starts_at, now, alert.starts_at - BLOCKED_SECONDS, row["id"]),
        )
        # Neither proves that the condition has cleared: Alertmanager also resolves an alert that
        # Prometheus could not repeat in time, and it may have been down itself.
        if fires_again or row["resolved_at"] is not None or row["closed"] in CLOSED:
            if row["closed"] in CLOSED:
                db.execute(
                    "UPDATE incident SET closed = NULL, closed_at = NULL, last_decision ="
                    " NULL WHERE id = ?",
                    (row["id"],),
                )
            write_event(db, now, "alert", row["id"], None, alert=alert.name, again=True)
        return
    _resolve(db, alert, now, "starts_at < ? AND closed IS NOT 'alert_stale'")
    incident = db.execute(
        "INSERT INTO incident (fingerprint, starts_at, alert, run, worker, remediation, labels,"
        " annotations, first_received_at, last_received_at, part_of)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *known,
            alert.name,
            alert.run,
            alert.worker,
            alert.remediation,
            json.dumps(dict(alert.labels)),
            json.dumps(dict(alert.annotations)),
            now,
            now,
            _outage_of(db, alert),
        ),
    ).lastrowid
    write_event(db, now, "alert", incident, None, alert=alert.name, started=alert.starts_at)


SAME_OUTAGE_SECONDS = 600.0
"""An alert that fires again within this time after an end without healing is the same incident:
it ends for a moment while a process runs that soon fails, or while scrapes are lost."""


_UNHEALED = {("done", "not_healed"), ("failed", "not_healed"), ("failed", None)}
"""Result and outcome of an action that has ended without healing."""


IS_RESUMED = (
    "EXISTS (SELECT 1 FROM event WHERE kind = 'resume' AND at >= incident.closed_at"
    " AND coalesce(json_extract(facts, '$.run'), '') IN ('', coalesce(target_run, run))"
    " AND coalesce(json_extract(facts, '$.worker'), '') IN ('', coalesce(target_worker, worker))"
    " AND NOT EXISTS (SELECT 1 FROM json_each(facts, '$.left') WHERE value = incident.id))"
)
"""Matches an incident that an operator has resumed since it was given up. A `resume` of another run
or worker, or that left the incident given up, does not count."""


def _unhealed_before(db: sqlite3.Connection, alert: Alert) -> sqlite3.Row | None:
    """Returns the incident that an alert of a later start goes on with, or None.

    That is the last one of the alert, if it was given up, its last action did not heal, or the
    stall that it reports lasts: a new one would begin at the first rung again, and be another
    outage in the report. Also if it waited for an operator: lost scrapes end an alert, too.
    """
    last: sqlite3.Row | None = db.execute(
        "SELECT id, resolved_at, closed, last_decision, blocked_since,"
        " coalesce(resolved_at, last_received_at) AS ended_at"
        " FROM incident WHERE fingerprint = ? AND starts_at < ? ORDER BY starts_at DESC LIMIT 1",
        (alert.fingerprint, alert.starts_at),
    ).fetchone()
    if last is None:
        return None
    if last["closed"] is None and last["resolved_at"] and last["last_decision"] in STALL_LASTS:
        return last
    if last["ended_at"] <= alert.starts_at - SAME_OUTAGE_SECONDS:
        return None
    if last["closed"] in GIVEN_UP:
        resumed = f"SELECT 1 FROM incident WHERE id = ? AND {IS_RESUMED}"  # noqa: S608 - our own words
        return None if db.execute(resumed, (last["id"],)).fetchone() else last
    tried = db.execute(
        "SELECT result, outcome FROM action WHERE incident = ? AND kind != 'notify'"
        " ORDER BY id DESC LIMIT 1",
        (last["id"],),
    ).fetchone()
    if tried is None:
        return last if last["blocked_since"] is not None else None
    # An alert that begins during an action is decided apart, once that has ended (harm 26).
    return last if (tried["result"], tried["outcome"]) in _UNHEALED else None


def _outage_of(db: sqlite3.Connection, alert: Alert) -> int | None:
    """Returns the incident that a new alert is a part of, or None.

    A worker that fails at each start is one outage: its process is gone, and its restarts are a
    loop. So is what the restart of a server looks like meanwhile, and a full disk. Each alert is
    decided apart.
    """
    if alert.name == RESTART_LOOP:
        # The incident whose restarts are the loop; after a healing it is over.
        query = (
            "SELECT coalesce(part_of, incident.id), outcome FROM action"
            " JOIN incident ON incident.id = incident"
            " WHERE action.run = :run AND action.worker = :worker"
            " AND kind != 'notify' AND intent_at > :since ORDER BY action.id DESC LIMIT 1"
        )
    elif alert.name == WORKER_GONE:
        query = (
            "SELECT coalesce(part_of, id), NULL AS outcome FROM incident"
            " WHERE alert = :loop AND run = :run AND worker = :worker"
            " AND coalesce(resolved_at, last_received_at) > :since ORDER BY id DESC LIMIT 1"
        )
    elif alert.labels.get("path"):
        # A full disk is an alert in bytes, and another one in checkpoints.
        query = (
            "SELECT coalesce(part_of, id), NULL AS outcome FROM incident"
            " WHERE alert = :alert AND run = :run AND worker = :worker"
            " AND json_extract(labels, '$.path') = :path AND last_received_at > :since"
            " AND coalesce(resolved_at, 1e999) >= :at ORDER BY id DESC LIMIT 1"
        )
    elif alert.remediation:
        # The incident whose action the alert began during, if one playbook answers both. An action
        # that was interrupted has no outcome.
        query = (
            "SELECT coalesce(part_of, incident.id), NULL AS outcome FROM action"
            " JOIN incident ON incident.id = incident"
            " WHERE action.run = :run AND action.worker = :worker AND remediation = :remediation"
            " AND kind != 'notify' AND intent_at BETWEEN :since AND :at"
            " AND coalesce(CASE WHEN result IS 'interrupted' THEN result_at ELSE outcome_at END,"
            " 1e999) >= :at ORDER BY action.id DESC LIMIT 1"
        )
    else:
        return None
    since = alert.starts_at - SAME_OUTAGE_SECONDS
    values = {"run": alert.run, "worker": alert.worker, "since": since, "loop": RESTART_LOOP}
    values |= {"remediation": alert.remediation, "at": alert.starts_at}
    values |= {"alert": alert.name, "path": alert.labels.get("path")}
    found = db.execute(query, values).fetchone()
    return None if found is None or found["outcome"] == "healed" else found[0]


def join_outage(
    db: sqlite3.Connection, incident: int, key: WorkerKey, interrupted_since: float
) -> None:
    """Makes an incident, on whose target an action is about to begin, part of an earlier outage.

    That is the outage of the last action on that target, if it had the same playbook, did not heal,
    and the run has made no new step since before it (`interrupted_since`, Unix seconds): its alert
    ended only because a restart begins the limit of a stall again. Decisions stay apart.
    """
    last = db.execute(
        "SELECT coalesce(other.part_of, other.id) AS outage, intent_at, result, outcome"
        " FROM action JOIN incident AS other ON other.id = action.incident"
        " JOIN incident AS own ON own.id = ? AND own.remediation = other.remediation"
        " WHERE action.run = ? AND action.worker = ? AND kind != 'notify'"
        " ORDER BY action.id DESC LIMIT 1",
        (incident, *key),
    ).fetchone()
    if (
        last is not None
        and interrupted_since <= last["intent_at"]
        and (last["result"], last["outcome"]) in _UNHEALED
    ):
        db.execute(
            "UPDATE incident SET part_of = ? WHERE ? IN (id, part_of) AND id != ?",
            (last["outage"], incident, last["outage"]),
        )


def mark_resolved(db: sqlite3.Connection, alert: Alert, now: float) -> None:
    _resolve(db, alert, now, "starts_at <= ?")


def _resolve(db: sqlite3.Connection, alert: Alert, now: float, which: str) -> None:
    """Marks the incidents of an alert as resolved; `which` compares with its start, in SQL.

    An alert fires once at a time, so that a later start of it proves the end of the earlier ones:
    where Alertmanager, Prometheus or this program was restarted meanwhile, that end never arrives.
    """
    rows = db.execute(
        "UPDATE incident SET resolved_at = ?, last_received_at = CASE WHEN starts_at = ?"  # noqa: S608 - our own words
        f" THEN ? ELSE last_received_at END WHERE fingerprint = ? AND {which}"
        " AND resolved_at IS NULL RETURNING id",
        (now, alert.starts_at, now, alert.fingerprint, alert.starts_at),
    ).fetchall()
    for row in rows:
        write_event(db, now, "resolved", row[0], None, alert=alert.name)


def open_breaker(db: sqlite3.Connection, at: float, incident: int, detail: str) -> None:
    """Opens the circuit breaker because of that incident; records the event once."""
    if db.execute("INSERT OR IGNORE INTO timestamp VALUES (?, ?)", (BREAKER_OPENED, at)).rowcount:
        write_event(db, at, "breaker_opened", incident, None, detail=detail)


def reset_breaker(db: sqlite3.Connection, at: float) -> bool:
    """Closes the circuit breaker and restarts its counts. Returns whether it was open."""
    db.execute("INSERT OR REPLACE INTO timestamp VALUES (?, ?)", (BREAKER_RESET, at))
    if not db.execute("DELETE FROM timestamp WHERE name = ?", (BREAKER_OPENED,)).rowcount:
        return False
    # The next decision of each blocked incident is recorded again, and may open the breaker again.
    db.execute(
        "UPDATE incident SET last_decision = NULL WHERE closed IS NULL AND"
        " last_decision = 'wait breaker_open'"
    )
    write_event(db, at, "breaker_reset", None, None)
    return True


RESUME_RECORD_SECONDS = 30 * 86_400.0
"""How long a resume is remembered; older actions count against no budget."""


def given_up(
    db: sqlite3.Connection, run: str, worker: str, received_since: float
) -> dict[int, WorkerKey]:
    """Returns the firing incidents that were given up, each with its target.

    Only those with a target on `run` and `worker`, where given; else only those whose alert was
    received after `received_since` (Unix seconds): the end of an older one may never have arrived.
    """
    rows = db.execute(
        "SELECT id, coalesce(target_run, run) AS run, coalesce(target_worker, worker) AS worker"
        " FROM incident WHERE resolved_at IS NULL AND last_received_at >= ?"
        " AND closed IN (SELECT value FROM json_each(?)) ORDER BY id",
        (0.0 if run else received_since, json.dumps(sorted(GIVEN_UP))),
    ).fetchall()
    found = {row["id"]: WorkerKey(row["run"], row["worker"]) for row in rows}
    return {
        number: key
        for number, key in found.items()
        if run in ("", key.run) and worker in ("", key.worker)
    }


def reopen(db: sqlite3.Connection, at: float, incidents: Mapping[int, WorkerKey]) -> None:
    """Opens incidents that were given up, with all attempts and rungs available."""
    db.execute(
        "DELETE FROM timestamp WHERE name GLOB ? AND at < ?",
        (f"{RESUMED_PREFIX}*", at - RESUME_RECORD_SECONDS),
    )
    for number, key in incidents.items():
        db.execute(
            "UPDATE incident SET closed = NULL, closed_at = NULL, last_decision = NULL"
            " WHERE id = ?",
            (number,),
        )
        for subject in (str(number), "/".join(key)):
            name = f"{RESUMED_PREFIX}{subject}"
            db.execute("INSERT OR REPLACE INTO timestamp VALUES (?, ?)", (name, at))


def write_decision(
    db: sqlite3.Connection, now: float, incident: Incident, decision: Decision
) -> bool:
    """Records a decision unless it equals the previous one. Returns whether it was recorded."""
    closed = decision.reason if decision.final else None
    target = decision.target.key if decision.target else (None, None)
    changed = db.execute(
        "UPDATE incident SET last_decision = ?, last_detail = ?, last_decided_at = ?, closed = ?,"
        " closed_at = ?,"
        " blocked_since = CASE WHEN ? THEN coalesce(blocked_since, ?)"
        " WHEN ? THEN blocked_since END,"
        " target_run = coalesce(?, target_run),"
        " target_worker = coalesce(?, target_worker) WHERE id = ? AND last_decision IS NOT ?",
        (
            *(decision.text, decision.detail, now, closed, now if closed else None),
            *(decision.reason in BLOCKING, now, decision.reason in CLOSED),
            *(*target, incident.id, decision.text),
        ),
    ).rowcount
    if not changed:
        return False
    increment_counter(db, "decisions", [decision.verdict, decision.reason])
    facts: dict[str, Any] = {"verdict": decision.verdict, "reason": decision.reason}
    if decision.detail:
        facts["detail"] = decision.detail
    if decision.target and target != (incident.run, incident.worker):
        facts |= {"run": target[0], "worker": target[1]}
    write_event(db, now, "decision", incident.id, None, **facts)
    if decision.reason == "breaker_open":
        open_breaker(db, now, incident.id, decision.detail)
    if decision.reason in GIVEN_UP | NEEDS_OPERATOR:
        known = decision.target.key if decision.target else (incident.run, incident.worker)
        increment_counter(db, "outcomes", [*known, "gave_up"])
    return True
