"""What an operator does first about each active alert."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.run_specs import log_specs
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU
from trainwarden_exporter.webserver.runbooks import first_step, with_finite_step
from trainwarden_remediator.config.schema import Setup
from trainwarden_remediator.holds.service import operator_name
from trainwarden_remediator.policy.alert_handling import AlertView, with_own_step
from trainwarden_remediator.policy.failing_starts import fails_again, mending
from trainwarden_remediator.policy.halts import is_halted
from trainwarden_remediator.policy.incident_handling import bounded
from trainwarden_remediator.policy.manual_restart import announced_key, manual_restart
from trainwarden_remediator.telemetry.headline import CurrentWork


def steps_by_alert(
    work: CurrentWork, setup: Setup, views: Sequence[AlertView]
) -> Mapping[str, str]:
    """Returns what an operator does first, by fingerprint; what several alerts need, once."""
    steps = {one.alert.fingerprint: "" for one in views}
    for one in with_own_step(views):
        steps[one.alert.fingerprint] = _first_step(work, one, setup)
    first = {step: alert for alert, step in reversed(steps.items())}
    return {alert: step if first[step] == alert else "" for alert, step in steps.items()}


def _first_step(work: CurrentWork, view: AlertView, setup: Setup) -> str:
    """Returns what an operator does first; "" where nobody needs to act, or the remediator does."""
    alert, key = view.alert, WorkerKey(view.alert.run, view.alert.worker)
    if is_halted(alert, work.halted):  # how it goes on is in its handling
        return ""
    again = fails_again(alert, work.actions, setup.announced)
    if view.who == NOBODY or (view.who == REMEDIATOR and not again):
        return ""
    error = work.error_of(alert)
    if step := mending(alert, work.actions, setup.announced, error, who_acts=view.who):
        return step
    if view.who == REMEDIATOR:
        return ""
    if view.who != YOU:
        who = view.who.partition(",")[0]
        # The operator who runs this program is likely to be the reader.
        ask = "" if who == operator_name() else f"{who} may not know of this: ask. "
        return (
            f"{ask}When the reason of the hold is over: `trainwarden resume`, or the page `/hold` "
            "here."
        )
    if view.reason == "observe_mode":
        return (
            "Let the remediator do once what it proposes: `trainwarden approve "
            f"{view.incident}`, or the page `/hold` here."
        )
    step = first_step(alert.name, view.step_labels)
    if alert.run in setup.without_checkpoints:
        step = with_finite_step(step, None, None)
    if view.reason == "no_checkpoint" and (typed := _manual_restart(key, setup)):
        return typed if work.cause_of(alert) else f"{step} {typed}"
    log = _log_of(view, setup)
    return f"{step} Its log, on {socket.gethostname()}: `{log}`." if step and log else step


def _manual_restart(key: WorkerKey, setup: Setup) -> str:
    """Returns the commands that end and start a run without a checkpoint; "" if not known."""
    lacks_folder = key.run in setup.without_checkpoints
    trainer = announced_key(key, setup.trainer_keys)
    return manual_restart(trainer, setup.announced, lacks_folder=lacks_folder)


def _log_of(view: AlertView, setup: Setup) -> str:
    """Returns the log of what an alert is about, "" if none is known."""
    run = setup.run_config(view.alert.run)
    specs = () if run is None else log_specs(run)
    own = (one for one in specs if view.alert.worker in ("", one.worker))
    files = (str(one.path / file) for one in own for file in one.files)
    return next((bounded(file) for file in files if "{" not in file), "")  # else a template
