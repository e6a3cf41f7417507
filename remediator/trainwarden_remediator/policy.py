"""Decides what is done about an incident. Pure: all it knows of the world is handed to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config import (
    GPUS,
    Budget,
    Config,
    Playbook,
    Target,
    Trouble,
    wait_after,
)
from trainwarden_remediator.world import AlertState, Sight, WorkerSight, World


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert that fired, as the journal holds it. Times are Unix seconds.

    `run`, `worker` and `remediation` came over the wire: they are only ever compared with what the
    operator configured.
    """

    id: int
    fingerprint: str
    starts_at: float
    alert: str
    run: str
    worker: str
    remediation: str
    last_heard: float
    resolved: bool
    said: str = ""
    """What the last decision about it came to, as `Decision.text`."""


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action in a target's history; `ended_at` is None while its outcome is open."""

    incident: int
    key: WorkerKey
    intent_at: float
    ended_at: float | None
    healed: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What a decision rests on. `world` is None until somebody has looked."""

    config: Config
    held: bool
    incidents: Sequence[Incident] = ()
    """Every open one, this one too."""
    actions: Sequence[PastAction] = ()
    world: World | None = None


class Verdict(StrEnum):
    ACT = "act"
    WAIT = "wait"
    """Not now; decided again soon."""
    REFUSE = "refuse"
    """Nothing can be done about it, unless the configuration changes."""
    LOOK = "look"
    """The world must be asked before this can be decided."""


Reason = Literal[
    # act
    "restart",
    "clean",
    "hold",
    # refuse
    "resolved",
    "forgotten",
    "no_remediation",
    "unknown_playbook",
    "unknown_target",
    "attempts_exhausted",
    # wait
    "observe_mode",
    "held",
    "held_by_alert",
    "busy",
    "alert_lingers",
    "cooldown",
    "world_unknown",
    "not_active",
    "silenced",
    "inhibited",
    "no_candidate",
    "ambiguous_target",
    "already_restarted",
    "trouble_over",
    # look
    "look",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why. `target` is what it is about, where one could be told."""

    verdict: Verdict
    reason: Reason
    target: Budget | None = None
    detail: str = ""

    @property
    def text(self) -> str:
        """Verdict and reason in two words: what tells a decision from the last one."""
        return f"{self.verdict} {self.reason}"

    @property
    def final(self) -> bool:
        """Whether the incident is closed by this: it is not decided again."""
        return self.reason in ("resolved", "forgotten", "no_remediation", "attempts_exhausted")


def decide(incident: Incident, state: State, now: float) -> Decision:
    """What is done about `incident` at `now` (Unix seconds).

    Cheap questions come first; the world is asked only when nothing else stands in the way, and
    then everything is asked again, so that the answer rests on one look.
    """
    config = state.config
    if incident.resolved:
        return Decision(Verdict.REFUSE, "resolved")
    if now - incident.last_heard > config.forget_after:
        return Decision(Verdict.REFUSE, "forgotten")
    if not incident.remediation:
        return Decision(Verdict.REFUSE, "no_remediation")
    playbook = config.playbook(incident.remediation)
    if playbook is None:
        return Decision(Verdict.REFUSE, "unknown_playbook")
    return _decide_by_playbook(incident, playbook, state, now)


def _decide_by_playbook(
    incident: Incident, playbook: Playbook, state: State, now: float
) -> Decision:
    config = state.config
    if playbook.action == "hold":
        named = incident.run in {target.run for target in config.targets}
        if not named:
            return Decision(Verdict.REFUSE, "unknown_target")
        return Decision(Verdict.ACT, "hold")
    if playbook.target == "gpus":
        if config.gpu_cleanup is None:
            return Decision(Verdict.REFUSE, "unknown_target")
        return _decide_gpus(incident, config.gpu_cleanup, state, now)
    if playbook.target == "largest_worker":
        if not config.targets:
            return Decision(Verdict.REFUSE, "unknown_target")
        return _decide_largest(incident, playbook, state, now)
    target = config.target(WorkerKey(incident.run, incident.worker))
    if target is None:
        return Decision(Verdict.REFUSE, "unknown_target")
    return _decide_target(incident, playbook, target, state, now)


