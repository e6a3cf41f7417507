"""The report of a night: all its incidents, what needs a person first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import groupby

from trainwarden_exporter.wording import plural
from trainwarden_remediator.reporting.account import Account
from trainwarden_remediator.reporting.incident import Style, render
from trainwarden_remediator.reporting.markdown import bullets, code, table, text
from trainwarden_remediator.reporting.times import took
from trainwarden_remediator.reporting.verdict import State, judge

MOST_TOLD = 40
"""Incidents of a night that are told of one by one; of more, those that matter least are only
listed."""
_TOLD: Sequence[State] = ("person", "open", "held", "healed", "over")


def render_nights(accounts: Sequence[Account], style: Style, since: float, now: float) -> str:
    """Every night with an incident since then, the newest first. Times are Unix seconds."""
    if not accounts:
        return f"# A quiet night\n\nNo incident since {style.times.full(since)}.\n"
    by_night = groupby(
        sorted(accounts, key=lambda one: one.starts_at, reverse=True),
        key=lambda one: style.times.night(one.starts_at),
    )
    return "\n".join(_night(night, list(found)[::-1], style, now) for night, found in by_night)


def _night(night: date, accounts: Sequence[Account], style: Style, now: float) -> str:
    verdicts = {account.id: judge(account) for account in accounts}
    to_tell = [one for one in accounts if verdicts[one.id].state in _TOLD]
    to_tell.sort(key=lambda one: _TOLD.index(verdicts[one.id].state))
    parts = [
        f"# The night of {night:%A, %d %B %Y} to {night + timedelta(days=1):%A}",
        _in_short(accounts),
        table(
            ("#", "began", "alert", "about", "came to", "took"),
            (
                (
                    str(one.id),
                    style.times.short(one.starts_at),
                    text(one.alert),
                    code(one.name),
                    verdicts[one.id].word,
                    took((one.ended_at or now) - one.starts_at),
                )
                for one in accounts
            ),
        ),
    ]
    told = sorted(to_tell[:MOST_TOLD], key=lambda one: verdicts[one.id].state != "person")
    below = replace(style, level=style.level + 1, whole=False)
    parts += [render(one, below, now) for one in told]
    return "\n\n".join(parts)


def _in_short(accounts: Sequence[Account]) -> str:
    states = [judge(account).state for account in accounts]
    acts = [act for account in accounts for act in account.deeds]
    points = [f"{plural(len(accounts), 'incident')}, {plural(len(acts), 'action')}."]
    words: dict[State, str] = {
        "person": "**need a person**",
        "open": "still open",
        "held": "held",
        "healed": "healed without a person",
        "over": "over, though not by what was done",
        "nothing": "over with nothing done",
    }
    points += [f"{states.count(s)} {word}." for s, word in words.items() if s in states]
    return bullets(points)
