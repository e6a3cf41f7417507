"""What an operator has done since about what waits to be sent: what is false by now is not sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainwarden_exporter.processes.left_behind import count_left_behind
from trainwarden_remediator.config.notifications import NotificationEvent
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.policy.alert_end import OUTLASTS_RUN
from trainwarden_remediator.policy.hold_text import on_run

_WHILE_IT_RUNS: frozenset[NotificationEvent] = frozenset(
    {
        *("gave_up", "held_by_alert", "paged", "blocked", "unhandled", "recurring"),
        *("resumed_elsewhere", "stalled", "action_started", "not_healed"),
    }
)
"""Events that say what is wrong with a worker or a run, or done about it."""


def as_of_now(one: Notification, setup: Setup, holds: Sequence[Hold]) -> Notification | None:
    """Returns a notification as it is true now; None if an operator has answered it. Blocks.

    `holds`: those in force.
    """
    event = one.event
    # The end of a hold is no news: what follows it is decided within moments, and reported then.
    if event.facts.get("reason") == "held" and not on_run(holds, event.run):
        return None
    if one.notification_event in _WHILE_IT_RUNS:
        stopped = bool(event.run) and setup.is_stopped(event.run, event.worker)
        return None if stopped and not event.alert.startswith(OUTLASTS_RUN) else one
    if event.kind != "run_finished":
        return one
    own = {
        key.worker: found.announcement
        for key, found in setup.announced.workers.items()
        if key.run == event.run
    }
    facts = dict(event.facts)
    if "still_run" in facts:
        facts["still_run"] = [
            name for name in facts["still_run"] if name in own and not own[name].has_ended
        ]
    if "goes_on" in facts:
        facts["goes_on"] = count_left_behind(own.values())
    # It is about nothing but what does not end, which a message before has reported as finished.
    if "unended" in facts and setup.is_stopped(event.run, ""):
        return None
    return replace(one, event=replace(event, facts=facts))
