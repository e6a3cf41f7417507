"""Status page: the remediator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from types import MappingProxyType

from trainwarden_exporter.runtime.responsibility import (
    LABEL,
    NOBODY,
    OF_STANDSTILL,
    STALL_CONSEQUENCES,
)
from trainwarden_exporter.status_page.fragments import ago, quiet, state, table
from trainwarden_exporter.status_page.remediator_client import (
    RemediatorAction,
    RemediatorAlert,
    RemediatorStatus,
    subject,
)
from trainwarden_exporter.status_page.series import Tone
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.runbooks import (
    ALERTMANAGER,
    ALERTMANAGER_STEP,
    FirstStep,
    distinct_steps,
    first_step,
    runbook_link,
    with_finite_step,
)

MAX_ALERTS = 12
MAX_ACTIONS = 5
MAX_NAMED = 3
DOWN = "TrainingRemediatorDown"

_WORST: tuple[Tone, ...] = ("bad", "warn")


def remediator_section(remediator: RemediatorStatus | str | None, *, now: float) -> str:
    """Returns the HTML section; empty without a configured remediator."""
    if remediator is None:
        return ""
    if isinstance(remediator, str):
        summary = f"The remediator is unreachable: {escape(remediator)}."
        return html.section("Remediator", f'<p class="bad">{summary}</p>')
    mode = f'<span class="quiet">mode {remediator.mode}</span>'
    verdict = f'<p><span class="{remediator.tone}">{escape(remediator.verdict)}</span> {mode}</p>'
    late = late_answer(remediator, now=now)
    parts = (
        verdict,
        f'<p class="warn">{late}</p>' if late else "",
        _firing(remediator, now=now),
        _alerts(remediator, now=now),
        _actions(remediator, now=now),
    )
    return html.section("Remediator", "\n".join(part for part in parts if part))


def with_standstills(
    remediator: RemediatorStatus | str | None, standing: Collection[str]
) -> RemediatorStatus | str | None:
    """Returns the status without work for you that only follows from the standstill of a run.

    `standing`: the runs that stand still, which the remediator knows only once an alert fires.
    """
    if not isinstance(remediator, RemediatorStatus) or remediator.firing is None:
        return remediator
    over = {"who_acts": NOBODY, "handling": OF_STANDSTILL, "first_step": ""}
    firing = tuple(
        one.model_copy(update=over)
        if one.alert in STALL_CONSEQUENCES and one.run in standing
        else one
        for one in remediator.firing
    )
    return remediator.model_copy(update={"firing": firing})


def late_answer(remediator: RemediatorStatus, *, now: float) -> str:
    """Returns that it did not answer in time, as a sentence; "" if it did."""
    if remediator.answered_at is None:
        return ""
    return (
        "The remediator did not answer just now: what it does is as of"
        f" {ago(now - remediator.answered_at)}."
    )


def alert_summary(remediator: RemediatorStatus) -> tuple[Tone, str, str]:
    """Returns tone, number of active alerts, and how many of them nobody acts on."""
    if remediator.firing is None or remediator.firing_count is None:
        return "warn", "not known", remediator.alerts_problem
    if not remediator.firing_count:
        return "good", "none", ""
    tones = {alert.tone for alert in remediator.firing}
    tone: Tone = next((one for one in _WORST if one in tones), "quiet")
    names = list(dict.fromkeys(alert.alert for alert in remediator.firing))[:MAX_NAMED]
    return tone, f"{remediator.firing_count:,} active", ", ".join(names)


def action_summary(remediator: RemediatorStatus, *, now: float) -> tuple[str, str, str]:
    """Returns tone, outcome and description of the last action."""
    if not remediator.actions:
        needed = remediator.operator_needed
        return ("bad", "none", needed) if needed else ("quiet", "none yet", "")
    last = remediator.actions[0]
    about = subject(last.run, last.worker)
    return last.tone, last.outcome, f"{last.action} of {about}, {ago(now - last.at)}"


def _firing(remediator: RemediatorStatus, *, now: float) -> str:
    if remediator.firing is None:
        why = escape(remediator.alerts_problem or "this remediator does not report them")
        return f'<p class="warn">Active alerts are not known: {why}.</p>'
    shown = remediator.firing[:MAX_ALERTS]
    if not shown:
        return '<p class="quiet">No alert fires.</p>'
    left = (remediator.firing_count or 0) - len(shown)
    more = f'<p class="quiet">and {left:,} more</p>' if left > 0 else ""
    rows = table(
        {"Active alert": "name", "About": "text", LABEL: "text", "Alert began": "number"},
        (_alert(alert, now=now) for alert in shown),
    )
    return f"{rows}{more}"


def first_steps(
    remediator: RemediatorStatus | str | None,
    run: str = "",
    sound: Mapping[str, tuple[float | None, str | None]] = MappingProxyType({}),
) -> Sequence[FirstStep]:
    """Returns what an operator does first; empty while no step is needed.

    The steps of the `run` of the headline come first. `sound`: of each run, the last step with a
    finite loss, if its last loss is not finite, and the path of the checkpoint to resume from.
    """
    if isinstance(remediator, str):
        return [FirstStep(DOWN, first_step(DOWN, {}))]
    if remediator is None:
        return []
    if remediator.firing is None:
        return [FirstStep(ALERTMANAGER, ALERTMANAGER_STEP)]
    alerts = sorted(remediator.firing, key=lambda one: bool(run) and one.run != run)
    steps = (
        FirstStep(
            one.alert,
            with_finite_step(one.first_step, *sound.get(one.run, (None, ""))),
            one.run,
            one.worker,
        )
        for one in alerts
    )
    return distinct_steps(steps)[:MAX_NAMED]


def _alerts(remediator: RemediatorStatus, *, now: float) -> str:
    """Returns the open incidents that are not among the active alerts."""
    shown = [
        alert
        for alert in remediator.alerts
        if (alert.alert, alert.run, alert.worker)
        not in {(one.alert, one.run, one.worker) for one in remediator.firing or ()}
    ][:MAX_ALERTS]
    if not shown:
        return ""
    left = remediator.open_alerts - min(len(remediator.alerts), MAX_ALERTS)
    more = f'<p class="quiet">and {left:,} more</p>' if left > 0 else ""
    rows = table(
        {"Open incident": "name", "About": "text", LABEL: "text", "Alert began": "number"},
        (_alert(alert, now=now) for alert in shown),
    )
    return f"{rows}{more}"


def _alert(alert: RemediatorAlert, *, now: float) -> tuple[str, ...]:
    return (
        runbook_link(alert.alert),
        escape(subject(alert.run, alert.worker)),
        f"{state(alert.tone, alert.who_acts)}{quiet(alert.handling)}",
        ago(max(0.0, now - alert.since)),
    )


def _actions(remediator: RemediatorStatus, *, now: float) -> str:
    if not remediator.actions:
        yet = "" if remediator.operator_needed else " yet"
        return f'<p class="quiet">No actions{yet}.</p>'
    return table(
        {"Last actions": "name", "What": "text", "Outcome": "text", "When": "number"},
        (_action(one, now=now) for one in remediator.actions[:MAX_ACTIONS]),
    )


def _action(action: RemediatorAction, *, now: float) -> tuple[str, ...]:
    return (
        escape(subject(action.run, action.worker)),
        escape(action.action),
        state(action.tone, action.outcome),
        ago(now - action.at),
    )
