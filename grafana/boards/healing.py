"""What the remediator did in the time shown, in the words that several boards use."""

from __future__ import annotations

from boards import style, why
from boards.panels import Stat, number
from boards.queries import Query, gained
from boards.style import NONE_IS_GOOD, Scale
from boards.tables import Column, Table

ACTIONS = "trainwarden_remediator_actions_total{HEALED}"
OUTCOMES = "trainwarden_remediator_outcomes_total{HEALED}"
DECISIONS = "trainwarden_remediator_decisions_total{HEALER}"
JOURNAL_READABLE = "0 * max(trainwarden_remediator_journal_success{HEALER} == 1)"
"""0 only while the journal can be read; otherwise no value."""


def count(title: str, about: str, text: str, scale: Scale = style.PLAIN, width: int = 4) -> Stat:
    """A count of journal entries."""
    return number(
        title,
        about,
        f"sum({text}) or {JOURNAL_READABLE}",
        why.NO_REMEDIATOR,
        scale,
        width=width,
        empty="no remediator",
    )


def healed() -> Stat:
    return count(
        "Healed",
        "Actions after which the condition cleared. Good: all of them.",
        gained(f'{OUTCOMES[:-1]},outcome="healed"}}'),
        Scale(style.GOOD),
    )


def given_up() -> Stat:
    return count(
        "Given up in this time",
        "Alerts that the remediator gave up and escalated to the on-call. Good: 0.",
        gained(f'{OUTCOMES[:-1]},outcome="gave_up"}}'),
        NONE_IS_GOOD,
    )


def actions_by_worker() -> Table:
    return Table(
        title="Actions, by worker",
        about="Actions in the time shown, with target and result. Good: done.",
        queries=[
            Query(
                f"sum by (run, worker, action, result) ({gained(ACTIONS)}) > 0",
                "times",
                why.NOTHING_DONE,
            )
        ],
        width=12,
        height=6,
        columns=[
            Column(name="run"),
            Column(name="worker"),
            Column(name="action"),
            Column(name="result", colours=(("done", style.GOOD), ("failed", style.CRITICAL))),
            Column(name="times", decimals=0),
        ],
    )


def outcomes_by_worker() -> Table:
    return Table(
        title="Outcomes, by worker",
        about="The outcome, as the exporter observed afterwards. Good: healed.",
        queries=[
            Query(
                f"sum by (run, worker, outcome) ({gained(OUTCOMES)}) > 0", "times", why.NOTHING_DONE
            )
        ],
        width=12,
        height=6,
        columns=[
            Column(name="run"),
            Column(name="worker"),
            Column(
                name="outcome",
                colours=(
                    ("healed", style.GOOD),
                    ("not_healed", style.WARNING),
                    ("gave_up", style.CRITICAL),
                ),
            ),
            Column(name="times", decimals=0),
        ],
    )


def decisions() -> Table:
    return Table(
        title="Decisions, and why",
        about=(
            "Decisions about alerts in the time shown, of all runs of the host; an alert that "
            "only repeats the last is not counted. `wait` is decided again soon, `refuse` is not. "
            "Good: few. The whole story: trainwarden journal."
        ),
        queries=[
            Query(
                f"sum by (verdict, reason, instance) ({gained(DECISIONS)}) > 0",
                "times",
                why.NOTHING_DECIDED,
            )
        ],
        width=8,
        height=8,
        columns=[
            Column(
                name="verdict",
                colours=(("act", style.GOOD), ("wait", style.WARNING), ("refuse", style.CALM)),
            ),
            Column(name="reason"),
            Column(name="times", decimals=0),
            Column(name="instance"),
        ],
        sorted_by="times",
    )
