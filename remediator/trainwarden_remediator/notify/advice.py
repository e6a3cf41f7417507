"""What an operator does about an alert that calls, for notifications. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.typed_commands import stop_command
from trainwarden_exporter.runtime.formatting import format_clock
from trainwarden_exporter.webserver.runbooks import IF_KNOWN, NOTHING_SAVED, first_step, is_shown
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.config.restart_methods.run import start_in
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import (
    NOT_FINITE,
    RESTART_LOOP,
    RESUMED_ELSEWHERE,
    WITHOUT_CHECKPOINT,
    WORKER_GONE,
    PastAction,
)
from trainwarden_remediator.notify.disk_advice import disk_advice
from trainwarden_remediator.notify.messages import ABOUT_DISK, Notification
from trainwarden_remediator.notify.runbook_advice import runbook_advice
from trainwarden_remediator.policy.failing_starts import mend_hint, mending
from trainwarden_remediator.policy.manual_restart import announced_key, manual_restart


def advice(
    notification: Notification,
    setup: Setup,
    actions: Sequence[PastAction],
    logs: Path | None = None,
    holds: Sequence[Hold] = (),
) -> str:
    """Returns what has restarted a worker, and what an operator does; "" if not known.

    `actions` are the last ones, oldest first; `logs` and `holds`: see `runbook_advice`.
    """
    own = _advice(notification, setup, actions)
    return own or runbook_advice(notification, logs, holds)


def _advice(notification: Notification, setup: Setup, actions: Sequence[PastAction]) -> str:
    event = notification.event
    key = announced_key(WorkerKey(event.run, event.worker), setup.trainer_keys)
    found = setup.announced.workers.get(key)
    announced = None if found is None else found.announcement
    if event.kind == "outcome":
        mend = mend_hint(event.alert) if event.facts.get("again") else ""
        return f"{_passed_over(event)} {mend}".strip()
    if "finite_until" in event.facts or (event.kind, event.alert) == ("unhandled", NOT_FINITE):
        return _without_nan(event, key, setup)
    if event.kind not in ("decision", "unhandled") or not key.run:
        return ""
    if event.facts.get("reason") == "last_step_made":
        return first_step(event.alert, {"reason": "last_step_made", "run": key.run})
    if event.alert.startswith(ABOUT_DISK):
        folder = (announced and announced.checkpoints) or setup.run_path(key.run)
        return disk_advice(event.alert, key.run, notification.fault.disks, folder)
    needs_folder = f"refuse {event.facts.get('reason')}" == WITHOUT_CHECKPOINT
    if needs_folder or event.kind == "unhandled":
        lacks_folder = needs_folder and key.run in setup.without_checkpoints
        return manual_restart(key, setup.announced, lacks_folder=lacks_folder)
    gone = event.alert == WORKER_GONE
    killed = gone and announced is not None and not announced.has_ended
    if killed and start_in(str(event.facts.get("detail")))[0]:
        # Its end is not recorded: the ranks of a launcher may live, and hold its GPUs and ports.
        left = f"{_stop(key, setup)} names them"
        return f"Its own programs were killed; processes of it may live: {left}."
    labels = {"alertname": event.alert, "run": key.run, "worker": key.worker}
    alert = Alert("", notification.alert_started_at or event.at, firing=True, labels=labels)
    text = mending(alert, actions, setup.announced, notification.fault.error)
    if event.alert == RESTART_LOOP:
        until = format_clock(alert.starts_at, event.at)
        started = f"It was started three times or more in the ten minutes before {until}"
        text = text or f"{started}: mend the cause."
        text = " ".join([text, *_of_loop(key, announced, setup, actions, text)])
    return text


def _passed_over(event: Event) -> str:
    """Returns what an operator does about a run that has not resumed from its checkpoint, or ""."""
    if "passed_over" not in event.facts:
        return ""
    step = first_step(RESUMED_ELSEWHERE, {"run": event.run or ""})
    checkpoint = str(event.facts.get("proved_checkpoint", ""))
    return f"{step} The newest is `{checkpoint}`." if is_shown(checkpoint) else step


def _without_nan(event: Event, key: WorkerKey, setup: Setup) -> str:
    """Returns from where a run with a value that is not finite starts again, and how."""
    detail = str(event.facts.get("detail"))
    lacks_folder = key.run in setup.without_checkpoints
    nothing_saved = lacks_folder or "nothing_saved" in event.facts or NOTHING_SAVED in detail
    again = manual_restart(
        *(key, setup.announced),
        lacks_folder=lacks_folder,
        not_finite=True,
        nothing_saved=nothing_saved,
    )
    if event.kind == "unhandled" and (not again or "trainwarden checkpoints" in detail):
        return again
    unknown = "" if "finite_until" in event.facts else IF_KNOWN
    where = f"`trainwarden checkpoints {key.run}` names the checkpoint to go back to{unknown}."
    if nothing_saved:
        where = "" if NOTHING_SAVED in detail else f"{NOTHING_SAVED.capitalize()}."
    return f"{where} {again}".strip()


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
        yield f"It still runs: {_stop(key, setup)} ends it."


def _stop(key: WorkerKey, setup: Setup) -> str:
    return f"`{stop_command(key, setup.announced.workers)}`"
