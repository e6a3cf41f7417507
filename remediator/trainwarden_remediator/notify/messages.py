"""The content of notifications. Pure.

Messages repeat only the name, run and worker of an alert and who set a hold, as values beside fixed
words; every format shows the values as plain text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_duration, format_time
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.responsibility import LABEL, YOU, who_acts
from trainwarden_remediator.config.notifications import URGENT, NotificationEvent
from trainwarden_remediator.config.restart_methods.run import START_YOURSELF, start_in
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.recurrence import FIRST_LOUD_TIMES, describe_recurrence
from trainwarden_remediator.journal.repeated_steps import describe_repeated
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import (
    HARMLESS_KINDS,
    NEEDS_OPERATOR,
    NOT_HELD,
    RESTART_LOOP,
    WORKER_GONE,
)
from trainwarden_remediator.policy.failing_starts import FAILED_AFTER
from trainwarden_remediator.policy.hold_text import hold_on, holder

VALUE_LENGTH = 600
"""The maximum number of characters of a value."""

MAX_ITEMS = 8
"""The maximum number of notifications in one message; the message counts the rest."""

TITLES: Mapping[NotificationEvent, str] = {
    "gave_up": "incident abandoned, operator needed",
    "held_by_alert": "restarts blocked by this alert, operator needed",
    "breaker_opened": "circuit breaker open: too many actions, operator needed",
    "paged": "operator needed",
    "alerts_stale": "no alerts arrive, operator needed",
    "blocked": "an alert waits for its action",
    "unhandled": "critical alert, operator needed",
    "unhandled_ended": "a critical alert has ended",
    "stalled": "a run stands still, no operator needed yet",
    "action_started": "action started",
    "healed": "healed",
    "recurring": "healed again and again, operator needed",
    "resumed_elsewhere": "a restarted run has not resumed from its checkpoint, operator needed",
    "not_healed": "an action was not successful",
    "finished": "a run has finished",
}

WAITS_TITLE = "not healed before an operator changes something"
"""The title of `gave_up` where the remediator goes on once the cause is removed."""

HALTED_TITLE = "a run stands still, as it was halted by hand"
"""The title of `stalled` of a run at a prompt, or that is stopped."""

STALL_ENDED_TITLE = "a run goes on, its stall has ended"
"""The title of `stalled` of such an end, if the remediator has not acted."""

_ENDS = {
    "goes_on": "a command has ended, and its processes go on unwatched",
    "ends": "a run has made its last step and does not end",
    "finite_until": "a run has finished with a loss that is not finite",
    "perhaps_failed": "a run has ended, and perhaps failed",
}
"""The titles of `finished` of other ends, by a fact of its event."""

LOOP_TITLE = "restarted again and again, operator needed"
"""The title of `held_by_alert` of a restart loop."""

ABOUT_DISK = "TrainingDisk"
"""How the names of the alerts about disks begin."""

_HELD = "the remediator restarts nothing there until this alert ends"

_LOOP_HELD = f"{_HELD}, about ten minutes after the last start; then it tries again"

_COMMAND = re.compile(r": `[^`]+`")

ENDED_TITLE = "a command has failed and nobody starts it again, operator needed"
NOT_RESTARTED_TITLE = "the remediator may not restart it, operator needed"
"""The titles of `blocked` where no action follows."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification for one receiver. `event`: the journal event that it reports.

    `attempts`: the kind and outcome of each completed action of the incident. `alert_started_at`
    (Unix seconds): when its alert started, if it has one. `step`: that of the run when the action
    started.
    """

    id: int
    receiver: str
    notification_event: NotificationEvent
    event: Event
    attempts: tuple[tuple[str, str], ...] = ()
    alert_started_at: float | None = None
    step: float | None = None
    fault: FaultFacts = FaultFacts()  # noqa: RUF009 - frozen
    """What the evidence of the incident shows, where an operator is needed."""
    still_true: bool = False
    """Whether the alert still fires, and what is reported of it is the last that was decided."""
    advice: str = ""
    """What an operator does about it."""
    approved: bool = False
    """Whether an operator approved an action of the incident."""
    before: tuple[str, ...] = ()
    """The titles of what the same message reports of the incident from before,"""
    since: tuple[str, ...] = ()
    """and since then."""


@dataclass(frozen=True, slots=True)
class MessageItem:
    """A notification in a message: fixed words, and values by name."""

    title: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to one receiver. `title` consists of fixed words."""

    title: str
    items: Sequence[MessageItem]
    events: Sequence[NotificationEvent] = ()
    urgent: bool = False
    calls: bool = False
    """Whether some of it says that an operator acts."""
    left_out: int = 0
    """The number of notifications that are not in `items`."""
    instance: str = ""
    command: str = "trainwarden journal"
    """What shows more of it."""

    @property
    def rings(self) -> bool:
        """Whether it makes a sound: whatever says that an operator acts does."""
        return self.urgent or self.calls


