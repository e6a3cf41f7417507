"""The report as JSON data, for programs: the same model as the Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden_exporter.webserver.markdown import plain_text
from trainwarden_remediator.report.causes import likely_causes
from trainwarden_remediator.report.fault import downtime
from trainwarden_remediator.report.host_now import first_to_act, host_now, unwell_runs
from trainwarden_remediator.report.markdown import TimeFormat
from trainwarden_remediator.report.model import ActionRecord, AlertRecord, IncidentRecord
from trainwarden_remediator.report.nightly import Nights
from trainwarden_remediator.report.opening import format_period, opening
from trainwarden_remediator.report.summary import headline


def nights_json(nights: Nights) -> Mapping[str, Any]:
    """Returns the report of all incidents as JSON data; times are Unix seconds."""
    found: dict[str, Any] = {"since": nights.since, "until": nights.now}
    if nights.current is not None:
        current, incidents = nights.current, nights.incidents
        period = format_period(nights.now - nights.since)
        host = host_now(current, incidents, nights.now)
        who, how = first_to_act(host)
        first = opening(current.exporter, incidents, period, nights.now, unwell_runs(host))
        found["summary"] = plain_text(first.replace("\n\n", " "))
        found |= {"who_acts": who, "how": plain_text(how)}
    return found | {"incidents": [incident_json(one) for one in nights.incidents]}


def incident_json(incident: IncidentRecord) -> Mapping[str, Any]:
    """Returns the report of an incident as JSON data; null is what is not known."""
    shown, fault = headline(incident), incident.fault
    return {
        "id": incident.id,
        "alert": incident.alert,
        "run": incident.run,
        "worker": incident.worker,
        "started_at": incident.starts_at,
        "ended_at": incident.ended_at,
        "state": shown.state,
        "summary": plain_text(shown.sentence),
        "likely_causes": [plain_text(one) for one in likely_causes(incident, TimeFormat())],
        "last_error": fault.error,
        "log": fault.log,
        "start_command": incident.start_command,
        "downtime_seconds": downtime(incident),
        "restart_loop": incident.loop,
        "alerts": [_alert_json(one) for one in incident.alerts],
        "actions": [_action_json(one) for one in incident.actions],
    }


def _alert_json(alert: AlertRecord) -> Mapping[str, Any]:
    return {
        "alert": alert.alert,
        "started_at": alert.starts_at,
        "resolved_at": alert.resolved_at,
        "decision": alert.last_decision,
    }


def _action_json(action: ActionRecord) -> Mapping[str, Any]:
    return {
        "id": action.id,
        "kind": action.kind,
        "run": action.run,
        "worker": action.worker,
        "at": action.at,
        "attempt": action.attempt,
        "attempts": action.attempts,
        "step": action.step,
        "result": action.result,
        "outcome": action.outcome,
        "outcome_at": action.outcome_at,
    }
