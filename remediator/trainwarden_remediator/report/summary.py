"""The one-sentence headline of an incident. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.runtime.responsibility import STALL
from trainwarden_remediator.journal.event_text import brief_reason, describe_reason
from trainwarden_remediator.model import GIVEN_UP, NEEDS_OPERATOR, WORKER_GONE
from trainwarden_remediator.policy.alert_end import outlasts_stop
from trainwarden_remediator.report.fault import downtime, origin
from trainwarden_remediator.report.markdown import format_elapsed
from trainwarden_remediator.report.model import ActionRecord, IncidentRecord

_NO_REASONS = frozenset({"", "resolved", "alert_stale", "progressing", "hold"})
"""Reasons of decisions that are no reason not to act."""

_WATCHED = frozenset(
    {
        *("alert_lingers", "awaiting_progress", "condition_cleared", "already_restarted"),
        *("progressing", "needs_observation"),
    }
)
"""Reasons of the last decision about an alert that a healed action has ended, as far as seen."""

HeadlineState = Literal["person", "open", "held", "watched", "healed", "over", "stopped", "nothing"]


@dataclass(frozen=True, slots=True)
class Headline:
    """The headline of an incident: `state` to sort and count, `word` for tables, `sentence`."""

    state: HeadlineState
    word: str
    sentence: str


def headline(incident: IncidentRecord) -> Headline:
    """Returns the headline of an incident."""
    found = _headline(incident)
    if incident.loop is not None:
        word = f"{found.word}, part of the loop {incident.loop}"
        sentence = f"{found.sentence} Its restart is one of the loop of incident {incident.loop}."
        found = replace(found, word=word, sentence=sentence)
    if incident.looped:
        *others, last = map(str, incident.looped)
        numbers = (
            f"Incidents {', '.join(others)} and {last} are" if others else f"Incident {last} is"
        )
        found = replace(found, sentence=f"{found.sentence} {numbers} of the same loop.")
    if incident.needs_operator and found.state in ("open", "held"):
        return replace(found, state="person")
    return found


def _headline(incident: IncidentRecord) -> Headline:
    reasons = [reason for reason, _ in incident.reasons]
    healed = [
        action
        for action in incident.repairs
        if action.outcome == "healed" and not started_by(incident, action)
    ]
    last = _last_reason(incident)
    if _ended_since(incident):
        sentence = "The remediator **gave up**; the alert ended later, without an action of it."
        return Headline("over", "gave up, ended since", sentence)
    tried = f" after {plural(len(incident.repairs), 'action')}" if incident.repairs else ""
    if incident.closed in GIVEN_UP or (incident.closed is None and last in NEEDS_OPERATOR):
        why = brief_reason(incident.closed or last)
        sentence = f"**An operator is needed**{tried}: {why}."
        return Headline("person", "**operator needed**", sentence)
    if incident.is_held and incident.repairs and not healed:
        sentence = f"**An operator is needed**{tried}: {_why_held(incident)}."
        return Headline("person", "**operator needed**", sentence)
    under_way = [one for one in incident.repairs if one.outcome is None and one.result is None]
    if under_way:
        return Headline("open", "in progress", "An action is in progress.")
    if incident.closed in (None, "resolved") and any(map(_is_unverified, incident.repairs[-1:])):
        what = incident.repairs[-1].kind.replace("_", " ")
        sentence = f"The {what} is done; its effect **is being verified**."
        return Headline("open", "being verified", sentence)
    if incident.closed is None and last == "stall_lasts":
        return Headline(
            "open", "**still stalled**", "The alert has ended; the run **still stalls**."
        )
    if incident.closed is None and incident.resolved_at is None:
        mended = last in _WATCHED or (last == "restart" and healed[-1:] == incident.repairs[-1:])
        stopped = last == "stopped" and not outlasts_stop(incident.alert)
        return _open_headline(last, healed=bool(healed) and mended, stopped=stopped)
    if healed and not _was_held_since(incident, healed[-1]):
        how = "after a hold by an operator" if "held" in reasons else "automatically"
        done = f"**Healed** {how} by {plural(len(incident.repairs), 'action')}"
        if (down := downtime(incident)) is not None:
            lasted = f"{format_elapsed(down)} from the last step to the next new one"
            return Headline("healed", "healed", f"{done}. Downtime: {lasted}.")
        since, of = origin(incident)
        lasted = format_elapsed((healed[-1].outcome_at or since) - since)
        return Headline("healed", "healed", f"{done}, {lasted} after the {of}.")
    return _ended_headline(incident, reasons)


def _why_held(incident: IncidentRecord) -> str:
    """Returns what is wrong with the restarts of a worker that none of them has healed."""
    if incident.looped:  # those of other incidents have, for a while
        return "it is restarted again and again"
    is_gone = any(one.alert == WORKER_GONE for one in incident.alerts)
    return "it fails at each start" if is_gone else "restarts do not help"


def _is_unverified(action: ActionRecord) -> bool:
    """Whether an action is done and has no outcome yet, though its alert may have ended."""
    return action.outcome is None and action.result == "done"


def _was_held_since(incident: IncidentRecord, action: ActionRecord) -> bool:
    """Whether an alert called an operator and held all restarts after an action began."""
    return any(reason == "hold" and at > action.at for _, reason, at in _decisions(incident))


def _last_reason(incident: IncidentRecord) -> str:
    """Returns the reason of the last decision about an alert that is not over, "" without any.

    Of several such alerts, an alert that needs an operator counts first, then any that is not
    healed: what has become of another alert of the same outage says nothing about it.
    """
    decided = [(alert, reason) for alert, reason, _ in _decisions(incident)]
    found = []
    for one in (one for one in incident.alerts if one.closed is None):
        # An action clears the last decision.
        reason = one.incident.last_decision.partition(" ")[2] or dict(decided).get(one.alert, "")
        grave = reason in NEEDS_OPERATOR, reason not in _WATCHED
        found.append((*grave, one.incident.last_decided_at, reason))
    return max(found or [(False, False, 0.0, decided[-1][1] if decided else "")])[-1]


def _ended_headline(incident: IncidentRecord, reasons: list[str]) -> Headline:
    """Returns the headline of an alert that has ended, and that no action healed."""
    last = incident.reasons[-1] if incident.reasons else ("", "")
    if last[0] == "alert_stale" and last[1]:
        sentence = f"Its alert does not arrive while {last[1]} fires: it is"
        word = "**not known to be over**"
        return Headline("held", word, f"{sentence} {word}.")
    if incident.repairs and all(action.result == "interrupted" for action in incident.repairs):
        sentence = "The alert has ended. The action was **interrupted**."
        return Headline("over", "ended, action interrupted", sentence)
    if incident.repairs and (who := started_by(incident, incident.repairs[-1])):
        sentence = f"The alert has ended: **{who}** had started a new process."
        return Headline("over", f"started by {who}", sentence)
    if _was_stopped(incident):
        sentence = f"The alert has ended: **{describe_reason('stopped')}**."
        return Headline("stopped", "stopped by an operator", sentence)
    if incident.repairs and _stands_again(incident, incident.repairs[-1]):
        sentence = "The alert has ended; the run **stands still again**."
        return Headline("open", "**stands still again**", sentence)
    if incident.repairs and _still_stands(incident, incident.repairs[-1]):
        sentence = "The alert has ended; the run has made **no new step** since the action."
        return Headline("open", "**no new step**", sentence)
    if incident.repairs:
        sentence = "The alert has ended, but not by an action of the remediator."
        return Headline("over", "ended, not by the remediator", sentence)
    if "hold" in reasons:
        sentence = "Other actions were **held** while the alert fired; it has ended."
        return Headline("held", "held", sentence)
    if "already_restarted" in reasons:
        sentence = "The alert has ended: **somebody else** had started a new process."
        return Headline("nothing", "started by somebody else", sentence)
    why = f": {describe_reason(reason)}" if (reason := _why_not(incident)) else ""
    sentence = f"The alert has ended without an action of the remediator{why}."
    return Headline("nothing", "ended without the remediator", sentence)


def started_by(incident: IncidentRecord, action: ActionRecord) -> str:
    """Returns who started the process that an action was about to start, or had started; or ""."""
    for event in incident.events_of(action):
        if event.kind == "outcome" and event.facts.get("taken_over") == "started_by_operator":
            return "an operator"
        if event.kind == "result" and event.facts.get("started_by") == "another":
            return "somebody else"
    return ""


def _was_stopped(incident: IncidentRecord) -> bool:
    """Whether an operator stopped the worker last, as the journal has it."""
    own = [reason for _, reason, _ in _decisions(incident) if reason not in _NO_REASONS]
    ends = (one for action in incident.repairs[-1:] for one in incident.events_of(action))
    return own[-1:] == ["stopped"] or any(
        one.kind == "outcome" and one.facts.get("taken_over") == "stopped" for one in ends
    )


def _stands_again(incident: IncidentRecord, action: ActionRecord) -> bool:
    """Whether an action has not healed a stall, and nothing of the run has moved since.

    The alert comes again once the run is over its limit, or its stacks prove that it hangs.
    """
    run, is_stall = _run_now(incident, action), any(one.alert == STALL for one in incident.alerts)
    moved_at, seen_at = run.get("progress_at"), action.outcome_at
    stands = moved_at is not None and seen_at is not None and moved_at < seen_at
    alive = run.get("trainer_processes") != 0 and not run.get("finished")
    return action.outcome == "not_healed" and is_stall and stands and alive


def _run_now(incident: IncidentRecord, action: ActionRecord) -> Mapping[str, Any]:
    """Returns what the exporter shows now of the run of an incident, whose last action is `action`.

    Nothing where something has taken the worker over: that ends the incident.
    """
    if incident.now is None or any("taken_over" in one.facts for one in incident.events_of(action)):
        return {}
    found: Mapping[str, Any] = incident.now.exporter_facts("runs").get(incident.affected_run, {})
    return found


def _still_stands(incident: IncidentRecord, action: ActionRecord) -> bool:
    """Whether the exporter shows now that the run has made no new step since before `action`.

    The alert of a run that hangs ends with a restart, and comes again once the run is over its
    limit.
    """
    run = _run_now(incident, action)
    start = run.get("interruption_start")
    lasts = start is not None and run.get("interruption_end") is None and start <= action.at
    return lasts and not run.get("finished")


def _ended_since(incident: IncidentRecord) -> bool:
    """Whether the alert ended after the incident was abandoned."""
    ended_at, closed_at = incident.resolved_at, incident.closed_at
    abandoned = incident.closed in GIVEN_UP and closed_at is not None
    return abandoned and ended_at is not None and ended_at > (closed_at or 0.0)


def _open_headline(last: str, *, healed: bool, stopped: bool) -> Headline:
    if stopped:
        sentence = f"The alert has not ended yet; **{describe_reason(last)}**."
        return Headline("stopped", "stopped by an operator", sentence)
    if last == "hold":
        sentence = "**Held**: no actions while the alert fires. An operator is needed."
        return Headline("held", "**held, firing**", sentence)
    why = f" Last decision: {describe_reason(last)}." if last else ""
    if healed:
        sentence = f"Healed; its progress is still watched.{why}"
        return Headline("watched", "healed, still watched", sentence)
    return Headline("open", "**still firing**", f"The alert **still fires**.{why}")


def _why_not(incident: IncidentRecord) -> str:
    """Returns the reason not to act that was in force longest; "" without any."""
    lasted: dict[str, float] = {}
    since: dict[str, tuple[str, float]] = {}
    ended = [(one.alert, "", incident.ended_at or 0.0) for one in incident.alerts]
    for alert, reason, at in [*_decisions(incident), *ended]:
        before, began = since.get(alert, ("", at))
        lasted[before] = lasted.get(before, 0.0) + max(0.0, at - began)
        since[alert] = reason, at
    own = {name: seconds for name, seconds in lasted.items() if name not in _NO_REASONS}
    return max(own, key=own.__getitem__, default="")


def _decisions(incident: IncidentRecord) -> Iterator[tuple[str, str, float]]:
    """Yields the alert, reason and time (Unix seconds) of each decision, in order."""
    for event in incident.events:
        if event.kind == "decision":
            yield event.alert, str(event.facts.get("reason", "")), event.at
