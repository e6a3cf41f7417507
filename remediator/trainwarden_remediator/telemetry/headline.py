"""The headline of the status page: what is wrong, and who deals with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainwarden_exporter.runtime import formatting
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.rows import finished_workers
from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.observation.active_alerts import ActiveAlerts
from trainwarden_remediator.telemetry.active_alerts import AlertView, Tone, build_alert_views
from trainwarden_remediator.telemetry.state import RemediatorState

DAY_SECONDS = 86400.0
MAX_NAME_LENGTH = 200
"""Characters of a name on the pages: names of alerts are untrusted input."""

_ACTIONS_IN_PROGRESS = {
    "restart": "is restarting",
    "command": "runs the command of",
    "gpu_cleanup": "terminates leftover processes on",
}


@dataclass(frozen=True, slots=True)
class CurrentWork:
    """The state of the program, the active alerts, and what is done about them."""

    state: RemediatorState
    alerts: ActiveAlerts
    incidents: Sequence[Incident] = ()
    """The oldest open incidents, oldest first."""
    actions: Sequence[PastAction] = ()
    """The last actions, oldest first."""

    def views(self, now: float) -> tuple[AlertView, ...] | None:
        """Returns the active alerts, worst first; None if they are not known."""
        journal = self.state.journal
        count = len(self.incidents) if journal is None else journal.open_incidents
        given_up = () if journal is None else journal.given_up
        return build_alert_views(self.alerts, self.incidents, count, now, given_up=given_up)


def headline(work: CurrentWork, config: Config, *, now: float) -> tuple[Tone, str]:
    """Returns the tone of the page (`good`, `warn` or `bad`) and its summary."""
    state, views = work.state, work.views(now) or ()
    journal = state.journal
    if (bad := critical_problem(state)) or journal is None:
        return "bad", bad
    unhandled = [one for one in views if not one.handled and one.tone in ("bad", "warn")]
    # The same colour as on the exporter's page: an alert is not less serious while it is handled.
    tone: Tone = "bad" if views and views[0].tone == "bad" else "warn"
    trouble = f" {_firing(unhandled)}" if unhandled else ""
    if state.paused or state.holds:
        return tone, f"{_held(state, now)}{trouble}"
    if state.mode == "observe" and unhandled:
        return tone, f"{_firing(unhandled)} The remediator only observes."
    if work_now := _in_progress(work):
        return tone, f"{work_now}{trouble}"
    if unhandled:
        return tone, f"{_firing(unhandled)} Nothing acts on it: an operator is needed."
    if isinstance(work.alerts, str):
        sentence = f"Nothing will be healed, alerts are not known: {work.alerts}."
        return "warn", f"{sentence} An operator is needed."
    watching = _watching(config, journal.timestamps)
    if journal.open_incidents:
        watching += f", following up {formatting.plural(journal.open_incidents, 'incident')}"
    mode = "; the remediator only observes" if state.mode == "observe" else ""
    if views:
        return "good", f"{_count(views)}, none needs an action: {watching}{mode}."
    return "good", f"No alert fires: {watching}{mode}."


def _watching(config: Config, timestamps: Mapping[str, float]) -> str:
    """Returns `it is allowed to restart 3 workers, 1 has finished`."""
    finished = finished_workers(timestamps)
    over = sum(all(key in finished for key in target.keys) for target in config.targets)
    if over and over == len(config.targets):
        return "its worker has finished" if over == 1 else f"its {over} workers have finished"
    text = f"it is allowed to restart {formatting.plural(len(config.targets) - over, 'worker')}"
    return f"{text}, {over} {'has' if over == 1 else 'have'} finished" if over else text


def describe_hold(hold: Hold, now: float) -> str:
    """Returns `held by root until 06:00 UTC`."""
    by = f" by {hold.who}" if hold.who else " by an operator"
    until = " until `resume`" if hold.until is None else f" until {_clock(hold.until, now)}"
    why = f" ({hold.why})" if hold.why else ""
    return event_text.printable(f"held{by}{until}{why}")


def in_force(holds: Sequence[Hold]) -> Sequence[Hold]:
    """Returns the holds, the widest and longest first."""
    endless = float("inf")
    return sorted(
        holds, key=lambda one: (not one.everything, -(endless if one.until is None else one.until))
    )


def action_in_progress(action: PastAction) -> str:
    """Returns `is restarting`, or "" for an action that has ended."""
    if action.ended_at is not None or action.result == "interrupted":
        return ""
    return _ACTIONS_IN_PROGRESS.get(action.kind, "")


def subject(run: str, worker: str) -> str:
    """Returns the run and worker of an alert, bounded and printable."""
    return "/".join(bounded(part) for part in (run, worker) if part) or "the host"


def bounded(name: str) -> str:
    """Returns a name, bounded and printable."""
    return event_text.printable(name[:MAX_NAME_LENGTH])


def _clock(at: float, now: float) -> str:
    if abs(at - now) < DAY_SECONDS:
        return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"
    return formatting.format_time(at)


def _held(state: RemediatorState, now: float) -> str:
    holds = in_force(state.holds)
    if not holds:
        return "Nothing will be healed: held by an operator until `resume`."
    first = holds[0]
    scope = "Nothing" if first.everything else subject(first.run, first.worker)
    negation = "" if first.everything else " not"
    more = "" if len(holds) == 1 or first.everything else f" And {len(holds) - 1} more held, below."
    return f"{scope} will{negation} be healed: {describe_hold(first, now)}.{more}"


def _firing(views: Sequence[AlertView]) -> str:
    first = views[0].alert
    more = f" (and {len(views) - 1} more)" if len(views) > 1 else ""
    summary = first.annotations.get("summary", "")
    return _sentence(first.name, first.run, first.worker, summary, more)


def _count(views: Sequence[AlertView]) -> str:
    return f"{len(views)} alert fires" if len(views) == 1 else f"{len(views)} alerts fire"


def _in_progress(work: CurrentWork) -> str:
    for action in reversed(work.actions):
        if doing := action_in_progress(action):
            return f"The remediator {doing} {subject(*action.key)}."
    waiting = [one for one in work.incidents if not one.resolved]
    if not waiting:
        return ""
    first = waiting[0]
    verdict, _, reason = first.last_decision.partition(" ")
    described = event_text.describe_reason(reason)
    answers = {"act": "acts", "wait": f"waits: {described}", "refuse": f"does not act: {described}"}
    more = f" And {len(waiting) - 1} more, below." if len(waiting) > 1 else ""
    doing = answers.get(verdict, "is deciding what to do")
    return f"{_about(work, first)} The remediator {doing}.{more}"


def _about(work: CurrentWork, incident: Incident) -> str:
    alerts = () if isinstance(work.alerts, str) else work.alerts
    same = (one for one in alerts if one.fingerprint == incident.fingerprint)
    summary = next((one.annotations.get("summary", "") for one in same), "")
    return _sentence(incident.alert, incident.run, incident.worker, summary)


def _sentence(alert: str, run: str, worker: str, summary: str, more: str = "") -> str:
    """Returns `On demo/rollout-0: a worker is not running.`, or with the name of the alert."""
    if not summary:
        return f"{bounded(alert)} fires on {subject(run, worker)}{more}."
    first, second = summary[:1], summary[1:2]
    words = f"{first if second.isupper() else first.lower()}{summary[1:]}".rstrip(".")
    return f"On {subject(run, worker)}: {bounded(words)}{more}."


def critical_problem(state: RemediatorState) -> str:
    """Returns a problem of the remediator that an operator must solve, or ""."""
    journal = state.journal
    if journal is None:
        return "Nothing will be healed: the journal cannot be read."
    if journal.given_up:
        names = ", ".join("/".join(key) for key in journal.given_up)
        return f"An operator is needed: the remediator gave up on {names}."
    if not state.reload_successful:
        return "The configuration file is not in force."
    if state.failsafe_active:
        return "No alerts arrive and memory is short: the failsafe is active."
    if state.alerts_stale:
        return "No alerts arrive: only the failsafe monitors the memory."
    if journal.breaker is not None and journal.breaker.breaker_open:
        return "Nothing will be healed: circuit breaker open until an operator runs `resume`."
    return ""