def build_message(
    notifications: Sequence[Notification],
    *,
    instance: str,
    mode: str,
    holds: Sequence[Hold] = (),
) -> Message:
    """Combines notifications into one message, urgent ones first; `holds` are those in force.

    Of each incident it has the state alone: the message must not ask an operator to act on what is
    healed since.
    """
    ranked = sorted(_states(notifications), key=_rank)
    events = dict.fromkeys(one.notification_event for one in sorted(notifications, key=_rank))
    more = f" (and {len(ranked) - 1} more)" if len(ranked) > 1 else ""
    title = f"{_title(ranked[0])}{more}"
    incidents = {one.event.incident for one in ranked}
    incident = incidents.pop() if len(incidents) == 1 else None
    items = [_item(notification, mode, holds) for notification in ranked[:MAX_ITEMS]]
    return Message(
        title=title,
        items=items,
        events=tuple(events),
        urgent=any(one.notification_event in URGENT for one in ranked),
        calls=any(one.values.get(LABEL) == YOU for one in items),
        left_out=max(len(ranked) - MAX_ITEMS, 0),
        instance=one_line(instance),
        command="trainwarden journal" if incident is None else f"trainwarden report {incident}",
    )


def _rank(notification: Notification) -> tuple[bool, bool, int]:
    return notification.notification_event not in URGENT, not _asks(notification), notification.id


def _asks(notification: Notification) -> bool:
    """Whether an operator acts on what is not urgent."""
    facts = notification.event.facts
    still_run = facts.get("still_run") and facts.get("rings", True)
    asks = any(map(facts.get, ("halted", "goes_on", "perhaps_failed")))
    return bool(still_run or {"finite_until", "passed_over"} & {*facts} or asks)


def _states(notifications: Sequence[Notification]) -> Iterator[Notification]:
    """Yields of each incident the last notification, or the last that calls and is still true."""
    groups: dict[object, list[Notification]] = defaultdict(list)
    for one in sorted(notifications, key=lambda one: one.event.id):
        event = one.event
        alert = (event.alert, event.run, event.worker) if "fingerprint" in event.facts else one.id
        groups[alert if event.incident is None else f"#{event.incident}"].append(one)
    for group in groups.values():
        calls = [one for one in group if one.still_true and one.notification_event in URGENT]
        state = (calls or group)[-1]
        place = group.index(state)
        yield replace(state, before=_briefly(group[:place]), since=_briefly(group[place + 1 :]))


def _briefly(notifications: Sequence[Notification]) -> tuple[str, ...]:
    titles = (_title(one).removesuffix(", operator needed") for one in notifications)
    return tuple(dict.fromkeys(titles))


def build_trial_message(*, instance: str) -> Message:
    """Builds the message of `notify-test`: urgent, so that a phone rings."""
    title = "test of an urgent notification, nobody needs to act"
    item = MessageItem(title, {"Sent by": "trainwarden notify-test"})
    return Message(title, [item], urgent=True, instance=one_line(instance))


def without_values(full: Message) -> Message:
    """Removes all values from a message, for a receiver that has rejected the full message."""
    return replace(full, items=[MessageItem(item.title) for item in full.items])


def _item(notification: Notification, mode: str, holds: Sequence[Hold]) -> MessageItem:
    event = notification.event
    what = _what(event)
    named, typed = start_in(str(event.facts.get("detail") or ""))
    start = str(event.facts.get("start", ""))
    if notification.notification_event == "blocked":
        start = notification.fault.start or typed
    if not 0 < len(start) <= VALUE_LENGTH:  # a part of it must not be typed
        start = ""
    if named:
        what = what.replace(named, "" if start else START_YOURSELF)
    advice = _without_cut_command(redact(notification.advice))
    fault = notification.fault
    if event.alert.startswith(ABOUT_DISK):  # its cause is the disk, and no end of a process
        fault = replace(fault, cause="", error=fault.disk_error)
    values = {
        LABEL: _who_acts(notification, holds),
        "Alert": event.alert,
        "Worker": event_text.worker_name(event),
        "What": redact(what),
        "What to do": advice,
        "Cause": fault.cause,
        "Last error": fault.error or event.facts.get("last_error", ""),
        "Last lines": fault.lines or event.facts.get("last_lines", ""),
        "Log": notification.fault.log or event.facts.get("log", ""),
        "Start again": "" if start in advice else start,
        "Tried": _describe_attempts(notification, advice),
        "Before": "; ".join(notification.before),
        "Since then": "; ".join(notification.since),
        "Cost": _cost(notification),
        "Repeated": _repeated(event),
        "When": format_time(event.at),
        "Incident": "" if event.incident is None else f"#{event.incident}",
        "Mode": _observes(notification) if mode == "observe" else "",
    }
    return MessageItem(
        _title(notification),
        {name: one_line(value) for name, value in values.items() if value},
    )


