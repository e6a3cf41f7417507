"""Decides one rung of a ladder: whether it may be tried now, or what stands in the way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager import AlertState, silenced
from trainwarden_remediator.case import Case
from trainwarden_remediator.decision import (
    STUCK,
    Decision,
    Incident,
    PastAction,
    State,
    Verdict,
)
from trainwarden_remediator.grounds import explanation, not_shown, persists, what_is_seen
from trainwarden_remediator.ladder import place
from trainwarden_remediator.largestfirst import larger_first
from trainwarden_remediator.obstacles import breaker_of, end_of, obstacle, save_in_doubt, tried
from trainwarden_remediator.playbooks import Rung, Trouble
from trainwarden_remediator.sight import Sight, WorkerSight
from trainwarden_remediator.targets import GPUS, Budget, Target, wait_after
from trainwarden_remediator.world import Alerts, World


def decide_gpus(case: Case, budget: Budget) -> Decision:
    """Whether what holds the GPUs and belongs to no worker is ended now."""
    state = case.state
    if any(action.ended_at is None for action in state.actions):
        # What is being started may not be known for a worker's yet.
        return case.wait("busy", budget)
    history = [action for action in state.actions if action.key == budget.key]
    if (too_soon := _too_soon(case, budget, history)) is not None:
        return too_soon
    if state.world is None:
        return case.say(Verdict.LOOK, "look", budget)
    if (bar := _bar(case, budget, state.world)) is not None:
        return bar
    orphans = state.world.sight.gpu_orphans if state.world.sight else None
    if orphans is None:
        return case.wait("world_unknown", budget, "the exporter shows no holders")
    if orphans == 0:
        return case.wait("trouble_over", budget)
    if (end := end_of(case, budget, history)) is not None:
        return end
    if state.config.mode == "observe":
        return case.wait("observe_mode", budget, "would end the leftovers")
    return case.say(Verdict.ACT, "clean", budget)


def decide_largest(case: Case) -> Decision:
    """Whether the target that holds the most memory is restarted now."""
    state = case.state
    if (hold := state.held_by()) is not None:
        return case.wait("held", detail=hold.told)
    if state.breaker.latched_at is not None:
        return case.wait("breaker_open")
    if any(action.ended_at is None for action in state.actions):
        # Memory comes back only when the action in flight is through: never two workers at once.
        return case.wait("busy")
    if state.world is None:
        return case.say(Verdict.LOOK, "look")
    if state.world.sight is None:
        return case.wait("world_unknown", detail=state.world.unknown)
    free = [
        target
        for target in state.config.targets
        if not (holder(target, state) or state.held_by(*target.keys))
        and tried([a for a in state.actions if a.key == target.key], target, case.now)
        < target.attempts
    ]
    target = largest(free, state.world.sight)
    if target is None:
        return case.wait("no_candidate")
    return decide_target(case, target)


def largest(targets: Sequence[Target], sight: Sight) -> Target | None:
    """The target whose living processes hold the most memory."""
    sizes = {target.key: _size(target, sight) for target in targets}
    free = [target for target in targets if sizes[target.key] is not None]
    return max(free, key=lambda target: sizes[target.key] or 0.0, default=None)


def _size(target: Target, sight: Sight) -> float | None:
    """Bytes that its workers hold; None where nothing of them runs."""
    seen = (sight.workers[key] for key in target.keys if key in sight.workers)
    sizes = [worker.resident_bytes for worker in seen if worker.processes > 0]
    return sum(sizes) if sizes else None


def decide_call(case: Case) -> Decision:
    """Whether a person is called now; also where Alertmanager cannot be asked: it does no harm."""
    world = case.state.world
    if case.spent:
        return case.wait("asked")
    if world is None:
        return case.say(Verdict.LOOK, "look")
    if world.alerts is not None and (bar := _muted(case, None, world.alerts)) is not None:
        return bar
    if world.sight is not None and _is_seen_over(case, world.sight):
        return case.wait("trouble_over")
    if case.state.config.mode == "observe":
        return case.wait("observe_mode", detail="would call a person")
    return case.say(Verdict.ACT, "notify")


def _is_seen_over(case: Case, sight: Sight) -> bool:
    """Whether the trouble is seen not to last; what is not shown may well do so."""
    ill = WorkerKey(case.incident.run, case.incident.worker)
    if case.watched or (ill.worker and ill not in sight.workers):
        return False
    shown = not not_shown(case.trouble, ill, sight, case.now)
    return shown and not persists(case.trouble, ill, sight, case.now)


def decide_target(case: Case, target: Target) -> Decision:
    """Whether `target` is restarted now."""
    state = case.state
    if (hold := state.held_by(*target.keys)) is not None:
        return case.wait("held", target, hold.told)
    if state.breaker.latched_at is not None:
        return case.wait("breaker_open", target)
    if alert := holder(target, state):
        return case.wait("held_by_alert", target, alert)
    if any(a.key.run in (target.run, GPUS.run) and a.ended_at is None for a in state.actions):
        return case.wait("busy", target)
    # What relieving memory has cost other workers counts too, or it would go through them all.
    shared = case.rung.target == "largest_worker"
    history = [
        action
        for action in state.actions
        if action.key == target.key or (shared and _is_attempt_of(case, action))
    ]
    if not case.spent and (too_soon := _too_soon(case, target, history)) is not None:
        return too_soon
    if state.world is None:
        return case.say(Verdict.LOOK, "look", target)
    if (bar := _bar(case, target, state.world)) is not None:
        return bar
    return _decide_by_sight(case, target, history)


def _is_attempt_of(case: Case, action: PastAction) -> bool:
    return action.incident == case.incident.id and action.kind != "notify"


def holder(target: Target, state: State) -> str:
    """The alert that forbids acting on `target` while it lasts, or nothing.

    One that names no worker is about the whole run.
    """
    for incident in state.may_hold:
        workers = ("", target.worker, *target.also)
        about = incident.run == target.run and incident.worker in workers
        if about and holds(incident, state):
            return incident.alert
    return ""


def holds(incident: Incident, state: State) -> bool:
    """Whether what an incident calls for now is that others are held."""
    rung = _current(incident, state)
    return rung is not None and rung.action == "hold"


def _current(incident: Incident, state: State) -> Rung | None:
    playbook = state.config.playbook(incident.remediation)
    if playbook is None:
        return None
    following = place(playbook.ladder, state.done_about(incident)).next
    return None if following is None else playbook.ladder[following]


def _too_soon(case: Case, budget: Budget, history: Sequence[PastAction]) -> Decision | None:
    """Why it is too soon to act again, if it is."""
    count = tried(history, budget, case.now)
    if count < budget.attempts and _cooldown_left(history, count, budget, case.now) > 0:
        healed = history[-1].incident == case.incident.id and history[-1].healed
        return case.wait("alert_lingers" if healed else "cooldown", budget)
    return None


def _bar(case: Case, target: Budget, world: World) -> Decision | None:
    """Why the alert, as it stands at Alertmanager now, is no ground to act, if it is none."""
    if world.sight is None or world.alerts is None:
        return case.wait("world_unknown", target, world.unknown)
    return _muted(case, target, world.alerts)


def _muted(case: Case, target: Budget | None, alerts: Alerts) -> Decision | None:
    """Why the alert is no ground by what Alertmanager says of it, if it is none."""
    match alerts.states.get(case.incident.fingerprint):
        case AlertState.SILENCED:
            return case.wait("silenced", target)
        case AlertState.INHIBITED:
            return case.wait("inhibited", target)
        case AlertState.ACTIVE:
            return None
    if not case.watched:
        return case.wait("not_active", target)
    # It has resolved, and Alertmanager does not list it; a person may want it left alone.
    if silenced(case.incident.labels, alerts.silences):
        return case.wait("silenced", target)
    return None


def _decide_by_sight(case: Case, target: Target, history: Sequence[PastAction]) -> Decision:
    sight = case.state.world.sight if case.state.world else None
    if sight is None:
        return case.wait("world_unknown", target, "nobody has looked")
    if (gone := _no_trouble(case, target, sight)) is not None:
        return gone
    # Not before the look: the last attempt may have helped, and the alert not know of it yet.
    bar = end_of(case, target, history) or obstacle(case, target, sight)
    if case.state.config.mode == "observe" and (bar is None or bar.reason in STUCK):
        # Who only observes calls nobody.
        would = "would restart it" if bar is None else f"could not restart it: {bar.reason}"
        return case.wait("observe_mode", target, would)
    bar = bar or larger_first(case, target, sight) or breaker_of(case, target)
    if bar is not None:
        return bar
    return case.say(Verdict.ACT, "restart", target, save_in_doubt(case, target, sight))


def _no_trouble(case: Case, target: Target, sight: Sight) -> Decision | None:
    """Why what is seen of the target itself is no ground to restart it, if it is none."""
    for key in target.keys:
        if (odd := _not_for_us(case, target, sight.workers.get(key))) is not None:
            return odd
    if case.watched:
        return None
    ill = case.about(target)
    if missing := not_shown(case.trouble, ill, sight, case.now):
        return case.wait("world_unknown", target, missing)
    stalled = case.trouble is Trouble.NO_PROGRESS
    if stalled and (why := explanation(target.run, sight, case.now)):
        return case.wait("explained", target, why)
    if not persists(case.trouble, ill, sight, case.now):
        return case.wait("trouble_over", target, what_is_seen(case.trouble, ill, sight))
    own = ill if ill in target.keys else target.key
    finished = own in case.state.finished and case.state.setup.finishes(own)
    if case.trouble is Trouble.MISSING and finished:
        return case.refuse("has_finished", target, "it ended with status 0")
    return None


def _not_for_us(case: Case, target: Target, worker: WorkerSight | None) -> Decision | None:
    """Why nothing can be done about one of the workers of `target` as it is seen, if that is so."""
    if worker is None:
        return case.wait("world_unknown", target, "the exporter does not show it")
    if worker.processes > worker.expected:
        detail = f"{worker.processes:g} processes match, {worker.expected:g} expected"
        return case.wait("ambiguous_target", target, detail)
    started = worker.started_at
    if started is not None and started > case.since and case.now - started < target.cooldown:
        return case.wait("already_restarted", target)
    return None


def _cooldown_left(
    history: Collection[PastAction], count: int, target: Budget, now: float
) -> float:
    """Seconds to wait yet; each action of the window doubles the wait after the last one."""
    if not history:
        return 0
    last = max(action.ended_at or action.intent_at for action in history)
    return last + wait_after(count, target.cooldown) - now
