"""The one-sentence headline of an incident. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.runtime.formatting import plural
from trainwarden_remediator.journal.event_text import describe_reason
from trainwarden_remediator.model import GIVEN_UP, NEEDS_OPERATOR
from trainwarden_remediator.report.fault import downtime, origin
from trainwarden_remediator.report.markdown import format_elapsed
from trainwarden_remediator.report.model import IncidentRecord

HeadlineState = Literal["person", "open", "held", "healed", "over", "nothing"]


@dataclass(frozen=True, slots=True)
class Headline:
    """The headline of an incident: `state` to sort and count, `word` for tables, `sentence`."""

    state: HeadlineState
    word: str
    sentence: str


def headline(incident: IncidentRecord) -> Headline:
    """Returns the headline of an incident."""
    reasons = [reason for reason, _ in incident.reasons]
    healed = [action for action in incident.repairs if action.outcome == "healed"]
    last = reasons[-1] if reasons else ""
    if incident.closed in GIVEN_UP or (incident.closed is None and last in NEEDS_OPERATOR):
        tried = f" after {plural(len(incident.repairs), 'action')}" if incident.repairs else ""
        why = describe_reason(incident.closed or last)
        sentence = f"**An operator is needed**{tried}: {why}."
        return Headline("person", "**operator needed**", sentence)
    under_way = [one for one in incident.repairs if one.outcome is None and one.result is None]
    if under_way:
        return Headline("open", "in progress", "An action is in progress.")
    if incident.closed is None and incident.resolved_at is None:
        return _open_headline(last, healed=bool(healed))
    if healed:
        how = "after a hold by an operator" if "held" in reasons else "automatically"
        done = f"**Healed** {how} by {plural(len(incident.repairs), 'action')}"
        if (down := downtime(incident)) is not None:
            lasted = f"{format_elapsed(down)} from the last step to the next new one"
            return Headline("healed", "healed", f"{done}. Downtime: {lasted}.")
        since, of = origin(incident)
        lasted = format_elapsed((healed[-1].outcome_at or since) - since)
        return Headline("healed", "healed", f"{done}, {lasted} after the {of}.")
    if incident.repairs and all(action.result == "interrupted" for action in incident.repairs):
        sentence = "The alert is resolved. The action was **interrupted**."
        return Headline("over", "resolved, action interrupted", sentence)
    if incident.repairs:
        sentence = "The alert is resolved, but not by an action."
        return Headline("over", "resolved, not by an action", sentence)
    if "hold" in reasons:
        sentence = "Other actions were **held** while the alert fired; it is resolved."
        return Headline("held", "held", sentence)
    why = f": {describe_reason(_why_not(reasons))}" if _why_not(reasons) else ""
    sentence = f"The alert is resolved without an action{why}."
    return Headline("nothing", "resolved without action", sentence)


def _open_headline(last: str, *, healed: bool) -> Headline:
    if last == "hold":
        sentence = "**Held**: no actions while the alert fires. An operator is needed."
        return Headline("held", "**held, firing**", sentence)
    why = f" Last decision: {describe_reason(last)}." if last else ""
    if healed:
        return Headline("open", "healed, in follow-up", f"Healed; in follow-up.{why}")
    return Headline("open", "**still firing**", f"The alert **still fires**.{why}")


def _why_not(reasons: list[str]) -> str:
    """Returns the last reason not to act."""
    left = [one for one in reasons if one not in ("resolved", "alert_stale", "progressing", "hold")]
    return left[-1] if left else ""
