"""What is done about each active alert, as the status pages show it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.alertmanager.webhook_payload import Alert
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.model import Incident, is_unattended
from trainwarden_remediator.observation.active_alerts import ActiveAlerts

Tone = Literal["good", "warn", "bad", "quiet"]

DELIVERY_SECONDS = 60.0
"""Time within which an alert with a playbook is delivered to the remediator and decided."""

_PASSIVE = {"hold": "restarts are held; nobody heals it", "notify": "the on-call is notified"}
"""Decisions to act that heal nothing, by reason."""

_SEVERITY_TONES: dict[str, Tone] = {"critical": "bad", "warning": "warn"}


@dataclass(frozen=True, slots=True)
class AlertView:
    """An active alert, and what the remediator does about it."""

    alert: Alert
    handled: bool
    """Whether the remediator acts on it or is deciding; False: nobody acts on it."""
    handling: str
    reason: str = ""
    """Of the last decision about it."""
    incident: int | None = None

    @property
    def tone(self) -> Tone:
        return _SEVERITY_TONES.get(self.alert.labels.get("severity", ""), "quiet")


def build_alert_views(
    alerts: ActiveAlerts,
    incidents: Sequence[Incident],
    open_incidents: int,
    now: float,
    *,
    given_up: Collection[WorkerKey] = (),
) -> tuple[AlertView, ...] | None:
    """Returns the alerts, the worst and oldest first; None if they are not known.

    `incidents` are the oldest of the `open_incidents` open ones; `given_up` are the workers of
    incidents that were closed for want of attempts; `now` is a Unix time.
    """
    if isinstance(alerts, str):
        return None
    by_fingerprint = {one.fingerprint: one for one in incidents if not one.resolved}
    complete = open_incidents <= len(incidents)
    views = [
        _view(alert, by_fingerprint.get(alert.fingerprint), complete=complete, now=now)
        if not _is_given_up(alert, given_up)
        else AlertView(alert, handled=False, handling="gave up: an operator is needed")
        for alert in alerts
    ]
    order = ("bad", "warn", "quiet", "good")
    return tuple(sorted(views, key=lambda one: (order.index(one.tone), one.alert.starts_at)))


def _is_given_up(alert: Alert, given_up: Collection[WorkerKey]) -> bool:
    return bool(alert.remediation) and any(
        key.run == alert.run and alert.worker in ("", key.worker) for key in given_up
    )


def _view(alert: Alert, incident: Incident | None, *, complete: bool, now: float) -> AlertView:
    if not alert.remediation:
        return AlertView(alert, handled=False, handling="nothing acts on it")
    if incident is None:
        if not complete:
            return AlertView(alert, handled=True, handling="queued")
        if now - alert.starts_at < DELIVERY_SECONDS:
            return AlertView(alert, handled=True, handling="is being delivered")
        return AlertView(alert, handled=False, handling="nothing acts on it")
    verdict, _, reason = incident.last_decision.partition(" ")
    described = event_text.describe_reason(reason)
    if is_unattended(incident.last_decision):
        handling = f"nothing acts on it: {described}"
        return AlertView(
            alert, handled=False, handling=handling, reason=reason, incident=incident.id
        )
    if reason in _PASSIVE:
        return AlertView(alert, handled=False, handling=_PASSIVE[reason])
    if verdict == "act":
        return AlertView(alert, handled=True, handling="the remediator acts on it")
    if verdict == "wait":
        return AlertView(alert, handled=True, handling=f"the remediator waits: {described}")
    return AlertView(alert, handled=True, handling="the remediator is deciding what to do")
