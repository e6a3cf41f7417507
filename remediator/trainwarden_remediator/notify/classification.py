"""Which notification a journal event leads to, and by what its repetitions are recognised. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwarden_remediator.config.notifications import NotificationEvent
from trainwarden_remediator.journal.recurrence import is_loud
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import GIVEN_UP, NEEDS_OPERATOR


def notification_event_of(event: Event) -> NotificationEvent | None:
    """Returns the notification event for a journal event, or None."""
    facts = event.facts
    match event.kind:
        case "decision" if facts.get("reason") in GIVEN_UP | NEEDS_OPERATOR:
            return "gave_up"
        case "decision" if facts.get("reason") == "hold":
            return "held_by_alert"
        case "breaker_opened":
            return "breaker_opened"
        case "paged" | "alerts_stale":
            return "paged" if event.kind == "paged" else "alerts_stale"
        case "intent":
            return "action_started"
        case "outcome":
            return _of_outcome(facts)
        case "run_finished":
            return "finished"
        case "unhandled" | "unhandled_ended" | "stalled":
            return event.kind
    return None


def _of_outcome(facts: Mapping[str, Any]) -> NotificationEvent:
    if facts.get("outcome") != "healed":
        return "not_healed"
    if "passed_over" in facts:
        return "resumed_elsewhere"
    return "recurring" if is_loud(facts) else "healed"


def deduplication_key(event: Event) -> str:
    """Returns the key by which a repeated notification of the same fact is recognised.

    An incident may need an operator several times: for another reason, or again after `resume`.
    """
    if event.kind in ("intent", "outcome"):
        return f"action {event.action}"
    return f"line {event.id}"


def subject_of(event: Event) -> Sequence[object]:
    """Returns what a lasting notification is about, by which its repetitions are recognised."""
    facts = event.facts
    names = ("reason", "rung", "fingerprint", "unended", "still_run")
    cause = next((facts[name] for name in names if name in facts), None)
    if event.kind == "unhandled_ended" or "lasted_seconds" in facts:
        cause = None  # it has ended for all of them
    return (event.alert, event.run, event.worker, cause)
