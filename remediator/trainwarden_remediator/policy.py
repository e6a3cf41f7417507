"""Decides what is done about an incident. Pure: all it knows of the world is handed to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.case import Case
from trainwarden_remediator.decision import Decision, Incident, PastAction, State, Verdict
from trainwarden_remediator.grounds import explanation, not_shown, persists, progress_not_shown
from trainwarden_remediator.ladder import Place, place
from trainwarden_remediator.playbooks import Playbook, Rung
from trainwarden_remediator.rungs import (
    decide_call,
    decide_gpus,
    decide_largest,
    decide_target,
    holds,
)
from trainwarden_remediator.sight import Sight
from trainwarden_remediator.targets import Target
from trainwarden_remediator.world import BRAKE

WATCH_SECONDS = 6 * 3600.0
"""How long a run is watched for progress once what its alert was about has healed."""

RELIST_SECONDS = 180.0
"""How long an Alertmanager that has been started anew may take to know again of what fires:
Prometheus sends it again each minute at the latest."""


def decide(incident: Incident, state: State, now: float) -> Decision:
    """What is done about `incident` at `now` (Unix seconds).

    Cheap questions come first; the world is asked only when nothing else stands in the way, and
    then everything is asked again, so that the answer rests on one look.
    """
    if incident.fingerprint == BRAKE and state.world is not None:
        state = replace(state, world=state.world.brake or state.world)
    playbook = state.config.playbook(incident.remediation) if incident.remediation else None
    done = state.done_about(incident)
    stands = place(playbook.ladder, done) if playbook else Place(0)
    if not _is_watched(incident, stands, state, now):
        if incident.resolved:
            return Decision(Verdict.REFUSE, "resolved")
        if now - incident.last_heard > state.config.forget_after:
            return _forget(incident, state, now)
    if not incident.remediation:
        return Decision(Verdict.REFUSE, "no_remediation")
    if playbook is None:
        return Decision(Verdict.REFUSE, "unknown_playbook")
    ladder = _Ladder(incident, playbook, done, state, now)
    return ladder.decide_watched(stands) if stands.watched else ladder.decide_next(stands)


def _forget(incident: Incident, state: State, now: float) -> Decision:
    """Whether an alert that was not repeated for long is over.

    One that holds others is not while Alertmanager cannot be asked, lists it, or may have been
    started just now and know of nothing yet: what it holds back could do harm. Nor is it by a step
    of the clock.
    """
    if not holds(incident, state):
        return Decision(Verdict.REFUSE, "forgotten")
    if state.world is None:
        return Decision(Verdict.LOOK, "look")
    if state.world.alerts is None:
        return Decision(Verdict.WAIT, "world_unknown", detail=state.world.unknown)
    if incident.fingerprint in state.world.alerts.states:
        return Decision(Verdict.ACT, "hold")
    gone = Decision(Verdict.WAIT, "not_active", detail="Alertmanager lists it no more")
    waited = now - incident.said_at if incident.said == gone.text else 0.0
    return gone if waited < RELIST_SECONDS else Decision(Verdict.REFUSE, "forgotten")


def _is_watched(incident: Incident, stands: Place, state: State, now: float) -> bool:
    """Whether the run is looked after though the alert may be over.

    Not any more once the same has come again: then that is what is looked after.
    """
    if not stands.watched or now - stands.since > WATCH_SECONDS:
        return False
    about = (incident.remediation, incident.run, incident.worker)
    return not any(
        other.starts_at > incident.starts_at
        for other in state.incidents
        if (other.remediation, other.run, other.worker) == about
    )


@dataclass(frozen=True, slots=True)
class _Ladder:
    """The ladder of an incident, and what of it has been done."""

    incident: Incident
    playbook: Playbook
    done: Sequence[PastAction]
    state: State
    now: float

    def decide_next(self, stands: Place) -> Decision:
        """What is tried against the trouble."""
        rungs = self.playbook.ladder
        index = stands.next
        if index is None or (index > 0 and self._lacks_target(rungs[index])):
            # Nothing else is left; but whether the last has not helped after all is looked at.
            spent = self._case(self._last, since=self.incident.starts_at, spent=True)
            return self._decide(spent)
        return self._decide(self._case(index, since=self.incident.starts_at))

    def decide_watched(self, stands: Place) -> Decision:
        """What is tried when the trouble is over, and the run makes no progress all the same."""
        further = self._last if stands.further is None else stands.further
        case = self._case(further, since=stands.since, watched=True)
        world = self.state.world
        if (hold := self.state.held_by()) is not None:
            return case.wait("held", detail=hold.told)
        if world is None:
            return case.say(Verdict.LOOK, "look")
        if world.sight is None:
            return case.wait("world_unknown", detail=world.unknown)
        if (other := self._told_by(world.sight, stands, case)) is not None:
            return other
        if stands.further is None:
            return case.refuse("ladder_exhausted", detail="the run does not go on")
        if self._lacks_target(case.rung):
            return case.refuse("ladder_exhausted", detail="what would be next is no target")
        return self._decide(case)

    def _told_by(self, sight: Sight, stands: Place, case: Case) -> Decision | None:
        """What else than that the run makes no progress is seen, if anything is."""
        key, trouble = self._ailing, self.playbook.trouble
        run = sight.runs.get(key.run)
        if key not in sight.workers:
            return case.wait("world_unknown", detail="the exporter does not show it")
        if missing := not_shown(trouble, key, sight, self.now):
            return case.wait("world_unknown", detail=missing)
        if persists(trouble, key, sight, self.now):
            # Once its alert is over, it is for a new one to say so.
            back = self.incident.resolved
            return case.wait("trouble_back") if back else self.decide_next(stands)
        if run is None or (missing := progress_not_shown(run)):
            return case.wait("world_unknown", detail=progress_not_shown(run))
        if run.finished or (run.last_step_at or 0.0) > stands.since:
            over = self.incident.resolved
            return case.refuse("goes_on") if over else case.wait("alert_lingers")
        if why := explanation(key.run, sight, self.now):
            return case.wait("explained", detail=why)
        limit = case.rung.after or run.stall_limit or 0.0
        waited = self.now - max(stands.since, run.progress_at or 0.0)
        # After an attempt to make it go on, that was waited for already.
        if self.done[-1].healed and waited <= limit:
            return case.wait("awaiting_progress", detail=f"it has {limit:g} s to go on by itself")
        return None

    @property
    def _ailing(self) -> WorkerKey:
        """Whose trouble it was: the alert says so, or else who was healed of it."""
        named = WorkerKey(self.incident.run, self.incident.worker)
        healed = (action.key for action in reversed(self.done) if action.healed)
        return named if named.worker else next(healed, named)

    @property
    def _last(self) -> int:
        """The last rung that was tried, as far as there still is such a one.

        That a person was called is no attempt, where there was any.
        """
        tried = [action for action in self.done if action.kind != "notify"] or self.done
        return min(tried[-1].rung, len(self.playbook.ladder) - 1)

    def _case(
        self, index: int, *, since: float, spent: bool = False, watched: bool = False
    ) -> Case:
        rung = self.playbook.ladder[index]
        about = (self.incident, self.playbook.trouble, rung, index, self.state, self.now)
        return Case(*about, since=since, spent=spent, watched=watched)

    def _decide(self, case: Case) -> Decision:
        config, rung = self.state.config, case.rung
        if rung.action == "hold":
            known = self.incident.run in {target.run for target in config.targets}
            return case.say(Verdict.ACT, "hold") if known else case.refuse("unknown_target")
        if rung.action == "notify":
            return decide_call(case)
        if rung.target == "gpus" and config.gpu_cleanup is not None:
            return decide_gpus(case, config.gpu_cleanup)
        if rung.target == "largest_worker" and config.targets:
            return decide_largest(case)
        targets = self._targets(rung)
        if not targets:
            return case.refuse("unknown_target")
        if len(targets) > 1:
            return case.wait("ambiguous_target", detail=f"{len(targets)} of its targets train")
        return decide_target(case, targets[0])

    def _lacks_target(self, rung: Rung) -> bool:
        about_one = rung.action == "restart" and rung.target in ("worker", "trainer")
        return about_one and not self._targets(rung)

    def _targets(self, rung: Rung) -> Sequence[Target]:
        """What a rung about one worker is about, as far as it may be acted upon."""
        run = self.incident.run or (self.done[-1].key.run if self.done else "")
        if rung.target == "trainer":
            return self.state.setup.trainers(run)
        if rung.target == "worker":
            target = self.state.config.target(WorkerKey(self.incident.run, self.incident.worker))
            return () if target is None else (target,)
        return ()
