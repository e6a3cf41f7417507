"""When to collect evidence, and about which target. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.model import CLOSED, GIVEN_UP, NEEDS_OPERATOR, Decision, Incident
from trainwarden_remediator.observation.snapshot import Snapshot
from trainwarden_remediator.policy.context import PolicyState

TriggerKind = Literal["act", "hold", "gave_up", "end"]


@dataclass(frozen=True, slots=True)
class EvidenceTrigger:
    """A moment of an incident: before an action, at a hold, when abandoned, at its end.

    `key`: the target; `action`: the journal's ID of the action; `snapshot`: the snapshot that the
    decision is based on, if any.
    """

    kind: TriggerKind
    incident: int
    key: WorkerKey
    run: str
    action: int | None = None
    processes: Collection[Identity] = ()
    snapshot: Snapshot | None = None


def trigger_for_decision(
    incident: Incident, decision: Decision, state: PolicyState
) -> EvidenceTrigger | None:
    """Returns the trigger for a decision not to act, or None."""
    kind: TriggerKind
    # Of a worker that was restarted: how its last process ended, too.
    tried = decision.reason == "held_by_alert" and state.ended_actions(incident)
    if decision.reason in ("hold", "managed_elsewhere") or tried:
        kind = "hold"
    elif decision.reason in GIVEN_UP | NEEDS_OPERATOR or decision.reason == "breaker_open":
        kind = "gave_up"
    elif decision.reason in CLOSED and state.ended_actions(incident):
        kind = "end"
    else:
        return None
    named = WorkerKey(incident.run, incident.worker)
    done = [action.key for action in state.ended_actions(incident)]
    key = decision.target.key if decision.target else done[-1] if done else named
    snapshot = state.snapshot if kind != "end" else None
    return EvidenceTrigger(kind, incident.id, key, incident.run, snapshot=snapshot)
