"""Renders the status page: the state of the remediator and the newest events of its journal.

Also a summary as JSON, for the exporter's status page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime import formatting
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.resolved_path import resolved_path
from trainwarden_exporter.runtime.responsibility import LABEL, REMEDIATOR, urgency
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.runbooks import (
    ALERTMANAGER,
    ALERTMANAGER_STEP,
    FirstStep,
    distinct_steps,
    runbook_link,
)
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.model import (
    GIVEN_UP,
    NEEDS_OPERATOR,
    NO_ACTION_NEEDED,
    Incident,
    PastAction,
)
from trainwarden_remediator.policy.alert_handling import AlertView
from trainwarden_remediator.policy.hold_text import (
    MAX_TEXT_LENGTH,
    describe_hold,
    hold_json,
    in_force,
)
from trainwarden_remediator.policy.incident_handling import (
    action_in_progress,
    bounded,
    handling_of,
    subject,
)
from trainwarden_remediator.policy.situation import Situation
from trainwarden_remediator.telemetry.first_steps import steps_by_alert
from trainwarden_remediator.telemetry.headline import CurrentWork, critical_problem, headline
from trainwarden_remediator.telemetry.state import RemediatorState

EVENTS = 60
"""Number of events on the page."""
ALERTS = 20
ACTIONS = 10
FIRST_STEPS = 3
HOLDS = 20
WORKERS = 500
"""Number of alerts, actions, holds and workers in the summary at most."""

_ACTIONS = {
    "restart": "restart",
    "command": "command",
    "gpu_cleanup": "cleanup of leftovers",
    "notify": "notification",
}


def render(
    work: CurrentWork, setup: Setup, events: Iterable[Event], *, now: float, refresh: bool = False
) -> str:
    """Returns the page as HTML. `events` are the newest first; `now` is a Unix time."""
    config = setup.config
    first = headline(work, config, now=now)
    links = {"metrics": "metrics", "exporter": f"{config.exporter.url}/"}
    links |= {"report": "report", "hold": "hold"}
    if (grafana := setup.exporter_config.grafana_url) is not None:
        links["boards"] = f"{grafana}/d/trainwarden-night"
    return html.render(
        program="remediator",
        status=f"mode {work.state.mode}",
        tone=first.tone,
        headline=first.sentence,
        acts=(first.who, first.how),
        sections="\n".join(
            (
                _first_steps(work, setup, now=now),
                html.section("Active alerts", _active_alerts(work, now=now)),
                html.section("State", _state(work.state, now=now)),
                html.section("Journal, newest first", _journal(events, work.faults)),
                html.section("Targets", _targets(config)),
            )
        ),
        now=now,
        links=links,
        refresh=refresh,
    )


def _first_steps(work: CurrentWork, setup: Setup, *, now: float) -> str:
    views = work.views(now) or ()
    steps = steps_by_alert(work, setup, views)
    alerts = (one.alert for one in views)
    shown = distinct_steps(
        FirstStep(one.name, steps[one.fingerprint], one.run, one.worker) for one in alerts
    )
    if isinstance(work.alerts, str):
        shown.append(FirstStep(ALERTMANAGER, ALERTMANAGER_STEP))
    return html.first_steps(one.as_html for one in shown[:FIRST_STEPS])


def _active_alerts(work: CurrentWork, *, now: float) -> str:
    views = work.views(now)
    if views is None:
        return f'<p class="warn">Not known: {escape(str(work.alerts))}.</p>'
    rows = "\n".join(_active_alert(view, now=now) for view in views[:ALERTS])
    if not rows:
        return '<p class="quiet">No alert fires.</p>'
    more = f'<p class="quiet">and {len(views) - ALERTS:,} more</p>' if len(views) > ALERTS else ""
    columns = {"Alert": "", "About": "", LABEL: "", "Alert began": "number"}
    return f"{html.table(columns, rows)}{more}"


def _active_alert(view: AlertView, *, now: float) -> str:
    alert = view.alert
    age = formatting.format_duration(round(max(0.0, now - alert.starts_at)))
    about = escape(subject(alert.run, alert.worker))
    return (
        f'<tr><td class="name" data-label="Alert">{runbook_link(bounded(alert.name))}</td>'
        f'<td data-label="About">{about}</td>'
        f'<td data-label="{LABEL}"><span><span class="state {view.tone}">{escape(view.who)}</span> '
        f'<span class="quiet">{escape(view.handling)}</span></span></td>'
        f"{html.number('Alert began', f'{age} ago')}</tr>"
    )


def _state(state: RemediatorState, *, now: float) -> str:
    facts = {"Mode": state.mode, "Held": _holds(state, now=now)}
    if (journal := state.journal) is not None:
        facts["Open incidents"] = str(journal.open_incidents)
        for name, outcome in (("Healed", "healed"), ("Not healed", "not_healed")):
            counts = journal.counters.get("outcomes", {}).items()
            facts[name] = f"{sum(count for labels, count in counts if labels[-1] == outcome):.0f}"
        beat = journal.timestamps.get("watchdog")
        facts["Watchdog last received"] = "never" if beat is None else f"{_seconds(now - beat)} ago"
    facts["Configuration read"] = f"{_seconds(now - state.reload_timestamp)} ago"
    return html.facts(facts)


def _seconds(passed: float) -> str:
    return formatting.format_duration(round(passed))


def _holds(state: RemediatorState, *, now: float) -> str:
    holds = [
        f"{'everything' if hold.everything else hold.scope}: {describe_hold(hold, now)}"
        for hold in in_force(state.holds)
    ]
    return "; ".join(holds) or ("yes" if state.paused else "no")


def _journal(events: Iterable[Event], faults: Mapping[WorkerKey, FaultFacts]) -> str:
    """Returns the events by incident, the newest first; only the newest incident is unfolded."""
    groups: dict[int | str, list[Event]] = {}
    for event in events:
        key = f"event {event.id}" if event.incident is None else event.incident
        groups.setdefault(key, []).append(event)
    if not groups:
        return '<p class="quiet">No events yet.</p>'
    newest = next((key for key in groups if isinstance(key, int)), None)
    left = dict(faults)  # of several incidents of a worker, the newest has it
    return "\n".join(_incident(found, left, unfold=key == newest) for key, found in groups.items())


def _incident(events: Sequence[Event], faults: dict[WorkerKey, FaultFacts], *, unfold: bool) -> str:
    """Returns the events of one incident, or a single event of none; they are the newest first."""
    last = events[0]
    # The outcome says more than the decision after it.
    telling = next((one for one in events if one.kind == "outcome"), last)
    what = escape(redact(event_text.describe(telling)))
    title = (
        f'<span class="quiet">{formatting.format_time(last.at)}</span> '
        f'<span class="state {_tone(telling)}"><b>{escape(event_text.worker_name(last))}</b> '
        f"{what}</span>"
    )
    if last.incident is None:
        return f'<p class="event">{title}</p>'
    rows = "\n".join(
        f'<tr><td class="quiet short" data-label="Time">{formatting.format_time(event.at)}</td>'
        f'<td data-label="Event"><span class="state {_tone(event)}">{escape(event.kind)}</span>'
        "</td>"
        f'<td data-label="What">{escape(redact(event_text.describe(event)))}</td></tr>'
        for event in events
    )
    link = f'<a href="report/{last.incident}">Report #{last.incident}</a>'
    table = html.table(dict.fromkeys(("Time", "Event", "What"), ""), rows)
    shown = " open" if unfold else ""
    fault = faults.pop(WorkerKey(events[-1].run, events[-1].worker), FaultFacts())
    error = f'<p class="bad">{escape(redact(fault.error))}</p>' if fault.error else ""
    return (
        f'<details class="event"{shown}><summary>#{last.incident} {title}</summary>\n'
        f"{error}<p>{link} of {escape(events[-1].alert)}</p>{table}</details>"
    )


def _tone(event: Event) -> str:
    if event.kind == "outcome":
        tone = "warn" if event.facts.get("remark") else "good"
        return tone if event.facts.get("outcome") == "healed" else "bad"
    if event.kind == "result" and event.facts.get("result") != "done":
        return "bad"
    if event.facts.get("reason") in GIVEN_UP | NEEDS_OPERATOR:
        return "bad"
    return "warn" if event.kind in ("alert", "intent") else "quiet"


def _attempts(target: Target) -> str:
    return f"{target.attempts} in {formatting.format_duration(target.attempts_window)}"


def _targets(config: Config) -> str:
    rows = "\n".join(
        f'<tr><td class="name short" data-label="Worker">{escape("/".join(target.key))}</td>'
        f'<td data-label="Start"><code>{escape(redact(target.restart_method.summary))}</code></td>'
        f"{html.number('Grace', formatting.format_duration(target.restart_method.grace))}"
        f"{html.number('Cooldown', formatting.format_duration(target.cooldown))}"
        f"{html.number('Attempts', _attempts(target))}"
        "</tr>"
        for target in config.targets
    )
    if not rows:
        return '<p class="quiet">None: the configuration has no targets.</p>'
    columns = {"Worker": "", "Start": ""}
    columns |= dict.fromkeys(("Grace", "Cooldown", "Attempts"), "number")
    return html.table(columns, rows)


def status_json(work: CurrentWork, setup: Setup, *, now: float) -> Mapping[str, Any]:
    """Returns a summary of the page, as JSON data for another program.

    Times are Unix seconds; a tone is `good`, `warn`, `bad` or `quiet`. `open_alerts` and `alerts`
    are the open incidents, `firing` the active alerts of this host at Alertmanager, null if they
    are not known.
    """
    state, views, journal = work.state, work.views(now), work.state.journal
    config, steps = setup.config, steps_by_alert(work, setup, views or ())
    first, situation = headline(work, config, now=now), work.situation(now)
    active = {view.incident for view in views or ()}
    return {
        "config_file": resolved_path(str(state.config_file.absolute())),
        "config_read_at": state.reload_timestamp,
        "exporter_file": resolved_path(str(config.exporter.config.absolute())),
        "workers_hash": setup.workers_hash,
        "mode": state.mode,
        "may_restart": [
            bounded("/".join(key))
            for target in config.targets
            if target.can_be_restarted
            for key in target.keys
        ][:WORKERS],
        "may_restart_stalled": sorted(
            {key.run for key in setup.restartable if key in setup.trainer_keys}
        )[:WORKERS],
        "without_checkpoints": sorted(setup.without_checkpoints)[:WORKERS],
        "calls": setup.calls,
        "given_up": [
            bounded("/".join(key)) for key in (*situation.given_up, *situation.given_up_before)
        ][:WORKERS],
        "tone": first.tone,
        "verdict": first.sentence[:MAX_TEXT_LENGTH],
        "who_acts": first.who,
        "how": first.how[:MAX_TEXT_LENGTH],
        "operator_needed": critical_problem(state)[:MAX_TEXT_LENGTH],
        "open_alerts": len(work.incidents) if journal is None else journal.open_incidents,
        "alerts": [_alert_json(one, situation, active) for one in _without_shown(work, views)],
        "actions": [action_json(one) for one in reversed(work.actions[-ACTIONS:])],
        "firing": None if views is None else [_firing_json(one, steps) for one in views[:ALERTS]],
        "firing_count": None if views is None else len(views),
        "unhandled_count": sum(urgency(one.who) < urgency(REMEDIATOR) for one in views or ()),
        "alerts_problem": work.alerts if isinstance(work.alerts, str) else "",
        "holds": [hold_json(one, now=now) for one in in_force(state.holds)[:HOLDS]],
    }


def _without_shown(work: CurrentWork, views: Sequence[AlertView] | None) -> Sequence[Incident]:
    """Returns the open incidents, but of an outage with an active alert only that of the alert."""
    shown = {view.incident for view in views or ()}
    outages = {one.outage for one in work.incidents if one.id in shown}
    return [one for one in work.incidents if one.id in shown or one.outage not in outages][:ALERTS]


def _firing_json(view: AlertView, steps: Mapping[str, str]) -> Mapping[str, Any]:
    alert = view.alert
    return {
        "alert": bounded(alert.name),
        "run": bounded(alert.run),
        "worker": bounded(alert.worker),
        "since": alert.starts_at,
        "tone": view.tone,
        "summary": bounded(alert.annotations.get("summary", "")),
        "who_acts": view.who,
        "handling": view.handling[:MAX_TEXT_LENGTH],
        "first_step": steps[alert.fingerprint][:MAX_TEXT_LENGTH],
    }


def _alert_json(
    incident: Incident, situation: Situation, active: Collection[int | None]
) -> Mapping[str, Any]:
    """Returns an open incident as JSON data; `active`: those whose alert is."""
    reason = incident.last_decision.partition(" ")[2]
    tone = "bad" if reason in NEEDS_OPERATOR else "quiet" if reason in NO_ACTION_NEEDED else "warn"
    who, handling = handling_of(incident, situation, active=incident.id in active)
    return {
        "alert": bounded(incident.alert),
        "run": bounded(incident.run),
        "worker": bounded(incident.worker),
        "since": incident.starts_at,
        "tone": "quiet" if incident.is_over else tone,
        "who_acts": who,
        "handling": handling[:MAX_TEXT_LENGTH],
    }


def action_json(action: PastAction) -> Mapping[str, Any]:
    """Returns an action for programs, with its outcome in words."""
    if action.kind == "notify":
        tone, outcome = "warn", "the on-call is notified"
    elif action.ended_at is None:
        tone, outcome = "warn", "being checked" if action.result == "done" else "in progress"
    elif action.healed:
        tone, outcome = "good", "healed"
    elif action.result == "interrupted":
        tone, outcome = "warn", "interrupted"
    else:
        tone, outcome = "bad", "failed" if action.result == "failed" else "not healed"
    return {
        "run": action.key.run,
        "worker": action.key.worker,
        "at": action.intent_at,
        "tone": tone,
        "action": _ACTIONS.get(action.kind, action.kind),
        "in_progress": action_in_progress(action),
        "outcome": outcome
        + event_text.describe_attempt(action.attempt, action.attempts, action.restarts),
    }
