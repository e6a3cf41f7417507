"""Who acts on an open incident, and what is done, for pages, reports and notifications. Pure."""

from __future__ import annotations

from collections.abc import Collection

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU, calls_nobody
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.targets import GPUS
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.model import (
    BLOCKED_SECONDS,
    BLOCKING,
    NEEDS_OPERATOR,
    NOT_HELD,
    STOPPED,
    Incident,
    PastAction,
    is_unattended,
)
from trainwarden_remediator.policy.alert_end import alert_end, outlasts_stop
from trainwarden_remediator.policy.hold_text import held, hold_on, holder
from trainwarden_remediator.policy.situation import Situation

MAX_NAME_LENGTH = 200
"""Characters of a name on the pages: names of alerts are untrusted input."""

_PASSIVE = {
    "hold": "mend its cause: until this alert ends, the remediator restarts nothing there",
    "notify": "the on-call is notified",
}
"""Decisions to act that heal nothing, by reason."""
_CALLS = frozenset({"notify", "awaiting_operator"})
_OWN_SUBJECT = frozenset({"unknown_target", "managed_elsewhere"})
"""Reasons whose text says itself that the remediator does not act."""
_HELD_BY_ALERT = "held_by_alert"
"""Another alert holds restarts: an operator must end that one."""

_OVER = frozenset(
    {
        *("has_finished", "silenced", "inhibited", *STOPPED),
        *("condition_cleared", "alert_lingers", "already_restarted"),
    }
)
"""Reasons for which nobody needs to act, though the alert is still active."""

_DOING = {
    "restart": ("is restarting", "the restart of"),
    "command": ("runs the command of", "the command of"),
    "gpu_cleanup": ("terminates leftover processes on", "the cleanup of"),
}
"""What the remediator does, and has done, by kind of action; the target follows."""


def handling_of(
    incident: Incident, situation: Situation, *, active: bool = True
) -> tuple[str, str]:
    """Returns who acts on an open incident, and what is done.

    That follows `The remediator` where that acts, else it is a clause. `active`: whether its alert
    is; else no end of it is announced.
    """
    key = WorkerKey(incident.run, incident.worker)
    if end := alert_end(incident.alert, key, incident.starts_at, situation):
        return NOBODY, end.text if active else end.what
    decided = incident.last_decision
    found = before_decisions(key, situation, incident.id, may_hold=decided not in NOT_HELD)
    if found and decided != "act hold":  # no action in progress spares an operator its cause
        return found
    is_held, by = incident.last_decision.endswith(_HELD_BY_ALERT), incident.last_detail
    if is_held and (end := alert_end(by, key, incident.starts_at, situation)):
        return REMEDIATOR, f"waits for the end of {by} ({end.text})"
    return _by_decision(incident, situation)


def is_refused(
    incident: Incident, about: Alert | WorkerKey, trainers: Collection[WorkerKey]
) -> bool:
    """Whether the remediator gave up on a worker by refusing to act on this open incident.

    That of a whole run is about its `trainers`: what else was given up has a reason of its own.
    """
    key = WorkerKey(about.run, about.worker)
    whole_run = not incident.worker and key in trainers
    same = incident.run == key.run and (incident.worker == key.worker or whole_run)
    refused = incident.last_decision.removeprefix("refuse ") in NEEDS_OPERATOR
    return same and refused and not incident.is_over


def _by_decision(incident: Incident, situation: Situation) -> tuple[str, str]:
    verdict, _, reason = incident.last_decision.partition(" ")
    described = _described(incident, reason, pages=situation.pages)
    outlasts = reason in STOPPED and outlasts_stop(incident.alert)
    if (reason in _OVER and not outlasts) or incident.is_over:
        return NOBODY, described
    if reason == "stall_lasts":
        return situation.stall_handling(incident.run)
    if reason == "held":  # that hold is not in force any more
        verdict = ""
    if situation.mode == "observe" and verdict != "act":
        proposes = reason == "observe_mode"
        more = "proposes an action and waits for your approval" if proposes else "only observes"
        return YOU, f"the remediator {more}"
    if verdict == "act" and reason in _PASSIVE:
        return YOU, described if reason in _CALLS and not situation.pages else _PASSIVE[reason]
    blocked = (
        verdict
        and reason in BLOCKING
        and situation.now - (incident.blocked_since or incident.last_decided_at) >= BLOCKED_SECONDS
    )
    if blocked or reason == _HELD_BY_ALERT or (verdict and is_unattended(incident.last_decision)):
        own = reason in _OWN_SUBJECT or (reason in _CALLS and not situation.pages)
        return YOU, described if own else f"the remediator does not act: {described}"
    if verdict == "act":
        return REMEDIATOR, f"is about to act: {described}"
    if verdict == "wait":
        return REMEDIATOR, f"waits: {described}"
    return REMEDIATOR, "is deciding what to do"


def _described(incident: Incident, reason: str, *, pages: bool) -> str:
    """Returns the reason of a decision in words, with what an operator does about it.

    `pages`: whether a receiver is notified where a playbook calls an operator.
    """
    if reason in _CALLS and not pages:
        return f"the remediator {calls_nobody('paged')}"
    described, detail = event_text.describe_reason(reason), incident.last_detail
    if detail and reason == "cooldown":
        return f"{described}, {detail}"
    if reason in NEEDS_OPERATOR:  # who acts is shown beside it
        return "; ".join(filter(None, (event_text.brief_reason(reason), detail)))
    shown = reason in ("unknown_target", "busy")
    return event_text.describe_reason(reason, detail) if shown else described


def before_decisions(
    key: WorkerKey, situation: Situation, incident: int | None = None, *, may_hold: bool
) -> tuple[str, str] | None:
    """Returns who acts where a hold or an action in progress decides that, else None.

    Without `may_hold` no action would follow the end of a hold.
    """
    doing = next(
        (
            text
            for action in reversed(situation.actions)
            if (action.incident == incident or action.key == key)
            and (text := action_in_progress(action))
        ),
        "",
    )
    if may_hold and (hold := hold_on(key, situation.holds)):
        return holder(hold, situation.now), held(hold, doing)
    return (REMEDIATOR, doing) if doing else None


def action_in_progress(action: PastAction) -> str:
    """Returns `is restarting demo/rollout-0`, or "" for an action that has ended."""
    if action.ended_at is not None or action.result == "interrupted":
        return ""
    doing, done = _DOING.get(action.kind, ("", ""))
    target = "the GPUs" if action.key == GPUS else subject(*action.key)
    if doing and action.result is not None:
        return f"is checking that {done} {target} has helped"
    return f"{doing} {target}" if doing else ""


def subject(run: str, worker: str) -> str:
    """Returns the run and worker of an alert, bounded and printable."""
    return "/".join(bounded(part) for part in (run, worker) if part) or "the host"


def bounded(name: str) -> str:
    """Returns a name, bounded and printable."""
    return event_text.printable(name[:MAX_NAME_LENGTH])
