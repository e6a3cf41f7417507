"""What the journal tells: how things stand, what has been done, and what is waited for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.breaker import HARMLESS, BreakerState
from trainwarden_remediator.decision import (
    AT_PEACE,
    GIVEN_UP,
    STUCK,
    Decision,
    Incident,
    PastAction,
    Verdict,
)
from trainwarden_remediator.journalfile import JournalFile
from trainwarden_remediator.records import (
    EVENTS,
    Event,
    OpenAction,
    SaveAsked,
    as_event,
    as_incident,
    as_open_action,
    as_past_action,
    as_save_asked,
    as_save_told,
)
from trainwarden_remediator.subjects import Subject

LAST_ACTIONS = 20
"""Of each target so many are told of, however long ago they were."""

Kin = Mapping[Identity, frozenset[Identity]]
"""The processes that stood below each root of a target, the root too."""

_NOBODYS = json.dumps(
    [Decision(Verdict.REFUSE, reason).text for reason in ("unknown_playbook", "unknown_target")]
)
_STUCK = [Decision(Verdict.REFUSE, reason).text for reason in sorted(STUCK)]


_PAST = (
    "id, incident, run, worker, kind, intent_at, outcome IS 'healed' AS healed, rung, step,"
    " checkpoint, result,"
    " CASE WHEN result IS 'interrupted' THEN result_at ELSE outcome_at END AS ended_at"
)
_VAIN = "(result IS 'interrupted' AND reached IS NULL)"
"""One cut short before its first step: it has done nothing to the target."""


class Telling:
    """Reads what is recorded. Every method may block, and may raise JournalError."""

    def __init__(self, file: JournalFile, *, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def open_incidents(self, *, strangers_before: float = math.inf) -> tuple[Incident, ...]:
        """Those still to be decided, the oldest first.

        Of those that were found to be nobody's, and fire, only such as were last heard before then
        (Unix seconds): somebody may send any number of these.
        """
        rows = self._file.read(
            "SELECT * FROM incident WHERE closed IS NULL AND (last_heard < ?"
            " OR said IS NULL OR said NOT IN (SELECT value FROM json_each(?))"
            " OR resolved_at IS NOT NULL OR id IN (SELECT incident FROM action))"
            " ORDER BY starts_at, id",
            (strangers_before, _NOBODYS),
        )
        return tuple(as_incident(row) for row in rows)

    def first_incidents(self, count: int) -> tuple[Incident, ...]:
        """The oldest of those still to be decided, however many there are."""
        rows = self._file.read(
            # Sorted without their labels: of thousands, those of a few are read.
            "SELECT * FROM incident WHERE id IN"
            " (SELECT id FROM incident WHERE closed IS NULL ORDER BY starts_at, id LIMIT ?)"
            " ORDER BY starts_at, id",
            (count,),
        )
        return tuple(as_incident(row) for row in rows)

    def count_open(self) -> int:
        """How many incidents there are still to be decided."""
        (row,) = self._file.read("SELECT count(*) FROM incident WHERE closed IS NULL")
        return int(row[0])

    def latched(self) -> float | None:
        """Since when the breaker lets nothing be done (Unix seconds); None while it does not."""
        return self.breaker().latched_at

    def breaker(self) -> BreakerState:
        return BreakerState.of(self.moments())

    def unfinished(self) -> tuple[OpenAction, ...]:
        """Actions without an outcome: in flight, or cut short by a crash."""
        rows = self._file.read(
            "SELECT action.*, remediation FROM action JOIN incident ON incident.id = incident"
            " WHERE outcome IS NULL AND result IS NOT 'interrupted' ORDER BY action.id"
        )
        return tuple(as_open_action(row) for row in rows)

    def oldest_action(self) -> float | None:
        """When the oldest of these was meant (Unix seconds); None when there are none."""
        (row,) = self._file.read(
            "SELECT min(intent_at) FROM action"
            " WHERE outcome IS NULL AND result IS NOT 'interrupted'"
        )
        found: float | None = row[0]
        return found

    def past_actions(self, since: float) -> tuple[PastAction, ...]:
        """Actions meant or ended since then (Unix seconds), and those that have not ended.

        Also, however old, those about open incidents, and the last of each target.
        """
        rows = self._file.read(
            f"SELECT {_PAST} FROM action WHERE NOT {_VAIN} AND"  # noqa: S608 - our own words
            " (intent_at >= ? OR coalesce(ended_at, 1e999) >= ?"
            " OR incident IN (SELECT id FROM incident WHERE closed IS NULL)"
            " OR id IN (SELECT id FROM (SELECT id, row_number() OVER"
            " (PARTITION BY run, worker ORDER BY id DESC) AS age FROM action) WHERE age <= ?))"
            " ORDER BY id",
            (since, since, LAST_ACTIONS),
        )
        return tuple(as_past_action(row) for row in rows)

    def last_actions(self, count: int) -> tuple[PastAction, ...]:
        """The newest of all actions that have done anything, the oldest of them first."""
        rows = self._file.read(
            f"SELECT {_PAST} FROM action WHERE NOT {_VAIN} ORDER BY id DESC LIMIT ?",  # noqa: S608 - our own words
            (count,),
        )
        return tuple(as_past_action(row) for row in reversed(rows))

    def asked_to_save(
        self, key: WorkerKey, subjects: Collection[Subject], since: float
    ) -> SaveAsked | None:
        """When any of `subjects` of that worker were last asked for a checkpoint, or may have been.

        None where none was since then (Unix seconds). A request that failed has not been made.
        """
        rows = self._file.read(
            # From the newest line back to the first that is too old, however long the journal is.
            "SELECT kind, at, facts FROM event WHERE kind IN ('save', 'saved') AND id >"
            " coalesce((SELECT id FROM event WHERE at < ? ORDER BY id DESC LIMIT 1), 0)"
            " ORDER BY id DESC",
            (since,),
        )
        made = True
        for row in rows:
            if row["kind"] == "saved":
                worker, was = as_save_told(row)
                made = was if worker == key else made
                continue
            one = as_save_asked(row)
            if one.key == key:
                if made and not one.subjects.isdisjoint(subjects):
                    return one
                made = True
        return None

    def remembered(self, boot: str) -> Mapping[WorkerKey, Kin]:
        """What was kept since that boot."""
        rows = self._file.read("SELECT * FROM member WHERE boot = ?", (boot,))
        found: dict[WorkerKey, dict[Identity, frozenset[Identity]]] = {}
        for row in rows:
            trees = found.setdefault(WorkerKey(row["run"], row["worker"]), {})
            root = Identity(row["root_pid"], row["root_start_ticks"])
            member = Identity(row["pid"], row["start_ticks"])
            trees[root] = trees.get(root, frozenset()) | {member}
        return found

    def newest_events(self, count: int) -> tuple[Event, ...]:
        """The last `count` lines, the newest first."""
        rows = self._file.read(f"{EVENTS} ORDER BY event.id DESC LIMIT ?", (count,))
        return tuple(as_event(row) for row in rows)

    def blocked_since(self) -> Mapping[str, float]:
        """Since when the oldest alert that fires has only been kept waiting (Unix seconds).

        By the reason that is given for it now, as far as something should have been done: since it
        was first heard, or since the last action about it ended.
        """
        rows = self._file.read(
            "SELECT said, min(max(first_heard, coalesce(acted, 0))) AS since FROM incident"
            " LEFT JOIN (SELECT incident, max(coalesce(outcome_at, result_at, intent_at)) AS acted"
            " FROM action GROUP BY incident) ON incident = incident.id"
            " WHERE closed IS NULL AND resolved_at IS NULL"
            " AND (said GLOB 'wait *' OR said GLOB 'refuse *') GROUP BY said"
        )
        found = {row["said"].split(" ", 1)[1]: row["since"] for row in rows}
        return {reason: at for reason, at in found.items() if reason not in AT_PEACE | STUCK}

    def counted_actions(self, within: float) -> int:
        """How many actions count against the breaker."""
        now = self._clock()
        # Also those that a clock set back has put into the future.
        since = max(now - within, self.breaker().reopened_at)
        (row,) = self._file.read(
            "SELECT count(*) FROM action WHERE intent_at > ?"
            " AND NOT (result IS 'interrupted' AND reached IS NULL)"
            " AND kind NOT IN (SELECT value FROM json_each(?))",
            (since, json.dumps(sorted(HARMLESS))),
        )
        return int(row[0])

    def tallies(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        """Totals by metric and label values, since the journal was begun."""
        totals: dict[str, dict[tuple[str, ...], float]] = {}
        for row in self._file.read("SELECT metric, labels, value FROM tally"):
            totals.setdefault(row["metric"], {})[tuple(json.loads(row["labels"]))] = row["value"]
        return totals

    def moments(self) -> Mapping[str, float]:
        return {row["name"]: row["at"] for row in self._file.read("SELECT name, at FROM moment")}

    def given_up(self, heard_since: float) -> tuple[WorkerKey, ...]:
        """Targets for which a person is needed.

        Those given up while the alert about them, heard since then, still stands; or, where it was
        over when they were, since then; and those about which nothing can be done as they stand.
        """
        rows = self._file.read(
            "SELECT DISTINCT coalesce(target_run, run), coalesce(target_worker, worker)"
            " FROM incident WHERE"
            " (closed IN (SELECT value FROM json_each(?)) AND"
            "  (resolved_at IS NULL AND last_heard >= ? OR"
            "   resolved_at < closed_at AND closed_at >= ?))"
            " OR (closed IS NULL AND said IN (SELECT value FROM json_each(?)))",
            (json.dumps(sorted(GIVEN_UP)), heard_since, heard_since, json.dumps(_STUCK)),
        )
        return tuple(WorkerKey(*row) for row in rows)
