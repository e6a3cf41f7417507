"""How often the same fault of a worker was healed within some hours, and what that has cost."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from trainwarden_exporter.runtime.formatting import format_clock, format_duration
from trainwarden_remediator.journal.repeated_steps import count_repeated, repeated_steps
from trainwarden_remediator.journal.rows import Event

RECURRENCE_SECONDS = 12 * 3600.0
"""Within this time, about a night, healings of an alert of a worker are one recurring fault."""

SHOWN_TIMES, FIRST_LOUD_TIMES = 2, 4
"""Healings from which on the number is shown, and the number that calls an operator first."""

_HEALED = (
    "SELECT past.id, past.intent_at, past.result_at, past.outcome_at, past.step,"
    " cause.starts_at,"
    " (SELECT facts FROM event WHERE event.action = past.id AND event.kind = 'outcome') AS facts"
    " FROM action AS own JOIN incident AS mine ON mine.id = own.incident"
    " JOIN action AS past ON (past.run, past.worker) = (own.run, own.worker)"
    " JOIN incident AS cause ON cause.id = past.incident AND cause.alert = mine.alert"
    " WHERE own.id = ? AND past.outcome = 'healed' AND past.id <= own.id AND past.intent_at > ?"
    " ORDER BY past.id"
)


def recurrence_facts(
    db: sqlite3.Connection, action: int, now: float, facts: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Returns the fact `again` of the outcome of an action that has healed; empty if it is rare.

    `facts` are the others of that outcome, `now` is in Unix seconds.
    """
    rows = db.execute(_HEALED, (action, now - RECURRENCE_SECONDS)).fetchall()
    if len(rows) < SHOWN_TIMES:
        return {}
    outcomes = [json.loads(row["facts"]) if row["facts"] else facts for row in rows]
    own = list(zip(rows, outcomes, strict=True))
    lost = _covered(
        (
            one.get("interruption_start", row["starts_at"]),
            one.get("interruption_end") or row["outcome_at"],
        )
        for row, one in own
    )
    apart = [
        later["intent_at"] - (one["result_at"] or one["intent_at"]) for one, later in pairwise(rows)
    ]
    again = {
        "times": len(rows),
        "within": round(now - rows[0]["intent_at"]),
        "after": [round(min(apart)), round(max(apart))],
        "lost_seconds": round(lost),
    }
    counts = [count_repeated(one, row["step"]) for row, one in own]
    if steps := sum(max(count or 0.0, 0.0) for count, _ in counts):
        again |= {"lost_steps": round(steps), "exact": all(exact for _, exact in counts)}
    return {"again": again}


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Returns the seconds that are in any of `spans`, each counted once.

    A run that fails again before it makes a new step has made none since before its first failure.
    """
    covered, until = 0.0, -math.inf
    for start, end in sorted(spans):
        covered += max(end - max(start, until), 0.0)
        until = max(until, end)
    return covered


def is_loud(facts: Mapping[str, Any]) -> bool:
    """Whether a healing calls an operator: the fourth, the eighth, the sixteenth time."""
    times: int = facts.get("again", {}).get("times", 0)
    return times >= FIRST_LOUD_TIMES and times & (times - 1) == 0


def describe_recurrence(event: Event) -> str:
    """Returns how often the fault of an outcome was healed, at which pace and cost, or ""."""
    if not (again := event.facts.get("again")):
        return ""
    least, most = map(format_duration, again["after"])
    pace = least if least == most else f"{least} to {most}"
    since = format_clock(event.at - again["within"], event.at)
    cost = format_duration(again["lost_seconds"])
    if "lost_steps" in again:
        cost += f" and {repeated_steps(again['lost_steps'], exact=again.get('exact', True))}"
    return (
        f"{again['times']} times since {since}: the fault comes back {pace} after each restart,"
        f" and has cost {cost} so far"
    )
