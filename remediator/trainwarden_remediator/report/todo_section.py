"""The section of a night's report on what an operator has to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.responsibility import (
    NOBODY,
    NOT_FINITE_HANDLING,
    REMEDIATOR,
    STALL,
    YOU,
    urgency,
)
from trainwarden_exporter.webserver.runbooks import (
    ALERTMANAGER,
    ALERTMANAGER_STEP,
    NOTHING_SAVED,
    first_step,
    with_finite_step,
)
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.model import GIVEN_UP, NOT_FINITE, WITHOUT_CHECKPOINT
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.policy.alert_handling import AlertView, with_own_step
from trainwarden_remediator.policy.failing_starts import FAILING, fails_again, mending
from trainwarden_remediator.policy.halts import is_halted
from trainwarden_remediator.policy.incident_handling import handling_of
from trainwarden_remediator.policy.manual_restart import announced_key, manual_restart
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.host_now import HostNow, has_stalled, is_lost
from trainwarden_remediator.report.incident import runbook_link
from trainwarden_remediator.report.markdown import code, text
from trainwarden_remediator.report.model import IncidentRecord


def describe_todo(host: HostNow) -> Iterator[str]:
    """Yields a line for each thing that an operator has to do."""
    current, incidents, situation = host.current, host.incidents, host.situation
    views = host.views or ()
    refused = _refused_runs(current, incidents, situation)
    mended = {**_mending(host, views), **refused}
    for key, step in mended.items():
        yield f"{code('/'.join(key))}: {text(step)}"
    others = (one for one in incidents if (one.run, one.worker) not in mended)
    for one in (one for one in others if is_lost(one)):
        subject = f"{text(one.alert)} on {code(one.name)}"
        yield f"Incident {one.id}, {subject}: an operator is needed."
    parts = (one.alerts for one in incidents if (one.run, one.worker) in refused)
    refusing = {part.incident.id for own in parts for part in own}
    if isinstance(current.exporter, ExporterState):
        yield from _spoilt(current.exporter, situation.without_checkpoints, views)
        yield from _stalls(host, current.exporter, views)
        yield from _missing_workers(host, current.exporter, views)
    for view in (one for one in with_own_step(views) if urgency(one.who) < urgency(REMEDIATOR)):
        key = WorkerKey(view.alert.run, view.alert.worker)
        own = mended if view.alert.name in FAILING else refused
        shown = key in own or view.incident in refusing
        if not shown and not is_halted(view.alert, situation.halted):
            lacks_folder = view.alert.run in situation.without_checkpoints
            yield _first_step(view, current.exporter, lacks_folder=lacks_folder)
    if current.situation.holds:
        yield f"Run {code('trainwarden resume')} when the work is done."
    if isinstance(current.alerts, str):
        yield f"{ALERTMANAGER}: {text(ALERTMANAGER_STEP)}"
    if isinstance(current.exporter, str):
        yield "Restore the monitoring: the exporter does not answer."


def _spoilt(
    exporter: ExporterState, lacking: Collection[str], views: Sequence[AlertView]
) -> Iterator[str]:
    """Yields a line for each run with a loss that is not finite: finished, or without an alert."""
    alerted = {one.alert.run for one in views if one.alert.name == NOT_FINITE}
    for name, run in exporter.runs.items():
        if run.saves_spoilt and name not in alerted:
            yield f"{code(name)}: {NOT_FINITE_HANDLING}."
        if run.finished and (until := run.loss_finite_until) is not None:
            if name in lacking or run.sound_checkpoint(until) is None:
                yield f"Start {code(name)} again: {NOTHING_SAVED}."
                continue
            again = f"Start {code(name)} again from step {until:,.0f} or before"
            yield f"{again}: {code(f'trainwarden checkpoints {name}')} names it."


def _stalls(host: HostNow, exporter: ExporterState, views: Sequence[AlertView]) -> Iterator[str]:
    """Yields a line for each run that stands still, that nobody restarts and no alert reports.

    An alert that nobody needs to act on reports no standstill, unless it is that of the stall.
    """
    reported = {one.alert.run for one in views if one.who != NOBODY or one.alert.name == STALL}
    situation = host.situation
    halted = {one.alert.run for one in views if is_halted(one.alert, situation.halted)}
    for name, run in exporter.runs.items():
        yours = has_stalled(run, host.now) and situation.stall_handling(name)[0] == YOU
        if name in situation.halted and (yours or name in halted):
            yield f"{code(name)}: {text(situation.halted[name])}."
        elif yours and name not in reported:
            stacks = code(f"trainwarden stacks {name}")
            yield f"Find out why {code(name)} stands still: {stacks} names the process that waits."


def _first_step(view: AlertView, exporter: ExporterState | str, *, lacks_folder: bool) -> str:
    alert = view.alert
    run = exporter.runs.get(alert.run) if isinstance(exporter, ExporterState) else None
    until = None if run is None else run.loss_finite_until
    runbook = runbook_link(alert.name, alert.annotations) or "no runbook"
    sound = "" if run is None else run.sound_checkpoint(until)
    sound = None if lacks_folder else sound
    first = text(with_finite_step(first_step(alert.name, view.step_labels), until, sound))
    return f"{text(alert.name)}{on_subject(alert)}: {first} ({runbook})".replace(":  (", ": (")


def _mending(host: HostNow, views: Sequence[AlertView]) -> Mapping[WorkerKey, str]:
    """Returns what is to be done about each worker that fails at each start."""
    found: dict[WorkerKey, str] = {}
    actions, known = host.situation.actions, host.current.announced
    for view in views:
        key = WorkerKey(view.alert.run, view.alert.worker)
        again = view.who != NOBODY and fails_again(view.alert, actions, known)
        if again or urgency(view.who) < urgency(REMEDIATOR):
            faults = (one.fault.error for one in host.incidents if (one.run, one.worker) == key)
            error = redact(next((one for one in faults if one), ""))
            if step := mending(view.alert, actions, known, error, who_acts=view.who):
                found.setdefault(key, step)
    return found


def _missing_workers(
    host: HostNow, exporter: ExporterState, views: Sequence[AlertView]
) -> Iterator[str]:
    """Yields a line for each worker that is gone, that nobody starts and no alert reports."""
    known = {(one.alert.run, one.alert.worker) for one in views}
    for key, worker in exporter.workers.items():
        who, _ = host.situation.before_alert(key)
        nobody = who == YOU or _was_given_up(key, host.incidents)
        if worker.missing and key not in known and nobody:
            yield (
                f"{code('/'.join(key))} is not running, and nobody starts it again: read the last "
                "lines of its log, and start it."
            )


def _was_given_up(key: WorkerKey, incidents: Sequence[IncidentRecord]) -> bool:
    """Whether the newest incident of a worker was abandoned."""
    of_worker = [one for one in incidents if (one.run, one.worker) == key]
    return bool(of_worker) and of_worker[-1].closed in GIVEN_UP


def on_subject(alert: Alert) -> str:
    """Returns ` on RUN/WORKER`, or ` on the host`."""
    name = "/".join(part for part in (alert.run, alert.worker) if part)
    return f" on {code(name)}" if name else " on the host"


def _refused_runs(
    current: CurrentState, incidents: Sequence[IncidentRecord], situation: Situation
) -> Mapping[WorkerKey, str]:
    """Returns the commands that end and start each such run, as in its message.

    Only of commands of `trainwarden run`: how another one is started is not known.
    """
    found = {}
    for one in incidents:
        own = (part.incident for part in one.alerts if part.closed is None)
        refused = [part for part in own if part.last_decision == WITHOUT_CHECKPOINT]
        if not any(handling_of(part, situation)[0] == YOU for part in refused):
            continue
        lacks_folder = one.run in situation.without_checkpoints
        key = announced_key(WorkerKey(one.run, one.worker), situation.trainers)
        if typed := manual_restart(key, current.announced, lacks_folder=lacks_folder):
            stacks = f"`trainwarden stacks {one.run}` names the process that waits. "
            found[WorkerKey(one.run, one.worker)] = f"{'' if one.fault.cause else stacks}{typed}"
    return found