def _what(event: Event) -> str:
    """Describes an event in words for a reader who does not know the journal."""
    if event.kind != "decision":  # how often it has come again is a value of its own
        facts = {name: value for name, value in event.facts.items() if name != "again"}
        return event_text.describe(replace(event, facts=facts))
    reason, detail = str(event.facts.get("reason")), str(event.facts.get("detail") or "")
    held = _LOOP_HELD if event.alert == RESTART_LOOP else _HELD
    described = held if reason == "hold" else event_text.describe_reason(reason, detail)
    return f"{event.alert}: {described}"


def _without_cut_command(advice: str) -> str:
    """Returns `advice` without its longest command if it is too long: a part must not be typed."""
    commands = _COMMAND.findall(advice) if len(advice) > VALUE_LENGTH else []
    return advice.replace(max(commands, key=len), "") if commands else advice


def _who_acts(notification: Notification, holds: Sequence[Hold]) -> str:
    event = notification.event
    if notification.notification_event not in URGENT:
        if _asks(notification):
            return who_acts(operator=True)
        goes_on = notification.notification_event in ("action_started", "not_healed", "stalled")
        return who_acts(remediator=goes_on and "lasted_seconds" not in event.facts)
    key = WorkerKey(event.run or "", event.worker or "")
    # Nothing follows when a hold is lifted: the alert blocks restarts itself, or none is taken.
    waits = event.kind == "unhandled" and "proposed" in event.facts
    decided = f"{event.facts.get('verdict')} {event.facts.get('reason')}"
    if decided in NOT_HELD or (
        notification.notification_event in ("held_by_alert", "unhandled", "resumed_elsewhere")
        and not waits
    ):
        return who_acts(operator=True)
    hold = hold_on(key, holds)
    return who_acts(operator=True) if hold is None else holder(hold, event.at)


def _observes(notification: Notification) -> str:
    """Returns the mode observe, which takes only actions that an operator approves."""
    if notification.approved:
        return "observe (an operator approved the action)"
    acted = notification.attempts or notification.event.action is not None
    return f"observe (no {'further ' if acted else ''}actions are taken)"


def _title(notification: Notification) -> str:
    if "passed_over" in notification.event.facts:
        return TITLES["resumed_elsewhere"]
    if notification.event.facts.get("reason") in NEEDS_OPERATOR:
        return WAITS_TITLE
    if notification.event.facts.get("reason") == "managed_elsewhere":
        gone = notification.event.alert == WORKER_GONE
        ended, _ = start_in(notification.event.facts.get("detail", ""))
        return ENDED_TITLE if gone and ended else NOT_RESTARTED_TITLE
    if notification.event.facts.get("halted"):
        return HALTED_TITLE
    if "lasted_seconds" in notification.event.facts:
        return STALL_ENDED_TITLE
    if end := next((one for one in _ENDS if one in notification.event.facts), ""):
        return _ENDS[end]
    if notification.notification_event == "held_by_alert":
        is_loop = notification.event.alert == RESTART_LOOP
        return LOOP_TITLE if is_loop else TITLES["held_by_alert"]
    return TITLES[notification.notification_event]


def _repeated(event: Event) -> str:
    """Returns how often a fault was healed, at which pace, and what that has cost so far."""
    text = describe_recurrence(event)
    rings = event.facts.get("again", {}).get("times") == FIRST_LOUD_TIMES - 1
    return f"{text}; the next time rings" if rings else text


def _cost(notification: Notification) -> str:
    """Returns what a fault cost: the time without a new step, and the steps made again.

    Also the time from the alert to health, which is all that is known of a run without steps.
    """
    event, started = notification.event, notification.alert_started_at
    if event.facts.get("outcome") != "healed" or started is None:
        return ""
    cost = f"{format_duration(round(max(event.at - started, 0)))} from the alert to health"
    if (start := event.facts.get("interruption_start")) is not None:
        end = event.facts.get("interruption_end")
        lost = format_duration(round(max((event.at if end is None else end) - start, 0)))
        cost = f"{lost} without a new step{'' if end is not None else ' so far'} ({cost})"
    again = describe_repeated(event.facts, notification.step)
    return f"{cost}; {again}" if again else cost


def _describe_attempts(notification: Notification, advice: str) -> str:
    """Returns what was tried, and how often, without the failed restarts that `advice` counts."""
    actions = notification.attempts
    if "passed_over" in notification.event.facts:  # it runs, but nobody may take it as well
        actions = tuple(one for one in actions if one[1] != "healed")
    counted = advice.startswith(FAILED_AFTER)
    return "; ".join(
        f"{kind} {outcome.replace('_', ' ')}" + (f", {count} times" if count > 1 else "")
        for (kind, outcome), count in Counter(actions).items()
        if not (counted and outcome.startswith("not_healed") and kind not in HARMLESS_KINDS)
    )


def one_line(text: str) -> str:
    """Returns `text` as one line of limited length."""
    line = event_text.printable(" ".join(text.split()))
    cut = f"{line[: VALUE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    return line if len(line) <= VALUE_LENGTH else cut
