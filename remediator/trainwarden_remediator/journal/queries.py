"""The queries of the journal."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.journal.approvals import MAX_PROPOSALS, PROPOSED, TARGET, Proposal
from trainwarden_remediator.journal.evidence_text import FaultFacts, fault_facts, parse_evidence
from trainwarden_remediator.journal.rows import (
    EVENTS,
    Event,
    OpenAction,
    RecordedSaveRequest,
    as_event,
    as_incident,
    as_open_action,
    as_past_action,
    as_save_request,
    as_save_result,
    recorded_alert,
)
from trainwarden_remediator.journal.transitions import IS_RESUMED, SAME_OUTAGE_SECONDS
from trainwarden_remediator.model import (
    GIVEN_UP,
    HARMLESS_KINDS,
    NEEDS_OPERATOR,
    NO_ACTION_NEEDED,
    BreakerState,
    Decision,
    Incident,
    PastAction,
    TargetInstance,
    Verdict,
)

LAST_ACTIONS = 20
"""Number of the last actions of each target that are returned regardless of their age."""

LAST_FAULTS = 20
"""Number of workers whose evidence is read for the pages: a piece of it has up to 32 KiB."""

DescendantsByRoot = Mapping[Identity, frozenset[Identity]]
"""The descendants of each root process of a target, including the root."""

_UNOWNED = json.dumps(
    [Decision(Verdict.REFUSE, reason).text for reason in ("unknown_playbook", "unknown_target")]
)
IsStopped = Callable[[str, str], bool]
"""Whether an operator stopped a worker, or without a worker the run: see Setup."""
_NEEDS_OPERATOR = [Decision(Verdict.REFUSE, reason).text for reason in sorted(NEEDS_OPERATOR)]

_ACTION_COLUMNS = (
    "id, incident, run, worker, kind, intent_at, outcome IS 'healed' AS healed, rung, step,"
    " checkpoint, result, result_at, attempt, attempts, account,"
    " CASE WHEN result IS 'interrupted' THEN result_at ELSE outcome_at END AS ended_at,"
    " (SELECT alert FROM incident AS cause WHERE cause.id = action.incident) AS alert"
)
_NO_EFFECT = "(result IS 'interrupted' AND last_step IS NULL)"
"""Matches an action that was interrupted before its first step and changed nothing."""

RESTARTS = (
    "SELECT count(*) FROM action AS earlier WHERE earlier.run = action.run"
    " AND earlier.worker = action.worker AND earlier.kind = action.kind AND earlier.id <= action.id"
    " AND earlier.intent_at > action.intent_at - 86400"
    " AND (earlier.id = action.id OR earlier.last_step IS NOT NULL"
    " OR earlier.result IS NOT 'interrupted')"
)
"""Counts the actions on the same worker within a day, up to an action."""


_GIVEN_UP = (
    "SELECT coalesce(target_run, run), coalesce(target_worker, worker),"
    " max(max(coalesce(closed_at, last_decided_at, 0), starts_at))"
)
"""Selects each target that needs an operator, and when it last came to that: when it was given up,
or when its alert fired again since."""


class JournalReader:
    """Reads the journal. Every method may block, and may raise JournalError.

    `read` returns the rows of a query, with its values.
    """

    def __init__(
        self, read: Callable[..., Sequence[sqlite3.Row]], *, clock: Callable[[], float]
    ) -> None:
        self._read = read
        self._clock = clock

    def open_incidents(self, *, unowned_received_before: float = math.inf) -> tuple[Incident, ...]:
        """Returns the open incidents, the oldest first.

        A firing incident without playbook or target is included only if it was last received before
        `unowned_received_before` (Unix seconds), because there may be any number of these.
        """
        rows = self._read(
            "SELECT * FROM incident WHERE closed IS NULL AND (last_received_at < ?"
            " OR last_decision IS NULL OR last_decision NOT IN (SELECT value FROM json_each(?))"
            " OR resolved_at IS NOT NULL OR id IN (SELECT incident FROM action))"
            " ORDER BY starts_at, id",
            (unowned_received_before, _UNOWNED),
        )
        return tuple(as_incident(row) for row in rows)

    def first_incidents(self, count: int) -> tuple[Incident, ...]:
        """Returns the open incidents of the `count` oldest outages."""
        rows = self._read(
            # Sorted without their labels, because there may be thousands.
            "SELECT * FROM incident WHERE closed IS NULL AND coalesce(part_of, id) IN"
            " (SELECT coalesce(part_of, id) AS outage FROM incident WHERE closed IS NULL"
            " GROUP BY outage ORDER BY min(starts_at), outage LIMIT ?) ORDER BY starts_at, id",
            (count,),
        )
        return tuple(as_incident(row) for row in rows)

    def faults(self) -> Mapping[WorkerKey, FaultFacts]:
        """Returns what the newest evidence shows of each worker whose alert has not resolved.

        Only the last ones, LAST_FAULTS at most.
        """
        rows = self._read(
            "SELECT run, worker, max(evidence.id) AS newest, at, content FROM evidence"
            " JOIN incident ON incident.id = incident"
            " WHERE resolved_at IS NULL AND kind != 'end' GROUP BY run, worker"
            " ORDER BY newest DESC LIMIT ?",
            (LAST_FAULTS,),
        )
        return {
            WorkerKey(row["run"], row["worker"]): replace(
                fault_facts(parse_evidence(row["content"])), at=row["at"]
            )
            for row in rows
        }

    def count_open(self) -> int:
        """Returns the number of outages with an open incident."""
        outages = "SELECT count(DISTINCT coalesce(part_of, id)) FROM incident WHERE closed IS NULL"
        return int(self._read(outages)[0][0])

    def breaker(self) -> BreakerState:
        return BreakerState.from_timestamps(self.timestamps())

    def open_actions(self) -> tuple[OpenAction, ...]:
        """Returns the actions without an outcome: in progress, or interrupted by a crash."""
        rows = self._read(
            "SELECT action.*, remediation FROM action JOIN incident ON incident.id = incident"
            " WHERE outcome IS NULL AND result IS NOT 'interrupted' ORDER BY action.id"
        )
        return tuple(as_open_action(row) for row in rows)

    def oldest_action(self) -> float | None:
        """Returns the intent time of the oldest open action (Unix seconds), or None."""
        (row,) = self._read(
            "SELECT min(intent_at) FROM action"
            " WHERE outcome IS NULL AND result IS NOT 'interrupted'"
        )
        found: float | None = row[0]
        return found

    def past_actions(self, since: float) -> tuple[PastAction, ...]:
        """Returns the actions that started or ended after `since` (Unix seconds), or are open.

        Also those of open incidents and the last ones of each target, regardless of their age.
        """
        rows = self._read(
            f"SELECT {_ACTION_COLUMNS} FROM action WHERE NOT {_NO_EFFECT} AND"  # noqa: S608 - our own words
            " (intent_at >= ? OR coalesce(ended_at, 1e999) >= ?"
            " OR incident IN (SELECT id FROM incident WHERE closed IS NULL)"
            " OR id IN (SELECT id FROM (SELECT id, row_number() OVER"
            " (PARTITION BY run, worker ORDER BY id DESC) AS age FROM action) WHERE age <= ?))"
            " ORDER BY id",
            (since, since, LAST_ACTIONS),
        )
        return tuple(as_past_action(row) for row in rows)

    def last_actions(self, count: int) -> tuple[PastAction, ...]:
        """Returns the last `count` actions that performed a step, the oldest first.

        Also the last `count` of each worker with an alert that has not resolved: how often it was
        restarted does not depend on the other workers.
        """
        rows = self._read(
            f"SELECT {_ACTION_COLUMNS}, ({RESTARTS}) AS restarts FROM action"  # noqa: S608 - our own words
            " WHERE id IN (SELECT id FROM (SELECT id, run, worker, row_number() OVER"
            " (ORDER BY id DESC) AS age, row_number() OVER"
            " (PARTITION BY run, worker ORDER BY id DESC) AS own_age"
            f" FROM action WHERE NOT {_NO_EFFECT}) WHERE age <= ? OR own_age <= ?"
            " AND (run, worker) IN (SELECT run, worker FROM incident WHERE resolved_at IS NULL))"
            " ORDER BY id",
            (count, count),
        )
        return tuple(as_past_action(row) for row in rows)

    def last_save_request(
        self, key: WorkerKey, instances: Collection[TargetInstance], since: float
    ) -> RecordedSaveRequest | None:
        """Returns the last checkpoint request to any of `instances` of worker `key`.

        None if there is none after `since` (Unix seconds), or if it was never sent.
        """
        rows = self._read(
            # Stops at the newest event that is too old, however long the journal is.
            "SELECT kind, at, facts FROM event WHERE kind IN ('save_requested',"
            " 'save_result') AND id >"
            " coalesce((SELECT id FROM event WHERE at < ? ORDER BY id DESC LIMIT 1), 0)"
            " ORDER BY id DESC",
            (since,),
        )
        sent = True
        for row in rows:
            if row["kind"] == "save_result":
                worker, was_sent = as_save_result(row)
                sent = was_sent if worker == key else sent
                continue
            one = as_save_request(row)
            if one.key == key:
                if sent and not one.instances.isdisjoint(instances):
                    return one
                sent = True
        return None

    def load_descendants(self, boot: str) -> Mapping[WorkerKey, DescendantsByRoot]:
        """Returns the descendants that were stored during the boot `boot`."""
        rows = self._read("SELECT * FROM descendant WHERE boot = ?", (boot,))
        found: dict[WorkerKey, dict[Identity, frozenset[Identity]]] = {}
        for row in rows:
            trees = found.setdefault(WorkerKey(row["run"], row["worker"]), {})
            root = Identity(row["root_pid"], row["root_start_ticks"])
            member = Identity(row["pid"], row["start_ticks"])
            trees[root] = trees.get(root, frozenset()) | {member}
        return found

    def newest_events(self, count: int) -> tuple[Event, ...]:
        """Returns the last `count` events, the newest first."""
        rows = self._read(f"{EVENTS} ORDER BY event.id DESC LIMIT ?", (count,))
        return tuple(as_event(row) for row in rows)

    def blocked_since(self) -> Mapping[str, float]:
        """Returns since when the oldest firing alert is blocked, by reason (Unix seconds).

        An alert is blocked since it was first received, since it fired again, or since its last
        action ended. Reasons that need no action are left out.
        """
        rows = self._read(
            "SELECT last_decision, min(max(first_received_at, starts_at, coalesce(acted, 0)))"
            " AS since FROM incident"
            " LEFT JOIN (SELECT incident, max(coalesce(outcome_at, result_at, intent_at)) AS acted"
            " FROM action GROUP BY incident) ON incident = incident.id"
            " WHERE closed IS NULL AND resolved_at IS NULL"
            " AND (last_decision GLOB 'wait *' OR last_decision GLOB 'refuse *')"
            " GROUP BY last_decision"
        )
        found = {row["last_decision"].split(" ", 1)[1]: row["since"] for row in rows}
        return {
            reason: at
            for reason, at in found.items()
            if reason not in NO_ACTION_NEEDED | NEEDS_OPERATOR
        }

    def count_breaker_actions(self, within: float) -> int:
        """Returns the number of actions that count against the breaker of the host."""
        now = self._clock()
        # Includes actions in the future, after the clock was set back.
        since = max(now - within, self.breaker().reset_at)
        (row,) = self._read(
            "SELECT count(*) FROM action WHERE intent_at > ? AND account IS NULL"
            " AND NOT (result IS 'interrupted' AND last_step IS NULL)"
            " AND kind NOT IN (SELECT value FROM json_each(?))",
            (since, json.dumps(sorted(HARMLESS_KINDS))),
        )
        return int(row[0])

    def counters(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """Returns the totals since the journal was created, by metric and label values."""
        totals: dict[str, dict[tuple[str, ...], float]] = {}
        for row in self._read("SELECT metric, labels, value FROM counter"):
            totals.setdefault(row["metric"], {})[tuple(json.loads(row["labels"]))] = row["value"]
        return totals

    def proposals(self) -> tuple[Proposal, ...]:
        """Returns the actions that an operator can approve, the oldest first."""
        rows = self._read(
            f"SELECT id, alert, {TARGET}, last_decided_at FROM incident"  # noqa: S608 - words of ours
            " WHERE closed IS NULL AND resolved_at IS NULL"
            " AND last_decision IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?",
            (json.dumps(sorted(PROPOSED)), MAX_PROPOSALS),
        )
        return tuple(Proposal(*row) for row in rows)

    def timestamps(self) -> Mapping[str, float]:
        return {row["name"]: row["at"] for row in self._read("SELECT name, at FROM timestamp")}

    def unhandled_alerts(self) -> tuple[Alert, ...]:
        """Returns the alerts that were recorded as unhandled, and not as ended since."""
        found: dict[str, Alert] = {}
        for event in self._read(
            "SELECT kind, facts FROM event WHERE kind IN ('unhandled', 'unhandled_ended')"
            " ORDER BY id"
        ):
            alert = recorded_alert(event["facts"])
            found.pop(alert.fingerprint, None)
            if event["kind"] == "unhandled":
                found[alert.fingerprint] = alert
        return tuple(found.values())

    def last_stall(self, fingerprint: str) -> Alert | None:
        """Returns the alert that was last recorded as a stall, with its start at that time."""
        rows = self._read(
            "SELECT facts FROM event WHERE kind = 'stalled'"
            " AND json_extract(facts, '$.lasted_seconds') IS NULL"
            " AND json_extract(facts, '$.fingerprint') = ? ORDER BY id DESC LIMIT 1",
            (fingerprint,),
        )
        return next((recorded_alert(row["facts"]) for row in rows), None)

    def attempted(self) -> frozenset[WorkerKey]:
        """Returns the workers that are acted upon or were given up, which has messages of its own.

        Also where their alert has ended, if it goes on with that incident should it fire again.
        """
        rows = self._read(
            "SELECT DISTINCT run, worker FROM incident WHERE closed IS NULL AND"
            " coalesce(last_decision, '') NOT IN (SELECT value FROM json_each(?)"
            " UNION SELECT 'wait observe_mode')"
            " OR coalesce(resolved_at, last_received_at) > ? AND (closed IN"
            " (SELECT value FROM json_each(?)) OR 'not_healed' = (SELECT outcome FROM action"
            " WHERE action.incident = incident.id AND kind != 'notify' ORDER BY id DESC LIMIT 1))",
            (_UNOWNED, self._clock() - SAME_OUTAGE_SECONDS, json.dumps(sorted(GIVEN_UP))),
        )
        return frozenset(WorkerKey(row["run"], row["worker"]) for row in rows)

    def given_up(
        self,
        received_since: float,
        started: Mapping[WorkerKey, float] | None = None,
        is_stopped: IsStopped = lambda _run, _worker: False,
    ) -> tuple[WorkerKey, ...]:
        """Returns the targets that need an operator.

        These are the targets that were given up, while their alert fires and was received after
        `received_since` (Unix seconds), or if they were given up after it had resolved and after
        that time; and the targets of open incidents whose decision needs an operator. Left out is
        what an operator has `started` since (Unix seconds), or stopped.
        """
        rows = self._read(
            f"{_GIVEN_UP}"  # noqa: S608 - our own words
            " FROM incident WHERE"
            " (closed IN (SELECT value FROM json_each(?)) AND"
            "  (resolved_at IS NULL AND last_received_at >= ? OR"
            "   resolved_at < closed_at AND closed_at >= ?))"
            " OR (closed IS NULL AND last_decision IN (SELECT value FROM json_each(?)))"
            " GROUP BY 1, 2",
            (
                json.dumps(sorted(GIVEN_UP)),
                received_since,
                received_since,
                json.dumps(_NEEDS_OPERATOR),
            ),
        )
        return _without_taken_over(rows, started or {}, is_stopped)

    def given_up_before(
        self,
        started: Mapping[WorkerKey, float] | None = None,
        is_stopped: IsStopped = lambda _run, _worker: False,
    ) -> tuple[WorkerKey, ...]:
        """Returns the targets that were given up, whose alert has resolved since.

        An alert that fires again goes on with that incident, so the remediator does nothing. Left
        out is what an operator has `started` since (Unix seconds), or stopped.
        """
        rows = self._read(
            f"{_GIVEN_UP}"  # noqa: S608 - our own words
            " FROM incident WHERE resolved_at > ?"
            f" AND closed IN (SELECT value FROM json_each(?)) AND NOT {IS_RESUMED} GROUP BY 1, 2",
            (self._clock() - SAME_OUTAGE_SECONDS, json.dumps(sorted(GIVEN_UP))),
        )
        return _without_taken_over(rows, started or {}, is_stopped)


def _without_taken_over(
    rows: Sequence[sqlite3.Row], started: Mapping[WorkerKey, float], is_stopped: IsStopped
) -> tuple[WorkerKey, ...]:
    keys = ((WorkerKey(run, worker), at) for run, worker, at in rows)
    return tuple(
        key
        for key, at in keys
        if started.get(key, 0.0) <= (at or 0.0) and not is_stopped(key.run, key.worker)
    )
