"""What an operator does about hangs that no restart heals, for want of a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import YOU
from trainwarden_remediator.model import WITHOUT_CHECKPOINT
from trainwarden_remediator.policy.incident_handling import handling_of
from trainwarden_remediator.policy.manual_restart import announced_key, manual_restart
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.model import IncidentRecord


def refused_runs(
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