def _decide_gpus(incident: Incident, budget: Budget, state: State, now: float) -> Decision:
    if state.held:
        return Decision(Verdict.WAIT, "held", budget)
    if any(action.ended_at is None for action in state.actions):
        # What is being started may not be known for a worker's yet.
        return Decision(Verdict.WAIT, "busy", budget)
    history = [action for action in state.actions if action.key == budget.key]
    if (too_soon := _too_soon(incident, budget, history, now)) is not None:
        return too_soon
    if state.world is None:
        return Decision(Verdict.LOOK, "look", budget)
    if (bar := _bar(incident, budget, state.world)) is not None:
        return bar
    orphans = state.world.sight.gpu_orphans if state.world.sight else None
    if orphans is None:
        return Decision(Verdict.WAIT, "world_unknown", budget, "the exporter shows no holders")
    if orphans == 0:
        return Decision(Verdict.WAIT, "trouble_over", budget)
    if (tried := _tried(history, budget, now)) >= budget.attempts:
        return Decision(Verdict.REFUSE, "attempts_exhausted", budget, f"{tried} actions already")
    if state.config.mode == "observe":
        return Decision(Verdict.WAIT, "observe_mode", budget, "would end the leftovers")
    return Decision(Verdict.ACT, "clean", budget)


def _decide_largest(incident: Incident, playbook: Playbook, state: State, now: float) -> Decision:
    if state.held:
        return Decision(Verdict.WAIT, "held")
    if any(action.ended_at is None for action in state.actions):
        # Memory comes back only when the action in flight is through: never two workers at once.
        return Decision(Verdict.WAIT, "busy")
    if state.world is None:
        return Decision(Verdict.LOOK, "look")
    if state.world.sight is None:
        return Decision(Verdict.WAIT, "world_unknown", detail=state.world.unknown)
    free = [
        target
        for target in state.config.targets
        if not _holder(target, state.incidents, state.config)
        and _tried([a for a in state.actions if a.key == target.key], target, now) < target.attempts
    ]
    target = largest(free, state.world.sight)
    if target is None:
        return Decision(Verdict.WAIT, "no_candidate")
    return _decide_target(incident, playbook, target, state, now)


def largest(targets: Sequence[Target], sight: Sight) -> Target | None:
    """The target whose living processes hold the most memory."""
    sizes = {
        target.key: worker.resident_bytes
        for target in targets
        if (worker := sight.workers.get(target.key)) is not None and worker.processes > 0
    }
    if not sizes:
        return None
    return max((target for target in targets if target.key in sizes), key=lambda t: sizes[t.key])


def _decide_target(
    incident: Incident, playbook: Playbook, target: Target, state: State, now: float
) -> Decision:
    if state.held:
        return Decision(Verdict.WAIT, "held", target)
    if holder := _holder(target, state.incidents, state.config):
        return Decision(Verdict.WAIT, "held_by_alert", target, holder)
    if any(a.key.run in (target.run, GPUS.run) and a.ended_at is None for a in state.actions):
        return Decision(Verdict.WAIT, "busy", target)
    # What relieving memory has cost other workers counts too, or it would go through them all.
    history = [a for a in state.actions if a.key == target.key or a.incident == incident.id]
    tried = _tried(history, target, now)
    if (too_soon := _too_soon(incident, target, history, now)) is not None:
        return too_soon
    if state.world is None:
        return Decision(Verdict.LOOK, "look", target)
    if (bar := _bar(incident, target, state.world)) is not None:
        return bar
    return _decide_by_sight(incident, playbook, target, state, now, tried=tried)


def _too_soon(
    incident: Incident, budget: Budget, history: Sequence[PastAction], now: float
) -> Decision | None:
    """Why it is too soon to act again, if it is."""
    tried = _tried(history, budget, now)
    if tried < budget.attempts and _cooldown_left(history, tried, budget, now) > 0:
        healed = history[-1].incident == incident.id and history[-1].healed
        return Decision(Verdict.WAIT, "alert_lingers" if healed else "cooldown", budget)
    return None


