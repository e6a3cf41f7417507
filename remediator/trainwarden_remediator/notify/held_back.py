"""Which reports of a healing are held back while an operator is needed, and which are false by now.

Who reads the newest message alone would go back to sleep.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.notifications import URGENT
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import NEEDS_OPERATOR, RESTART_LOOP, Decision, Verdict
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.conditions import is_down, is_stalled
from trainwarden_remediator.policy.failing_starts import LOOP_SECONDS

LOOP_MEMORY_SECONDS = 3600.0
"""For so long after a restart loop, a healing of its worker is reported only once it has lasted for
LOOP_SECONDS: the next loop may have begun."""

FRESH_SECONDS = 60.0
"""For so long what was verified is taken as true."""

_CALLING = json.dumps(
    [
        Decision(Verdict.ACT, "hold").text,
        *(Decision(Verdict.REFUSE, reason).text for reason in sorted(NEEDS_OPERATOR)),
    ]
)
"""The last decisions of alerts that wait for an operator."""

_HELD_BACK = (
    "SELECT notice.id FROM notice JOIN event ON event.id = notice.event"
    " JOIN incident AS own ON own.id = event.incident"
    " LEFT JOIN action ON action.id = event.action"
    " WHERE settled IS NULL AND occasion = 'healed' AND EXISTS (SELECT 1 FROM incident AS other"
    " WHERE (coalesce(other.part_of, other.id) = coalesce(own.part_of, own.id)"
    " OR (other.worker != '' AND other.run = coalesce(action.run, own.run)"
    " AND other.worker = coalesce(action.worker, own.worker)))"
    " AND (other.closed IS NULL AND other.resolved_at IS NULL"
    " AND other.last_decision IN (SELECT value FROM json_each(?))"
    " OR other.alert = ? AND other.first_received_at > event.at - ? AND event.at > ?))"
    " AND NOT EXISTS (SELECT 1 FROM notice AS call JOIN event AS line ON line.id = call.event"
    " JOIN incident AS about ON about.id = line.incident WHERE call.settled IS NULL"
    " AND call.receiver = notice.receiver AND call.occasion IN (SELECT value FROM json_each(?))"
    " AND coalesce(about.part_of, about.id) = coalesce(own.part_of, own.id))"
)
"""Selects the healings of what has another alert that waits for an operator, or was in a restart
loop; not where its call goes into the same message."""

ACTED_AGAIN = (
    "SELECT notice.id FROM notice JOIN event ON event.id = notice.event"
    " JOIN action AS own ON own.id = event.action"
    " WHERE settled IS NULL AND occasion = 'healed' AND EXISTS (SELECT 1 FROM action AS later"
    " WHERE later.run = own.run AND later.worker = own.worker AND later.id > own.id"
    " AND later.kind = own.kind)"
)
"""Selects the healings after which the remediator has acted on the same worker again."""

_HEALED = (
    "SELECT coalesce(max(outcome_at), 0) FROM action JOIN incident ON incident.id = action.incident"
    " WHERE outcome = 'healed' AND outcome_at <= ? AND action.run = ?"
    " AND (action.worker = ? OR ? = '' AND (alert = ? OR ?)) AND NOT EXISTS (SELECT 1 FROM notice"
    " WHERE receiver = ? AND subject = 'action ' || action.id"
    " AND occasion IN ('healed', 'recurring', 'resumed_elsewhere')"
    " AND (settled IN ('nobody', 'dropped')"
    " OR notice.id IN (SELECT value FROM json_each(?))))"
)
"""Selects the last healing of a worker, or of a run by an alert, without what was never sent."""

Read = Callable[[str, Sequence[object]], Sequence[sqlite3.Row]]
"""Returns the rows of a query with these values."""


def held_back(read: Read, now: float) -> set[int]:
    """Returns the notifications that are not to be sent yet: they are not late, but wait."""
    loop = (RESTART_LOOP, LOOP_MEMORY_SECONDS, now - LOOP_SECONDS)
    return {row["id"] for row in read(_HELD_BACK, (_CALLING, *loop, json.dumps(URGENT)))}


def reported_healing(read: Read, event: Event, receiver: str) -> float:
    """Returns when what an urgent notification is about was last healed, so that it is news again.

    Not where a receiver never hears of it: a fault that comes and goes calls once.
    """
    # No restart happens while an alert holds it: after that of any worker, the alert had ended.
    held = event.facts.get("reason") == "hold"
    about = (event.run, event.worker, event.worker, event.alert, held)
    unheard = json.dumps(sorted(held_back(read, event.at)))
    return float(read(_HEALED, (event.at, *about, receiver, unheard))[0][0])


def is_fresh(event: Event, now: float) -> bool:
    return now - event.at <= FRESH_SECONDS


def is_overtaken(event: Event, exporter: ExporterState | None, setup: Setup, now: float) -> bool:
    """Whether a worker is not healthy any more that was healed by the action of `event`.

    A late report is only believed if `exporter` shows a healthy worker.
    """
    key = WorkerKey(event.run, event.worker)
    if key.run and setup.is_stopped(*key):
        return True
    if is_fresh(event, now) or not all(key):
        return False
    if setup.started.get(key, 0.0) > event.at:  # by an operator, who knows better how it is
        return True
    worker = None if exporter is None else exporter.workers.get(key)
    if exporter is None or worker is None or worker.missing or worker.finished:
        return True
    limit, run = worker.memory_limit_bytes, exporter.runs.get(key.run)
    if limit is not None and worker.memory_bytes > limit:
        return True
    if run is not None and (
        run.finished or run.stuck or is_stalled(run, now, exporter.servers.get(key.run, ()))
    ):
        return True
    return any(map(is_down, exporter.servers_of(key)))
