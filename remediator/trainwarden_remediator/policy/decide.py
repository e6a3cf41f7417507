"""Decides what is done about an incident. Pure: it sees only its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.config.playbooks import Condition, Playbook, Rung
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.model import (
    HELD_BY_ALERT,
    WITHOUT_CHECKPOINT,
    Decision,
    Incident,
    PastAction,
    Reason,
    Verdict,
)
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.observation.snapshot import FAILSAFE_FINGERPRINT, Snapshot
from trainwarden_remediator.policy.alert_blockers import blocks_others, find_suppression
from trainwarden_remediator.policy.conditions import (
    find_root_cause,
    has_moved,
    missing_observation,
    missing_progress,
    still_holds,
)
from trainwarden_remediator.policy.context import DecisionContext, PolicyState
from trainwarden_remediator.policy.ladder import LadderPosition, find_position
from trainwarden_remediator.policy.largest_worker import decide_largest_worker
from trainwarden_remediator.policy.rung import (
    decide_gpu_cleanup,
    decide_notify,
    decide_target,
)

FOLLOW_UP_SECONDS = 6 * 3600.0
"""How long a run is watched for progress after the condition of its alert has healed."""

RELIST_GRACE_SECONDS = 180.0
"""How long an Alertmanager that was restarted may take to learn which alerts fire: Prometheus
repeats them each minute at the latest."""

UNCONFIRMED: frozenset[Reason] = frozenset({"not_active", "inhibited", "observation_failed"})
"""Reasons to wait that do not show whether a run has moved."""


def decide(incident: Incident, state: PolicyState, now: float) -> Decision:
    """Decides what is done about `incident` at `now` (Unix seconds).

    Questions that the journal answers come first. Only if they do not block the incident, a
    snapshot is taken; then all questions are asked again, so that the decision rests on one
    snapshot.
    """
    if (view := snapshot_for(incident, state.snapshot)) is not state.snapshot:
        state = replace(state, snapshot=view)  # a new state builds its indexes again
    playbook = state.config.playbook(incident.remediation) if incident.remediation else None
    done = state.ended_actions(incident)
    position = find_position(playbook.ladder, done) if playbook else LadderPosition(0)
    # An operator has stopped it: no action is needed, and nobody is paged (harm 23).
    stopped = state.setup.is_stopped(incident.run, incident.worker)
    if stopped or not _is_in_follow_up(incident, position, state, now):
        # A resolved alert is over; whether an action helped is verified apart from it (harm 6).
        if incident.resolved:
            stalls = playbook is not None and playbook.condition is Condition.NO_PROGRESS
            return (
                _decide_ended_stall(incident, state)
                if stalls and not stopped
                else Decision(Verdict.REFUSE, "resolved")
            )
        if stopped:
            return _decide_stopped(incident, state, now)
        # An alert that is no longer repeated is from before an outage (harm 5).
        if (unrepeated := _decide_unrepeated(incident, state, now)) is not None:
            return unrepeated
    if not incident.remediation:
        return Decision(Verdict.REFUSE, "no_remediation")
    if playbook is None:
        return Decision(Verdict.REFUSE, "unknown_playbook")
    ladder = _LadderDecision(incident, playbook, done, state, now)
    decision = (
        ladder.decide_follow_up(position) if position.in_follow_up else ladder.decide_next(position)
    )
    stalls = playbook.condition is Condition.NO_PROGRESS
    if stalls and decision.reason in UNCONFIRMED and not _is_shown_moving(incident, state):
        return _without_checkpoint(incident) or decision
    return decision


def snapshot_for(incident: Incident, snapshot: Snapshot | None) -> Snapshot | None:
    """Returns the snapshot that decisions about `incident` rest on."""
    if snapshot is not None and incident.fingerprint == FAILSAFE_FINGERPRINT:
        return snapshot.failsafe or snapshot
    return snapshot


def _decide_ended_stall(incident: Incident, state: PolicyState) -> Decision:
    """Decides whether a stall is over whose alert has ended.

    The alert of a run that hangs ends, too, when the stacks do not prove the hang for a while. A
    newer incident of the run takes over (harm 26). Of the calls for an operator, only that about
    checkpoints lasts: nothing else is compared again while no alert fires.
    """
    over = Decision(Verdict.REFUSE, "resolved")
    if incident.starts_at < state.newest_start(incident):
        return over
    if state.snapshot is None:
        return Decision(Verdict.OBSERVE_FIRST, "needs_observation")
    if _is_shown_moving(incident, state):
        return over
    # An operator silenced it (harm 23).
    alerts = state.snapshot.alerts
    if alerts and find_suppression(incident, alerts, must_be_listed=False) == "silenced":
        return over
    return _without_checkpoint(incident) or Decision(Verdict.WAIT, "stall_lasts")


def _is_shown_moving(incident: Incident, state: PolicyState) -> bool:
    """Whether the exporter shows that a run has moved since it stalled; unknown counts as no."""
    exporter = state.snapshot.exporter if state.snapshot else None
    run = incident.run
    return exporter is not None and has_moved(exporter.runs.get(run), incident.starts_at)


def _without_checkpoint(incident: Incident) -> Decision | None:
    """The last decision again, if it calls an operator to a run without a checkpoint, else None.

    Otherwise the call would end and come again each time the proof of a hang does.
    """
    if incident.last_decision != WITHOUT_CHECKPOINT:
        return None
    return Decision(Verdict.REFUSE, "no_checkpoint", detail=incident.last_detail)


def _decide_stopped(incident: Incident, state: PolicyState, now: float) -> Decision:
    """Decides about an alert of what an operator has stopped.

    Its end never arrives where another alert inhibits it, or this program is down meanwhile.
    """
    stopped = Decision(Verdict.REFUSE, state.setup.stop_reason(incident.run, incident.worker))
    quiet = min(incident.repeated_for(stopped, now), now - incident.last_received_at)
    if quiet < RELIST_GRACE_SECONDS:
        return stopped
    if state.snapshot is None:
        return Decision(Verdict.OBSERVE_FIRST, "needs_observation")
    alerts = state.snapshot.alerts
    gone = alerts is not None and incident.fingerprint not in alerts.states
    return Decision(Verdict.REFUSE, "alert_stale") if gone else stopped


def _decide_unrepeated(incident: Incident, state: PolicyState, now: float) -> Decision | None:
    """Decides about an alert that was not repeated for a long time; None for any other.

    An alert that blocks other actions is kept while Alertmanager cannot be reached, lists it, or
    may have just started and know no alerts yet: the actions that it blocks could do harm (harm 5).
    A step of the clock does not end it either. If it fires after all, it is opened again.
    """
    is_stale = now - incident.last_received_at > state.config.alert_stale_after
    # Its end may have come while this program was down.
    end_missed = state.started_at is not None and incident.last_received_at < state.started_at
    if not (is_stale or end_missed):
        return None
    if not blocks_others(incident, state):
        # The alert that holds its restarts may inhibit it: its condition may last.
        held = incident.last_decision == HELD_BY_ALERT
        detail = incident.last_detail if held else ""
        return Decision(Verdict.REFUSE, "alert_stale", detail=detail) if is_stale else None
    if state.snapshot is None:
        return Decision(Verdict.OBSERVE_FIRST, "needs_observation")
    if state.snapshot.alerts is None:
        unknown = Decision(Verdict.WAIT, "observation_failed", detail=state.snapshot.unknown)
        return unknown if is_stale else None
    if incident.fingerprint in state.snapshot.alerts.states:
        return Decision(Verdict.ACT, "hold")
    gone = Decision(Verdict.WAIT, "not_active", detail="Alertmanager does not list it")
    waited = incident.repeated_for(gone, now)
    return gone if waited < RELIST_GRACE_SECONDS else Decision(Verdict.REFUSE, "alert_stale")


def _is_in_follow_up(
    incident: Incident, position: LadderPosition, state: PolicyState, now: float
) -> bool:
    """Whether the run is still watched for progress though the alert may have resolved.

    A newer incident of the same kind takes over (harm 26).
    """
    if not position.in_follow_up or now - position.follow_up_since > FOLLOW_UP_SECONDS:
        return False
    return incident.starts_at >= state.newest_start(incident)


@dataclass(frozen=True, slots=True)
class _LadderDecision:
    """The ladder of an incident and the actions that were tried."""

    incident: Incident
    playbook: Playbook
    done: Sequence[PastAction]
    state: PolicyState
    now: float

    def decide_next(self, position: LadderPosition) -> Decision:
        """Decides the next rung against the condition."""
        rungs = self.playbook.ladder
        index = position.next_rung
        exhausted = False
        if index is None or (index > 0 and self._lacks_target(rungs[index])):
            # No rung is left; the last attempt may still have helped, so it is observed once more.
            index, exhausted = self._last_rung, True
        started_at = self.incident.starts_at
        return self._decide(self._context(index, started_at, ladder_exhausted=exhausted))

    def decide_follow_up(self, position: LadderPosition) -> Decision:
        """Decides what is tried when the condition has cleared but the run makes no progress."""
        follow_up_rung = (
            self._last_rung if position.follow_up_rung is None else position.follow_up_rung
        )
        context = self._context(follow_up_rung, position.follow_up_since, in_follow_up=True)
        snapshot = self.state.snapshot
        # An operator stopped all actions (harm 23).
        if (hold := self.state.active_hold()) is not None:
            return context.wait("held", detail=hold.description)
        # Progress is judged by a fresh observation or not at all (harms 4 and 9).
        if snapshot is None:
            return context.decide(Verdict.OBSERVE_FIRST, "needs_observation")
        if snapshot.exporter is None:
            return context.wait("observation_failed", detail=snapshot.unknown)
        if (other := self._follow_up_blocker(snapshot.exporter, position, context)) is not None:
            return other
        # An operator has stopped the trainer: there is no progress to wait for (harm 23).
        if self.state.setup.lacks_stopped_trainer(self.incident.run):
            why = self.state.setup.stop_reason(self.incident.run, "")
            return context.refuse("resolved" if self.incident.resolved else why)
        if position.follow_up_rung is None:
            return context.refuse("ladder_exhausted", detail="the run makes no progress")
        if self._lacks_target(context.rung):
            return context.refuse("ladder_exhausted", detail="the next rung has no target")
        return self._decide(context)

    def _follow_up_blocker(
        self, exporter: ExporterState, position: LadderPosition, context: DecisionContext
    ) -> Decision | None:
        """A decision other than the follow-up rung, by what the exporter shows, else None."""
        key, condition = self._affected_worker, self.playbook.condition
        run = exporter.runs.get(key.run)
        # Unknown is not bad: what the exporter does not show is not acted upon (harm 9).
        if key not in exporter.workers:
            return context.wait("observation_failed", detail="the exporter does not show it")
        if missing := missing_observation(condition, key, exporter, self.now):
            return context.wait("observation_failed", detail=missing)
        if still_holds(condition, key, exporter, self.now):
            # Its alert has resolved: a new alert must confirm that the condition is back (harm 4).
            back = self.incident.resolved
            return context.wait("condition_returned") if back else self.decide_next(position)
        # Where the exporter observes no steps, there is no progress to wait for.
        if self.done[-1].step is None and (run is None or not (run.observed or run.finished)):
            over = self.incident.resolved
            return context.refuse("resolved") if over else context.wait("alert_lingers")
        if run is None or (missing := missing_progress(run)):
            return context.wait("observation_failed", detail=missing_progress(run))
        # The run has made a step, also its last one, or has finished: no action is needed (harm 6).
        made = (run.last_step_at or 0.0) > position.follow_up_since
        if run.finished or run.last_step_made or made:
            over = self.incident.resolved
            return context.refuse("progressing") if over else context.wait("alert_lingers")
        # The run waits for a server that has an alert of its own; restarting the trainer would heal
        # nothing (harm 7).
        if why := find_root_cause(key.run, exporter, self.now):
            return context.wait("root_cause_elsewhere", detail=why)
        limit = context.rung.after or run.stall_limit or 0.0
        waited = self.now - max(position.follow_up_since, run.progress_at or 0.0)
        # A healed run gets its whole stall limit before it is restarted (harm 16). After an attempt
        # to restore progress, the verification has waited already.
        if self.done[-1].healed and waited <= limit:
            return context.wait("awaiting_progress", detail=f"it has {limit:g} s to make a step")
        return None

    @property
    def _affected_worker(self) -> WorkerKey:
        """The worker that the alert names, else the healed worker."""
        named = WorkerKey(self.incident.run, self.incident.worker)
        healed = (action.key for action in reversed(self.done) if action.healed)
        return named if named.worker else next(healed, named)

    @property
    def _last_rung(self) -> int:
        """The last rung that was tried, limited to the rungs that the file still has.

        A notification counts as an attempt only where nothing else was tried.
        """
        count_attempts = [action for action in self.done if action.kind != "notify"] or self.done
        return min(count_attempts[-1].rung, len(self.playbook.ladder) - 1)

    def _context(self, index: int, condition_started_at: float, **flags: bool) -> DecisionContext:
        return DecisionContext(
            self.incident,
            self.playbook.condition,
            self.playbook.ladder[index],
            index,
            self.state,
            self.now,
            condition_started_at,
            **flags,
        )

    def _decide(self, context: DecisionContext) -> Decision:
        config, rung = self.state.config, context.rung
        if rung.action == "hold":
            # The file names no target of that run: the alert is not for this remediator (harm 15).
            known = self.incident.run in {target.run for target in config.targets}
            return context.decide(Verdict.ACT, "hold") if known else self._without_target(context)
        if rung.action == "notify":
            return decide_notify(context)
        if rung.target == "gpus" and config.gpu_cleanup is not None:
            return decide_gpu_cleanup(context, config.gpu_cleanup)
        if rung.target == "largest_worker" and config.targets:
            return decide_largest_worker(context)
        targets = self._targets(rung)
        return decide_target(context, targets[0]) if targets else self._without_target(context)

    def _without_target(self, context: DecisionContext) -> Decision:
        why = self.state.setup.why_no_target(self.incident.run, self.incident.worker)
        return context.refuse("unknown_target", detail=why)

    def _lacks_target(self, rung: Rung) -> bool:
        about_one = rung.action == "restart" and rung.target in ("worker", "trainer")
        return about_one and not self._targets(rung)

    def _targets(self, rung: Rung) -> Sequence[Target]:
        """The targets of a rung about one worker or the trainer; empty where there are none."""
        run = self.incident.run or (self.done[-1].key.run if self.done else "")
        if rung.target == "trainer":
            return self.state.setup.trainers(run)
        if rung.target == "worker":
            target = self.state.config.target(WorkerKey(self.incident.run, self.incident.worker))
            return () if target is None else (target,)
        return ()