def _bar(incident: Incident, target: Budget, world: World) -> Decision | None:
    """Why the alert, as it stands at Alertmanager now, is no ground to act, if it is none."""
    if world.sight is None or world.alerts is None:
        return Decision(Verdict.WAIT, "world_unknown", target, world.unknown)
    match world.alerts.get(incident.fingerprint):
        case None:
            return Decision(Verdict.WAIT, "not_active", target)
        case AlertState.SILENCED:
            return Decision(Verdict.WAIT, "silenced", target)
        case AlertState.INHIBITED:
            return Decision(Verdict.WAIT, "inhibited", target)
        case AlertState.ACTIVE:
            return None


def _decide_by_sight(
    incident: Incident,
    playbook: Playbook,
    target: Target,
    state: State,
    now: float,
    *,
    tried: int,
) -> Decision:
    sight = state.world.sight if state.world else None
    worker = sight.workers.get(target.key) if sight else None
    if sight is None or worker is None:
        return Decision(Verdict.WAIT, "world_unknown", target, "the exporter does not show it")
    if worker.processes > worker.expected:
        detail = f"{worker.processes:g} processes match, {worker.expected:g} expected"
        return Decision(Verdict.WAIT, "ambiguous_target", target, detail)
    started = worker.started_at
    if started is not None and started > incident.starts_at and now - started < target.cooldown:
        return Decision(Verdict.WAIT, "already_restarted", target)
    if not persists(playbook.trouble, worker, sight, now):
        return Decision(Verdict.WAIT, "trouble_over", target)
    if tried >= target.attempts:
        # Not before the look: the last attempt may have helped, and the alert not know of it yet.
        return Decision(Verdict.REFUSE, "attempts_exhausted", target, f"{tried} actions already")
    if state.config.mode == "observe":
        return Decision(Verdict.WAIT, "observe_mode", target, "would restart it")
    return Decision(Verdict.ACT, "restart", target)


def _holder(target: Target, incidents: Sequence[Incident], config: Config) -> str:
    """The alert that forbids acting on `target` while it lasts, or nothing."""
    for incident in incidents:
        playbook = config.playbook(incident.remediation)
        if playbook is None or playbook.action != "hold" or incident.resolved:
            continue
        if incident.run == target.run and incident.worker in ("", target.worker):
            return incident.alert
    return ""


def _tried(history: Iterable[PastAction], target: Budget, now: float) -> int:
    """How many of the attempts that `target` has in its window are used up."""
    return sum(now - action.intent_at < target.attempts_window for action in history)


def _cooldown_left(
    history: Collection[PastAction], tried: int, target: Budget, now: float
) -> float:
    """Seconds to wait yet; each action of the window doubles the wait after the last one."""
    if not history:
        return 0
    last = max(action.ended_at or action.intent_at for action in history)
    return last + wait_after(tried, target.cooldown) - now


def persists(trouble: Trouble, worker: WorkerSight, sight: Sight, now: float) -> bool:
    """Whether the exporter still sees the trouble at `now` (Unix seconds)."""
    match trouble:
        case Trouble.OVER_MEMORY_LIMIT:
            return worker.memory_limit_bytes is not None and (
                worker.resident_bytes > worker.memory_limit_bytes
            )
        case Trouble.MISSING:
            return worker.processes < worker.expected and not worker.finished
        case Trouble.OVER_AGE_LIMIT:
            return (
                worker.age_limit_seconds is not None
                and worker.started_at is not None
                and now - worker.started_at > worker.age_limit_seconds
            )
        case Trouble.MEMORY_BELOW_FLOOR:
            return sight.memory_available_bytes < sight.memory_floor_bytes
        case Trouble.GPU_HELD:
            return bool(sight.gpu_orphans)
        case Trouble.ANY:
            return True
