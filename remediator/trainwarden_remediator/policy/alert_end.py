"""What ends an alert: the end of its run, or what an operator has done. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import LINE_SECONDS, STALL, line_end
from trainwarden_remediator.journal.event_text import describe_reason
from trainwarden_remediator.model import GAVE_UP, NOT_FINITE, RESTART_LOOP, WORKER_GONE
from trainwarden_remediator.policy.situation import Situation

_END_WITH_RUN = {
    STALL: ("half a minute", 60.0),
    WORKER_GONE: ("half a minute", 60.0),
    GAVE_UP: ("two minutes", 150.0),
}
"""Alerts that end with their run, how soon, and for how long that is believed, in seconds."""
_LOOP_ENDS = ("seven minutes", 450.0)
"""The same of a restart loop after a start by an operator, or the end of its run: its alert is kept
for five minutes."""
_DISK_FULL = "TrainingDiskFilling"

FINISHED = "its run has finished"
_OWN_ENDS = {"finished": FINISHED, "failed": "it had failed, and was dismissed"}

OUTLASTS_RUN = (
    *("TrainingGpu", "TrainingDisk"),
    *("TrainingCheckpointDamaged", "TrainingRemediationHeld"),
)
"""How the names begin of alerts that do not end with their run: a stop of it mends no GPU, disk or
checkpoint, and lifts no hold."""


def outlasts_stop(alert: str) -> bool:
    """Whether an alert is for somebody once an operator has stopped its run.

    A run that is stopped has no next checkpoint to save; what has finished has its last one.
    """
    return alert.startswith(OUTLASTS_RUN) and alert != _DISK_FULL


@dataclass(frozen=True, slots=True)
class AlertEnd:
    """What ends an alert; `within`: how soon it ends, or ""."""

    what: str
    within: str = ""

    @property
    def text(self) -> str:
        """What is done about the alert while it is still active."""
        return f"{self.what}: the alert ends within {self.within}" if self.within else self.what


def alert_end(alert: str, key: WorkerKey, since: float, situation: Situation) -> AlertEnd | None:
    """Returns what ends an alert that began at `since`, else None.

    What is wrong with the result of a run that has finished does not end with it.
    """
    soon, believed = _END_WITH_RUN.get(alert, ("", 0.0))
    outlasts = alert.startswith((*OUTLASTS_RUN, NOT_FINITE))
    kept = line_end(alert) if alert in LINE_SECONDS else soon
    kept = _LOOP_ENDS[0] if alert == RESTART_LOOP else kept
    if situation.has_finished(*key) and not outlasts:
        return AlertEnd(FINISHED, kept)
    if situation.is_stopped(*key) and not outlasts_stop(alert):
        if alert in LINE_SECONDS:
            return AlertEnd("its run has been stopped", kept)
        stopped = describe_reason(situation.stop_reason(*key))
        own = _own_end(key, situation)
        return AlertEnd(own or "it was stopped", kept) if kept else AlertEnd(own or stopped)
    if soon and situation.is_started(*key, since, believed):
        return AlertEnd("it was started again", soon)
    soon, believed = _LOOP_ENDS
    if alert == RESTART_LOOP and situation.is_out_of_loop(*key, since, believed):
        return AlertEnd("it was started again", soon)
    return None


def _own_end(key: WorkerKey, situation: Situation) -> str:
    """Returns that a worker, or all of a run, had ended before an operator dismissed it, or ""."""
    found = {
        end
        for (run, worker), end in situation.dismissed.items()
        if run == key.run and key.worker in ("", worker)
    }
    return _OWN_ENDS.get(found.pop(), "") if len(found) == 1 else ""
