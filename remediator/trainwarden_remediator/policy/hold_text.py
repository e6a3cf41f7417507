"""What a hold means, in words, for pages, reports and notifications. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_clock
from trainwarden_exporter.runtime.responsibility import who_acts
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.model import BLOCKED_SECONDS

MAX_WHO_LENGTH = 200
"""Characters of the name of who set a hold."""
MAX_TEXT_LENGTH = 1000
"""Characters of a sentence in JSON data."""


def holder(hold: Hold, now: float) -> str:
    """Returns who acts while a hold is in force; `now` in Unix seconds."""
    # Over HTTP, the name is followed by the address.
    name = event_text.printable(hold.who.partition(" from ")[0])[:MAX_WHO_LENGTH]
    until = "" if hold.until is None else format_clock(hold.until, now)
    return who_acts(held_by=name, until=until)


def held(hold: Hold, doing: str = "") -> str:
    """Returns what a hold means for the alerts that it covers, beside who set it and its end.

    `doing` is what the remediator began before.
    """
    more = f"{doing}, and does nothing more" if doing else "does nothing"
    why = f" (reason of the hold: {hold.why})" if hold.why else ""
    return event_text.printable(f"the remediator {more} until then{why}")


def describe_hold(hold: Hold, now: float) -> str:
    """Returns `held by root until 06:00 UTC`."""
    by = f" by {hold.who}" if hold.who else " by an operator"
    until = " until `resume`" if hold.until is None else f" until {format_clock(hold.until, now)}"
    why = f" ({hold.why})" if hold.why else ""
    return event_text.printable(f"held{by}{until}{why}")


def hold_json(hold: Hold, *, now: float) -> Mapping[str, str]:
    """Returns a hold as JSON data; without a run it is one on everything."""
    text = describe_hold(hold, now)[:MAX_TEXT_LENGTH]
    return {"run": hold.run, "worker": hold.worker, "who_acts": holder(hold, now), "text": text}


def in_force(holds: Sequence[Hold]) -> Sequence[Hold]:
    """Returns the holds, the widest and longest first."""
    return sorted(holds, key=lambda one: (not one.everything, -_end(one)))


def hold_on(key: WorkerKey, holds: Sequence[Hold]) -> Hold | None:
    """Returns the hold on a worker that ends last, the widest of equal ones; None without any."""
    own = (one for one in in_force(holds) if one.covers(key))
    return max(own, key=_end, default=None)


def end_soon(holds: Sequence[Hold], run: str, now: float) -> bool:
    """Whether all holds that may stop an action on a run end within BLOCKED_SECONDS, or have ended.

    A hold that ended a moment ago by the clock, which may have been set, ends soon, too.
    """
    own = (one for one in holds if one.everything or one.run == run)
    return all(abs(_end(one) - now) <= BLOCKED_SECONDS for one in own)


def actions_start_again(hold: Hold | None, now: float) -> str:
    """Returns when actions that an operator holds start again, as a sentence."""
    if hold is None:  # it has ended, or is on another worker
        return "Actions start again at the end of the hold, or once an operator runs `resume`."
    if hold.until is None:
        return "No action starts until an operator runs `resume`."
    at = format_clock(hold.until, now)
    return f"Actions start again at {at}, or sooner once an operator runs `resume`."


def _end(hold: Hold) -> float:
    return math.inf if hold.until is None else hold.until
