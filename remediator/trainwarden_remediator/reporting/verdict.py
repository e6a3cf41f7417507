"""How an incident went, in one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.wording import plural
from trainwarden_remediator.decision import GIVEN_UP, STUCK
from trainwarden_remediator.reporting.account import Account
from trainwarden_remediator.reporting.times import took
from trainwarden_remediator.story import reason_in_words

State = Literal["person", "open", "held", "healed", "over", "nothing"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state` for sorting and counting, `word` for a table, `sentence` for a person."""

    state: State
    word: str
    sentence: str


def judge(account: Account) -> Verdict:
    """The verdict on an incident as it stands in the journal."""
    reasons = [reason for reason, _ in account.reasons]
    healed = [act for act in account.deeds if act.outcome == "healed"]
    last = reasons[-1] if reasons else ""
    if account.closed in GIVEN_UP or (account.closed is None and last in STUCK):
        tried = f" after {plural(len(account.deeds), 'action')}" if account.deeds else ""
        why = reason_in_words(account.closed or last)
        return Verdict("person", "**a person is needed**", f"**A person is needed**{tried}: {why}.")
    under_way = [act for act in account.deeds if act.outcome is None and act.result is None]
    if under_way:
        return Verdict("open", "under way", "Something is being done about it right now.")
    if account.closed is None and account.resolved_at is None:
        return _standing(last, healed=bool(healed))
    if healed:
        lasted = (healed[-1].outcome_at or account.starts_at) - account.starts_at
        done = plural(len(account.deeds), "action")
        sentence = f"**Healed** without a person, {took(lasted)} after the alert began, by {done}."
        return Verdict("healed", "healed", sentence)
    if account.deeds and all(act.result == "interrupted" for act in account.deeds):
        sentence = "It is over. What was begun to mend it was **cut short**."
        return Verdict("over", "over, act cut short", sentence)
    if account.deeds:
        return Verdict(
            "over", "over, not by it", "It is over, though nothing that was done helped."
        )
    if "hold" in reasons:
        return Verdict("held", "held", "Everything else was **held** while it lasted; it is over.")
    why = f": {reason_in_words(_why_not(reasons))}" if _why_not(reasons) else ""
    return Verdict("nothing", "over by itself", f"It is over, and nothing was done{why}.")


def _standing(last: str, *, healed: bool) -> Verdict:
    if last == "hold":
        said = "**Held**: nothing is done to it while this lasts. A person has to look."
        return Verdict("held", "**held, still on**", said)
    why = f" Last decision: {reason_in_words(last)}." if last else ""
    if healed:
        return Verdict("open", "healed, watched", f"Healed; it is still being watched.{why}")
    return Verdict("open", "**still on**", f"It **still stands**.{why}")


def _why_not(reasons: list[str]) -> str:
    """The last reason that says why nothing was done."""
    telling = [one for one in reasons if one not in ("resolved", "forgotten", "goes_on", "hold")]
    return telling[-1] if telling else ""
