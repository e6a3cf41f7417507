"""Who acts on an alert, and what is done, for pages, reports and notifications. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    LINE_SECONDS,
    NOBODY,
    OF_STANDSTILL,
    REMEDIATOR,
    STALL,
    STALL_CONSEQUENCES,
    YOU,
    calls_nobody,
    rank,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.targets import GPUS
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.model import (
    BLOCKED_SECONDS,
    BLOCKING,
    GAVE_UP,
    NEEDS_OPERATOR,
    STOPPED,
    Incident,
    PastAction,
    is_unattended,
)
from trainwarden_remediator.observation.active_alerts import ActiveAlerts
from trainwarden_remediator.policy.alert_end import OUTLASTS_RUN, alert_end
from trainwarden_remediator.policy.halts import is_halted
from trainwarden_remediator.policy.hold_text import held, hold_on, holder
from trainwarden_remediator.policy.line_alerts import line_handling
from trainwarden_remediator.policy.passed_waits import passed_wait
from trainwarden_remediator.policy.situation import Situation

Tone = Literal["good", "warn", "bad", "quiet"]

DELIVERY_SECONDS = 60.0
"""Time within which an alert with a playbook is delivered to the remediator and decided."""
MAX_NAME_LENGTH = 200
"""Characters of a name on the pages: names of alerts are untrusted input."""

CHECKPOINT_DAMAGED = "TrainingCheckpointDamaged"
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

_HEEDS_HOLDS = ("TrainingRemediation", STALL, *LINE_SECONDS)
"""How the names begin of alerts without a playbook that are about what a hold prevents."""

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

_SEVERITY_TONES: dict[str, Tone] = {"critical": "bad", "warning": "warn"}


@dataclass(frozen=True, slots=True)
class AlertView:
    """An active alert, who acts on it, and what is done about it."""

    alert: Alert
    who: str
    """In the words of `who_acts`."""
    handling: str
    """What is done: follows `The remediator` where that acts, else a clause."""
    reason: str = ""
    """Of the last decision about it."""
    incident: int | None = None
    announced: bool = False
    """Whether it is about a run of `trainwarden run`."""

    @property
    def step_labels(self) -> Mapping[str, str]:
        """The labels by which the first step is chosen.

        Of a refusal, also its reason; of a damaged checkpoint, the kind of the damage.
        """
        reason = {"reason": self.reason} if self.alert.name in (GAVE_UP, STALL) else {}
        kind = {"kind": "trainwarden run"} if self.announced else {}
        damage = {"damage": self.alert.annotations.get("damage", "")}
        return {**self.alert.labels, **reason, **kind, **damage}

    @property
    def tone(self) -> Tone:
        return _SEVERITY_TONES.get(self.alert.labels.get("severity", ""), "quiet")


def build_alert_views(
    alerts: ActiveAlerts, incidents: Sequence[Incident], open_incidents: int, situation: Situation
) -> tuple[AlertView, ...] | None:
    """Returns the alerts, first what needs an operator, then the worst; None if not known.

    `incidents` are those of the oldest of the `open_incidents` outages.
    """
    if isinstance(alerts, str):
        return None
    by_fingerprint = {one.fingerprint: one for one in incidents if not one.is_over}
    complete = open_incidents <= len({one.outage for one in incidents})
    views = [
        _view(alert, by_fingerprint.get(alert.fingerprint), situation, complete=complete)
        for alert in alerts
    ]
    opened = [
        (WorkerKey(one.run, one.worker), handling_of(one, situation))
        for one in incidents
        if not one.is_over
    ]
    opened += [
        (WorkerKey(one.alert.run, one.alert.worker), (one.who, one.handling))
        for one in views
        if one.alert.remediation
    ]
    runs = {key.run for key in situation.announced}
    views = [replace(one, announced=one.alert.run in runs) for one in views]
    views = [_of_refusal(one, incidents, situation) for one in views]
    stalled = {one.alert.run for one in views if one.alert.name == STALL} - situation.halted.keys()
    views = [_of_standstill(one, stalled) for one in views]
    return tuple(sorted((_of_fault(one, opened, situation) for one in views), key=_rank))


def with_own_step(views: Sequence[AlertView]) -> Sequence[AlertView]:
    """Returns the views without those of a refusal whose alert is among them: that has the step."""
    own = {one.incident for one in views if one.alert.remediation} - {None}
    return [one for one in views if one.alert.remediation or one.incident not in own]


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


def _of_refusal(view: AlertView, incidents: Sequence[Incident], situation: Situation) -> AlertView:
    """Returns the view of an alert without a playbook with the reason of a refusal behind it.

    Nothing was attempted: that the remediator gave up is only half of it.
    """
    if view.incident is not None or view.who != YOU or view.alert.name not in (STALL, GAVE_UP):
        return view
    trainers = situation.trainers
    found = next((one for one in incidents if is_refused(one, view.alert, trainers)), None)
    if found is None:
        return view
    reason = found.last_decision.partition(" ")[2]
    who, handling = handling_of(found, situation)
    return replace(view, who=who, handling=handling, reason=reason, incident=found.id)


def _of_fault(
    view: AlertView, opened: Sequence[tuple[WorkerKey, tuple[str, str]]], situation: Situation
) -> AlertView:
    """Returns the view of an error line with who acts on its fault; any other view as it is.

    `opened`: who acts on the incidents and on the alerts with a playbook, by run and worker.
    """
    if view.alert.name not in LINE_SECONDS or view.who != YOU:
        return view
    found = line_handling(view.alert, opened, situation)
    return view if found is None else replace(view, who=found[0], handling=found[1])


def _of_standstill(view: AlertView, stalled: Collection[str]) -> AlertView:
    """Returns the view of an alert that only follows from a stall with nobody to act on it."""
    if view.alert.name not in STALL_CONSEQUENCES or view.alert.run not in stalled:
        return view
    return replace(view, who=NOBODY, handling=OF_STANDSTILL)


def _rank(view: AlertView) -> tuple[tuple[int, int], bool, float]:
    # The alert of the fault tells more than the one about its incident.
    return rank(view.who, view.tone), view.alert.name == GAVE_UP, view.alert.starts_at


def _view(
    alert: Alert, incident: Incident | None, situation: Situation, *, complete: bool
) -> AlertView:
    key = WorkerKey(alert.run, alert.worker)
    quiet = _SEVERITY_TONES.get(alert.labels.get("severity", "")) is None
    if incident is not None:
        who, handling = handling_of(incident, situation)
        reason = incident.last_decision.partition(" ")[2]
        return AlertView(alert, who, handling, reason, incident.id)
    if end := alert_end(alert.name, key, alert.starts_at, situation):
        return AlertView(alert, NOBODY, end.text)
    if not alert.remediation and (passed := passed_wait(alert, situation)):
        return AlertView(alert, *passed)
    if not alert.remediation and quiet:
        return AlertView(alert, NOBODY, "for information")
    acts = bool(alert.remediation) or alert.name.startswith(_HEEDS_HOLDS)
    if (found := _before_decisions(key, situation, may_hold=acts)) is not None:
        return AlertView(alert, *found)
    if not alert.remediation:
        return AlertView(alert, *_without_playbook(alert, situation))
    return AlertView(alert, *_before_its_incident(alert, situation, complete=complete))


def _before_its_incident(alert: Alert, situation: Situation, *, complete: bool) -> tuple[str, str]:
    """Returns who acts on an alert with a playbook, which the remediator has not received yet."""
    key = WorkerKey(alert.run, alert.worker)
    if gone := next(_given_up(key, [*situation.given_up, *situation.given_up_before]), ""):
        return YOU, f"the remediator gave up on {gone}"
    if situation.mode == "observe":
        return YOU, "the remediator only observes"
    if not complete:
        return REMEDIATOR, "has it in its queue"
    if situation.now - alert.starts_at < DELIVERY_SECONDS:
        return REMEDIATOR, "is about to receive it"
    return YOU, "the remediator has not received it"


def _without_playbook(alert: Alert, situation: Situation) -> tuple[str, str]:
    key = WorkerKey(alert.run, alert.worker)
    before = () if alert.name == GAVE_UP else situation.given_up_before
    gone = next(_given_up(key, [*situation.given_up, *before]), "")
    if gone and alert.name in (STALL, GAVE_UP):
        return YOU, f"the remediator gave up on {gone}"
    if alert.name == GAVE_UP:  # an operator has started it, or its alert has ended
        return NOBODY, "what the remediator gave up is over: the alert ends within two minutes"
    if alert.name == STALL or is_halted(alert, situation.halted):
        return situation.stall_handling(alert.run)
    return YOU, "the remediator takes no action on it"


def handling_of(
    incident: Incident, situation: Situation, *, active: bool = True
) -> tuple[str, str]:
    """Returns who acts on an open incident, and what is done: see AlertView.

    `active`: whether its alert is; else no end of it is announced.
    """
    key = WorkerKey(incident.run, incident.worker)
    if end := alert_end(incident.alert, key, incident.starts_at, situation):
        return NOBODY, end.text if active else end.what
    # No action would follow the end of a hold, and none in progress spares an operator the cause.
    acts = incident.last_decision != "act hold"
    if acts and (found := _before_decisions(key, situation, incident.id, may_hold=True)):
        return found
    is_held, by = incident.last_decision.endswith(_HELD_BY_ALERT), incident.last_detail
    if is_held and (end := alert_end(by, key, incident.starts_at, situation)):
        return REMEDIATOR, f"waits for the end of {by} ({end.text})"
    return _by_decision(incident, situation)


def _by_decision(incident: Incident, situation: Situation) -> tuple[str, str]:
    verdict, _, reason = incident.last_decision.partition(" ")
    described = _described(incident, reason, pages=situation.pages)
    outlasts = reason in STOPPED and incident.alert.startswith(OUTLASTS_RUN)
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


def _before_decisions(
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


def _given_up(key: WorkerKey, given_up: Collection[WorkerKey]) -> Iterator[str]:
    """Yields the names of the workers of an alert that were given up."""
    for gone in given_up:
        if gone.run == key.run and key.worker in ("", gone.worker):
            yield subject(*gone)


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
