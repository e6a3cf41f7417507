"""Who acts on the alert of an error line: who acts on the fault that it is a sign of. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    LINE_SECONDS,
    NOBODY,
    REMEDIATOR,
    YOU,
    line_end,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.policy.alert_end import alert_end
from trainwarden_remediator.policy.situation import Situation

CAUGHT = frozenset({"gpu_out_of_memory", "oom_thrown"})
"""Errors of a trainer that it may catch, and try again with less."""


def line_handling(
    alert: Alert, opened: Sequence[tuple[WorkerKey, tuple[str, str]]], situation: Situation
) -> tuple[str, str] | None:
    """Returns who acts on an error line, and what is done; None where only an operator does.

    `opened`: the same of the other alerts and incidents, with their run and worker.
    """
    own = [
        handling
        for key, handling in opened
        if key == WorkerKey(alert.run, "") or _may_have_written(key, alert, situation)
    ]
    if found := next((one for one in own if one[0] == REMEDIATOR), None):
        return found
    # Where the fault has an alert of its own, that one decides.
    before = None if own else _before_an_alert(alert, situation)
    if before is not None or any(who == YOU for who, _ in own):  # it may be the fault of this line
        return before
    return _of_a_run_before(alert, situation) or _caught(alert, situation)


def _caught(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns that nobody acts on a trainer that has made steps since it ran out of GPU memory.

    A run goes on without what other errors have cost it, such as a worker or a checkpoint.
    """
    if alert.labels.get("pattern") not in CAUGHT:
        return None
    of_trainer = any(_may_have_written(one, alert, situation) for one in situation.trainers)
    if not of_trainer or situation.last_steps.get(alert.run, 0.0) <= alert.starts_at:
        return None
    soon = line_end(alert.name)
    return NOBODY, f"its run has made steps since: the alert ends within {soon}"


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
    # A line that came later would keep the alert active.
    if alert.starts_at < started and situation.now - started < LINE_SECONDS[alert.name]:
        soon = line_end(alert.name)
        return NOBODY, f"its run has been started since: the alert ends within {soon}"
    return None
