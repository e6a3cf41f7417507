"""What an operator does about an alert where nothing better is known than its runbook. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.webserver.runbooks import first_step
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.notify.disk_advice import disk_advice
from trainwarden_remediator.notify.messages import Notification
from trainwarden_remediator.policy.hold_text import actions_start_again, hold_on

EXPORTER_DOWN, BLOCKED = "TrainingExporterDown", "TrainingRemediationBlocked"

_OF_A_VALUE = re.compile(r"`[^`]+`(, `[^`]+`)*:")
"""How a step begins that is only for a value of a label, which an event does not have."""

_STACK_SOCKET = "unix://"


def stack_logs(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the folder of the logs of the stack of `trainwarden up` that runs this program.

    None without one, also under a supervisord of your own.
    """
    url = environment.get("SUPERVISOR_SERVER_URL", "")
    logs = Path(url.removeprefix(_STACK_SOCKET)).parent / "logs"
    found = url.startswith(_STACK_SOCKET) and (logs / "exporter.log").exists()
    return logs if found else None


def runbook_advice(notification: Notification, logs: Path | None, holds: Sequence[Hold]) -> str:
    """Returns what an operator does about a blocked or an unhandled alert; "" if not known.

    `logs`: the folder of the logs of the stack, if there is one; `holds`: those in force.
    """
    event = notification.event
    if notification.notification_event == "blocked":
        return _of_blocked(notification, logs, holds)
    if event.kind != "unhandled":
        return ""
    if event.alert == EXPORTER_DOWN and logs is not None:
        again = "The stack starts it again automatically, also where it hangs"
        lasts = "If this lasts for minutes, its log says why"
        shows = "`trainwarden status` shows whether it answers"
        return f"{again}; {shows}. {lasts}: {logs}/exporter.log."
    step = first_step(event.alert, _labels(event))
    return "" if _OF_A_VALUE.match(step) else step


def _of_blocked(notification: Notification, logs: Path | None, holds: Sequence[Hold]) -> str:
    event = notification.event
    reason = str(event.facts.get("reason"))
    if reason == "held":
        return actions_start_again(hold_on(WorkerKey(event.run, event.worker), holds), event.at)
    if reason == "observation_failed":
        by_exporter = "/metrics" in str(event.facts.get("detail"))
        asked, file = (
            ("the exporter", "exporter.log")
            if by_exporter
            else ("Alertmanager", "alertmanager.log")
        )
        shows = f"`trainwarden status` shows whether {asked} answers"
        log = "" if logs is None else f"; its log: {logs}/{file}"
        again = "The remediator asks again every few seconds, and acts once it has an answer"
        return f"{again}. {shows}{log}."
    if reason == "disk_unusable":
        alerts = ("TrainingDiskReadOnly", "TrainingDiskFilling")
        found = (disk_advice(one, event.run, notification.fault.disks) for one in alerts)
        shown = next(filter(None, found), "")
        return f"{shown} Once the disk is usable, the remediator restarts it.".strip()
    if reason == "managed_elsewhere":  # the command that starts it is a value of its own
        return ""
    return first_step(BLOCKED, {**_labels(event), "reason": reason})


def _labels(event: Event) -> Mapping[str, str]:
    labels = {"run": event.run, "worker": event.worker}
    return {name: value for name, value in labels.items() if value}
