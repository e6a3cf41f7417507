"""What the exporter shows of the cause of an alert on which the remediator does not act. Pure."""

from __future__ import annotations

import math

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.formatting import format_duration, format_size
from trainwarden_exporter.runtime.responsibility import STALL
from trainwarden_exporter.webserver.runbooks import NOTHING_SAVED
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.model import NOT_FINITE
from trainwarden_remediator.observation.model import ExporterState, RunState, WorkerState
from trainwarden_remediator.policy.alert_handling import CHECKPOINT_DAMAGED

MEMORY_OVER_LIMIT = "TrainingWorkerMemoryOverLimit"
CAUSE_SHOWN = frozenset({STALL, CHECKPOINT_DAMAGED, MEMORY_OVER_LIMIT, NOT_FINITE})


def describe_cause(alert: Alert, exporter: ExporterState, *, lacks_folder: bool) -> str:
    """Returns the cause of one of CAUSE_SHOWN, as a clause; "" if it is not known.

    `lacks_folder`: nothing names the folder of the run's checkpoints.
    """
    run = exporter.runs.get(alert.run, RunState())
    if alert.name == CHECKPOINT_DAMAGED:
        return run.resume_problem
    if alert.name == MEMORY_OVER_LIMIT:
        return _memory(exporter.workers.get(WorkerKey(alert.run, alert.worker)))
    if alert.name == STALL:
        return _stall(run)
    return _not_finite(run, alert, lacks_folder=lacks_folder)


def _not_finite(run: RunState, alert: Alert, *, lacks_folder: bool) -> str:
    """Returns where a value became NaN or infinite: the description knows it to some scrapes."""
    log, name = (alert.labels.get(label, "") for label in ("log", "name"))
    if (step := run.finite_until.get((log, name))) is None:
        return ""
    found = f"{name} is NaN or infinite (log {log}), and was finite until step {step:.0f}"
    path = run.sound_checkpoint(step)
    if path is None or lacks_folder:
        return f"{found}: stop the run; {NOTHING_SAVED}"
    sound = f", as {path}" if path else ""
    return (
        f"{found}: stop the run, and go back to a checkpoint of step {step:.0f} or earlier{sound};"
        f" `trainwarden checkpoints {alert.run}` lists them"
    )


def _memory(worker: WorkerState | None) -> str:
    """Returns how much memory a worker holds, and its limit; "" if not known."""
    if worker is None or worker.memory_limit_bytes is None:
        return ""
    held, limit = map(format_size, (worker.memory_bytes, worker.memory_limit_bytes))
    return f"it holds {held}, its limit is {limit}"


def stall_over_at(run: RunState) -> float | None:
    """Returns when silence alone justifies a restart (Unix seconds); None if it never does yet.

    Of a run that is proved to be stuck, it is not what is waited for.
    """
    if run.stuck or run.progress_at is None or not math.isfinite(run.restart_limit or math.inf):
        return None
    return run.progress_at + (run.restart_limit or 0.0)


def _stall(run: RunState) -> str:
    """Returns for what a stuck run waits, else after which time its limit is surely over."""
    if run.stuck or run.restart_limit is None or run.restart_limit == math.inf:
        return run.waits if run.stuck else ""
    return f"its limit is at most {format_duration(run.restart_limit)} without a step"
