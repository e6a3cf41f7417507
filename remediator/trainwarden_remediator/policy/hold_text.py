"""What a hold means, in words, for pages, reports and notifications. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.runtime.formatting import format_clock
from trainwarden_exporter.runtime.responsibility import who_acts
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal import event_text

MAX_WHO_LENGTH = 200
"""Characters of the name of who set a hold."""


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


def in_force(holds: Sequence[Hold]) -> Sequence[Hold]:
    """Returns the holds, the widest and longest first."""
    endless = float("inf")
    return sorted(
        holds, key=lambda one: (not one.everything, -(endless if one.until is None else one.until))
    )
