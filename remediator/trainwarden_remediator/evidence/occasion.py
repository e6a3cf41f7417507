"""When evidence is taken, and of what. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.decision import GIVEN_UP, OVER, STUCK, Decision, Incident, State
from trainwarden_remediator.subjects import Subject, processes_among
from trainwarden_remediator.world import World

Kind = Literal["act", "hold", "gave_up", "end"]


@dataclass(frozen=True, slots=True)
class Occasion:
    """One moment of an incident: before an act, when it is begun to hold or given up, its end.

    `key` is what it is about; `action` the journal's number of the act; `world` the look that the
    decision rests on, if there was one.
    """

    kind: Kind
    incident: int
    key: WorkerKey
    run: str
    action: int | None = None
    processes: Collection[Identity] = ()
    world: World | None = None


def before_act(
    incident: Incident,
    key: WorkerKey,
    action: int,
    subjects: Collection[Subject],
    world: World | None,
) -> Occasion:
    """Just before something is done; `subjects` is what that would end."""
    processes = processes_among(subjects)
    return Occasion("act", incident.id, key, incident.run, action, processes, world)


def occasion_of(incident: Incident, decision: Decision, state: State) -> Occasion | None:
    """What a decision not to act, or not any more, is an occasion for, if for anything."""
    kind: Kind
    if decision.reason == "hold":
        kind = "hold"
    elif decision.reason in GIVEN_UP | STUCK or decision.reason == "breaker_open":
        kind = "gave_up"
    elif decision.reason in OVER and state.done_about(incident):
        kind = "end"
    else:
        return None
    named = WorkerKey(incident.run, incident.worker)
    done = [action.key for action in state.done_about(incident)]
    key = decision.target.key if decision.target else done[-1] if done else named
    world = state.world if kind != "end" else None
    return Occasion(kind, incident.id, key, incident.run, world=world)
