"""What an operator does about an alert that calls, for notifications. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import as_typed, stop_command
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.model import RESTART_LOOP, WITHOUT_CHECKPOINT, PastAction
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.policy.failing_starts import mending


def advice(notification: Notification, setup: Setup, actions: Sequence[PastAction]) -> str:
    """Returns what has restarted a worker, and what an operator does; "" if not known.

    `actions` are the last ones, oldest first.
    """
    event = notification.event
    key = _announced_key(WorkerKey(event.run, event.worker), setup)
    if event.kind not in ("decision", "unhandled") or not key.run:
        return ""
    found = setup.announced.workers.get(key)
    announced = None if found is None else found.announcement
    needs_folder = f"refuse {event.facts.get('reason')}" == WITHOUT_CHECKPOINT
    if needs_folder or event.kind == "unhandled":
        return " ".join(_mended_by_hand(key, announced, setup, needs_folder=needs_folder))
    labels = {"alertname": event.alert, "run": key.run, "worker": key.worker}
    alert = Alert("", notification.alert_started_at or event.at, firing=True, labels=labels)
    text = mending(alert, actions, setup.announced, notification.fault.error)
    if event.alert == RESTART_LOOP:
        text = text or "It was started three times or more within ten minutes: mend the cause."
        text = " ".join([text, *_of_loop(key, announced, setup, actions, text)])
    return text


def _announced_key(key: WorkerKey, setup: Setup) -> WorkerKey:
    """Returns the worker, and of an alert about a whole run its trainer, if it has one."""
    trainers = [one for one in setup.trainer_keys if one.run == key.run]
    return trainers[0] if not key.worker and len(trainers) == 1 else key


def _mended_by_hand(
    key: WorkerKey, announced: Announcement | None, setup: Setup, *, needs_folder: bool
) -> Iterator[str]:
    """Yields what ends a run, and what starts it again."""
    if announced is None:
        return
    start = f": {as_typed(announced.start_command)}" if announced.start_command else ""
    lacks_folder = needs_folder and key.run in setup.without_checkpoints
    with_folder = " with `--checkpoints FOLDER` added" * lacks_folder
    begins = "" if announced.has_ended else f"{_stop(key, setup)} ends it. "
    yield f"{begins}Mend the cause, then start it again{with_folder}{start}."


def _of_loop(
    key: WorkerKey,
    announced: Announcement | None,
    setup: Setup,
    actions: Sequence[PastAction],
    text: str,
) -> Iterator[str]:
    """Yields what goes on though the remediator restarts nothing any more, and what ends it."""
    if any(one.key == key and one.ended_at is None for one in actions):
        yield "The restart that is in progress goes on."
    if announced is None:
        return
    itself = announced.restart == "on-failure"
    if itself and (announced.restarts_itself or not announced.has_ended):
        yield (
            "Its `trainwarden run --restart on-failure` still starts it again, five times in a row"
            f" at most: {_stop(key, setup)} ends that."
        )
    elif not announced.has_ended and "`trainwarden stop " not in text:
        yield f"It goes on until then: {_stop(key, setup)} ends it."


def _stop(key: WorkerKey, setup: Setup) -> str:
    return f"`{stop_command(key, setup.announced.workers)}`"
