"""Decides what alerts block: their own actions at Alertmanager's word, or those of others. Pure.

Each refusal names the harm of docs/harms.md that it prevents.
"""

from __future__ import annotations

from trainwarden_remediator.alertmanager.api import AlertState, is_silenced
from trainwarden_remediator.config.targets import Budget, Target
from trainwarden_remediator.model import Decision, Incident, Reason
from trainwarden_remediator.observation.snapshot import AlertmanagerState, Snapshot
from trainwarden_remediator.policy.agreement import refuse_other_configuration
from trainwarden_remediator.policy.context import DecisionContext, PolicyState
from trainwarden_remediator.policy.ladder import find_position


def blocking_alert(target: Target, state: PolicyState) -> str:
    """Returns the name of the alert that blocks actions on `target`, or "".

    An alert without a worker blocks its whole run.
    """
    workers = ("", target.worker, *target.additional_workers)
    about = state.blocking_incidents(target.run, *workers)
    return next((one.alert for one in about if blocks_others(one, state)), "")


def blocks_others(incident: Incident, state: PolicyState) -> bool:
    """Whether the current rung of an incident is to block other actions."""
    playbook = state.config.playbook(incident.remediation)
    if playbook is None:
        return False
    rung = find_position(playbook.ladder, state.ended_actions(incident)).next_rung
    return rung is not None and playbook.ladder[rung].action == "hold"


def alert_blocker(context: DecisionContext, target: Budget, snapshot: Snapshot) -> Decision | None:
    """A decision to wait where the alert is not confirmed, else None."""
    # Without both answers the alert is not confirmed: no answer, no act (harms 4 and 9).
    if snapshot.exporter is None or snapshot.alerts is None:
        return context.wait("observation_failed", target, snapshot.unknown)
    return suppression(context, target, snapshot.alerts) or refuse_other_configuration(
        context, target, snapshot.exporter
    )


def suppression(
    context: DecisionContext, target: Budget | None, alerts: AlertmanagerState
) -> Decision | None:
    """A decision to wait where Alertmanager suppresses the alert or does not list it, else None."""
    listed = not context.in_follow_up
    reason = find_suppression(context.incident, alerts, must_be_listed=listed)
    return context.wait(reason, target) if reason else None


def find_suppression(
    incident: Incident, alerts: AlertmanagerState, *, must_be_listed: bool
) -> Reason | None:
    """Returns why the alert of `incident` must not be acted upon at Alertmanager's word, or None.

    In a follow-up the alert may have resolved, and need not be listed.
    """
    match alerts.states.get(incident.fingerprint):
        # An operator silenced it (harm 23).
        case AlertState.SILENCED:
            return "silenced"
        # Its cause has an alert of its own, which is acted upon instead (harm 7).
        case AlertState.INHIBITED:
            return "inhibited"
        case AlertState.ACTIVE:
            return None
    # It has resolved, or was never real (harm 4).
    if must_be_listed:
        return "not_active"
    # A silence still applies to an alert that is not listed (harm 23).
    return "silenced" if is_silenced(incident.labels, alerts.silences) else None
