"""Who acts on the alert of an error line: who acts on the fault that it is a sign of. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import (
    LINE_OF_A_RUN_BEFORE,
    LINE_SECONDS,
    NOBODY,
    REMEDIATOR,
    before_alert,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.policy.situation import Situation


def line_handling(
    alert: Alert, run_handling: Sequence[tuple[str, str]], situation: Situation
) -> tuple[str, str] | None:
    """Returns who acts on an error line, and what is done; None where only an operator does.

    `run_handling`: the same of the other alerts and incidents of the run.
    """
    if found := next((one for one in run_handling if one[0] == REMEDIATOR), None):
        return found
    return _before_an_alert(alert, situation) or _of_a_run_before(alert, situation)


def _before_an_alert(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns how a command of the run that has failed is started again, before its alert."""
    for key, worker in situation.announced.items():
        if key.run != alert.run or not worker.announcement.failure:
            continue
        if key in situation.given_up or key in situation.given_up_before:
            continue
        able = key in situation.may_restart
        who, handling = before_alert(key.worker, may_restart=able, mode=situation.mode)
        if who == REMEDIATOR:
            return who, handling
    return None


def _of_a_run_before(alert: Alert, situation: Situation) -> tuple[str, str] | None:
    """Returns that nobody acts on the line of a run that has finished, or was started since."""
    key = WorkerKey(alert.run, alert.worker or alert.labels.get("log", ""))
    announced = situation.announced.get(key)
    if announced is not None and announced.announcement.state == "finished":
        return NOBODY, LINE_OF_A_RUN_BEFORE.format(since="finished")
    if announced is not None:
        started = announced.announcement.started_at or 0.0
    else:
        healed = (
            one.acted_at
            for one in situation.actions
            if one.healed and one.key.run == alert.run and alert.worker in ("", one.key.worker)
        )
        started = max(healed, default=0.0)
    # A line that came later would keep the alert active.
    if alert.starts_at < started and situation.now - started < LINE_SECONDS:
        return NOBODY, LINE_OF_A_RUN_BEFORE.format(since="been started since")
    return None
