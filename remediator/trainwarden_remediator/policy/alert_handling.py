"""Who acts on an alert, and what is done, for pages, reports and notifications. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    line_end,
    rank,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.model import GAVE_UP, Incident
from trainwarden_remediator.observation.active_alerts import ActiveAlerts
from trainwarden_remediator.policy.alert_end import alert_end
from trainwarden_remediator.policy.halts import is_halted
from trainwarden_remediator.policy.incident_handling import (
    before_decisions,
    handling_of,
    is_refused,
    subject,
)
from trainwarden_remediator.policy.situation import Situation

Tone = Literal["good", "warn", "bad", "quiet"]
Handling = tuple[str, str]
"""Who acts, and what is done: see AlertView."""

DELIVERY_SECONDS = 60.0
"""Time within which an alert with a playbook is delivered to the remediator and decided."""
SCRAPE_SECONDS = 15.0
"""How old the scrape may be by which an alert begins."""
HEALED_SECONDS = 120.0
"""How long after the healing of a worker a wait of its run is a consequence of that fault."""

CHECKPOINT_DAMAGED = "TrainingCheckpointDamaged"
WAITING = "TrainingWaitingForRollouts"
ENDS_TRAINER = frozenset({"gpu_out_of_memory", "oom_thrown", "nccl_timeout", "nccl_error"})
"""Errors that end a trainer or leave it hanging, unless it catches them, as to try with less."""
_IF_TRUE = "acts if this error ends the run or leaves it hanging, which alerts of their own report"

_HEEDS_HOLDS = ("TrainingRemediation", STALL, *LINE_SECONDS)
"""How the names begin of alerts without a playbook that are about what a hold prevents."""
NOT_RUNNING = "not_running"
"""Stands for the reason of a stall whose run is dead."""
_NO_ACTION = YOU, "the remediator takes no action on it"

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

    @property
    def is_unhandled(self) -> bool:
        """Whether it has no playbook, and neither an end, a hold nor an action decides about it."""
        return (self.who, self.handling) == _NO_ACTION


@dataclass(frozen=True, slots=True)
class _Others:
    """What is known beside an alert."""

    situation: Situation
    opened: Sequence[tuple[WorkerKey, Handling]]
    """The handling of the incidents and of the alerts with a playbook, by run and worker."""
    stalled: Collection[str]
    """The runs whose standstill has an alert, and no operator has halted."""


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
    runs = {key.run for key in situation.announced}
    views = [
        replace(
            _view(alert, by_fingerprint.get(alert.fingerprint), situation, complete=complete),
            announced=alert.run in runs,
        )
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
    stalled = {one.run for one in alerts if one.name == STALL} - situation.halted.keys()
    others = _Others(situation, opened, stalled)
    views = [_of_refusal(_by_name(one, others), incidents, situation) for one in views]
    return tuple(sorted(views, key=_rank))


def with_own_step(views: Sequence[AlertView]) -> Sequence[AlertView]:
    """Returns the views without those of a refusal whose alert is among them: that has the step."""
    own = {one.incident for one in views if one.alert.remediation} - {None}
    return [one for one in views if one.alert.remediation or one.incident not in own]


def _rank(view: AlertView) -> tuple[tuple[int, int], bool, float]:
    # The alert of the fault tells more than the one about its incident.
    return rank(view.who, view.tone), view.alert.name == GAVE_UP, view.alert.starts_at


def _view(
    alert: Alert, incident: Incident | None, situation: Situation, *, complete: bool
) -> AlertView:
    key, now = WorkerKey(alert.run, alert.worker), situation.now
    quiet = _SEVERITY_TONES.get(alert.labels.get("severity", "")) is None
    if incident is not None:
        who, handling = handling_of(incident, situation)
        reason = incident.last_decision.partition(" ")[2]
        return AlertView(alert, who, handling, reason, incident.id)
    if end := alert_end(alert.name, key, alert.starts_at, situation):
        return AlertView(alert, NOBODY, end.text)
    if not alert.remediation and quiet:
        return AlertView(alert, NOBODY, "for information")
    acts = bool(alert.remediation) or alert.name.startswith(_HEEDS_HOLDS)
    if (found := before_decisions(key, situation, may_hold=acts)) is not None:
        return AlertView(alert, *found)
    if not alert.remediation:
        return AlertView(alert, *_NO_ACTION)
    if gone := _given_up(alert, [*situation.given_up, *situation.given_up_before]):
        return AlertView(alert, *gone)
    if situation.mode == "observe":
        return AlertView(alert, YOU, "the remediator only observes")
    if not complete:
        return AlertView(alert, REMEDIATOR, "has it in its queue")
    if now - alert.starts_at < DELIVERY_SECONDS:
        return AlertView(alert, REMEDIATOR, "is about to receive it")
    return AlertView(alert, YOU, "the remediator has not received it")


def _given_up(alert: Alert, given_up: Collection[WorkerKey]) -> Handling | None:
    """Returns that the remediator gave up on a worker of an alert, if it did."""
    for gone in given_up:
        if gone.run == alert.run and alert.worker in ("", gone.worker):
            return YOU, f"the remediator gave up on {subject(*gone)}"
    return None


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


def _by_name(view: AlertView, others: _Others) -> AlertView:
    """Returns the view with who acts on just this kind of alert; any other view as it is."""
    decide = _BY_NAME.get(view.alert.name)
    found = None if decide is None else decide(view, others)
    if found is None:
        return view
    is_dead = view.alert.name == STALL and view.alert.run in others.situation.dead
    reason = NOT_RUNNING if is_dead else view.reason
    return replace(view, who=found[0], handling=found[1], reason=reason)


def _what_gave_up(view: AlertView, others: _Others) -> Handling | None:
    if not view.is_unhandled:
        return None
    # Else an operator has started it, or its alert has ended.
    over = "what the remediator gave up is over: the alert ends within two minutes"
    return _given_up(view.alert, others.situation.given_up) or (NOBODY, over)


def _stall(view: AlertView, others: _Others) -> Handling | None:
    alert, situation = view.alert, others.situation
    passed = _has_stepped_since(alert, alert.starts_at, situation)
    if passed and view.incident is None and alert.run not in situation.halted:
        return passed
    if not view.is_unhandled:
        return None
    gone = _given_up(alert, [*situation.given_up, *situation.given_up_before])
    return gone or situation.stall_handling(alert.run)


def _has_stepped_since(alert: Alert, began: float, situation: Situation) -> Handling | None:
    """Returns that nobody acts on an alert whose run has made a step since it began, if it has."""
    if situation.last_steps.get(alert.run, 0.0) <= began:
        return None
    return NOBODY, "its run has made a step since: the alert ends within half a minute"


def _consequence(view: AlertView, others: _Others) -> Handling | None:
    """Returns that nobody acts on what a run does not do because it stands still."""
    run = view.alert.run
    if run in others.stalled:
        return NOBODY, OF_STANDSTILL
    halted = is_halted(view.alert, others.situation.halted)
    return others.situation.stall_handling(run) if halted and view.is_unhandled else None


def _wait(view: AlertView, others: _Others) -> Handling | None:
    """Returns that nobody acts on a wait for rollouts that ends, and why.

    A step ends it, and so does the first batch after a worker of the run was healed.
    """
    alert, situation = view.alert, others.situation
    if not view.is_unhandled:
        return None
    if passed := _has_stepped_since(alert, alert.starts_at - SCRAPE_SECONDS, situation):
        return passed
    for action in reversed(situation.actions):
        ended = action.ended_at
        healed = action.healed and ended is not None and situation.now - ended < HEALED_SECONDS
        if healed and action.key.run == alert.run and alert.labels.get("cause") == "slow":
            return NOBODY, f"{'/'.join(action.key)} was healed: the alert ends within two minutes"
    return None


def _error_line(view: AlertView, others: _Others) -> Handling | None:
    """Returns who acts on the fault that an error line is a sign of, None where only you do."""
    alert, situation = view.alert, others.situation
    if view.who != YOU:
        return None
    own = [
        handling
        for key, handling in others.opened
        if key == WorkerKey(alert.run, "") or _may_have_written(key, alert, situation)
    ]
    if found := next((one for one in own if one[0] == REMEDIATOR), None):
        return found
    # Where the fault has an alert of its own, that one decides.
    before = None if own else _before_an_alert(alert, situation)
    if before is not None or any(who == YOU for who, _ in own):  # it may be the fault of this line
        return before
    return _of_a_run_before(alert, situation) or _of_living_trainer(alert, situation)


_BY_NAME: Mapping[str, Callable[[AlertView, _Others], Handling | None]] = {
    GAVE_UP: _what_gave_up,
    STALL: _stall,
    **dict.fromkeys(STALL_CONSEQUENCES, _consequence),
    WAITING: _wait,
    **dict.fromkeys(LINE_SECONDS, _error_line),
}
"""Who acts on an alert on which no playbook acts, by its name; None: as on any other alert."""


def _of_living_trainer(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns who acts on an error that ends a trainer: nobody, if it has made steps since.

    Until then the remediator, where it may restart the run: its end and its hang have alerts of
    their own. A run goes on without what other errors have cost it, such as a worker or a
    checkpoint; of one without steps, no hang can be seen.
    """
    announced = situation.announced.get(_worker_of(alert))
    stepped = situation.last_steps.get(alert.run)
    of_trainer = any(_may_have_written(one, alert, situation) for one in situation.trainers)
    ended = announced is not None and announced.announcement.has_ended
    if alert.labels.get("pattern") not in ENDS_TRAINER or not of_trainer or stepped is None:
        return None
    if stepped > alert.starts_at:
        soon = line_end(alert.name)
        return NOBODY, f"its run has made steps since: the alert ends within {soon}"
    gone = _given_up(alert, [*situation.given_up, *situation.given_up_before])
    acts = not ended and gone is None and situation.stall_handling(alert.run)[0] == REMEDIATOR
    return (REMEDIATOR, _IF_TRUE) if acts else None


def _may_have_written(key: WorkerKey, alert: Alert, situation: Situation) -> bool:
    """Whether a line is of this worker: of another one, who acts there heals nothing here.

    The lines of a log that has no worker's name are those of the trainers.
    """
    log = _worker_of(alert)
    if log in situation.announced or log in situation.may_restart or alert.worker:
        return key == log
    return key == log or (key.run == log.run and key in (situation.trainers or ()))


def _worker_of(alert: Alert) -> WorkerKey:
    return WorkerKey(alert.run, alert.worker or alert.labels.get("log", ""))


def _before_an_alert(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns how a command that has failed is started again, before its alert."""
    for key, worker in situation.announced.items():
        if not worker.announcement.failure or not _may_have_written(key, alert, situation):
            continue
        who, handling = situation.before_alert(key)
        if who in (REMEDIATOR, NOBODY) and not any(one.covers(key) for one in situation.holds):
            return who, handling
    return None


def _of_a_run_before(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns that nobody acts on the line of a run that has finished, or was started since."""
    if end := alert_end(alert.name, _worker_of(alert), alert.starts_at, situation):
        return NOBODY, end.text
    announced = situation.announced.get(_worker_of(alert))
    if announced is not None and announced.announcement.has_ended:
        return None
    if announced is not None:
        started = announced.announcement.started_at or 0.0
    else:
        healed = (
            one.acted_at
            for one in situation.actions
            if one.healed and _may_have_written(one.key, alert, situation)
        )
        started = max(healed, default=0.0)
    names = (alert.run, alert.labels.get("log", ""), alert.labels.get("pattern", ""))
    # To a Prometheus that has just started, an alert of before is new.
    written = min(alert.starts_at, situation.last_lines.get(names, alert.starts_at))
    # A line that came later would keep the alert active.
    if written < started and situation.now - started < LINE_SECONDS[alert.name]:
        soon = line_end(alert.name)
        return NOBODY, f"its run has been started since: the alert ends within {soon}"
    return None
