"""The remediator on the status page: what it watches, and what it did last."""

from __future__ import annotations

from html import escape

from trainwarden_exporter import wording
from trainwarden_exporter.remediation.told import Told, ToldAction, ToldAlert
from trainwarden_exporter.serving import page

MOST_ALERTS = 12
MOST_ACTIONS = 5


def remediation_section(told: Told | str | None, *, now: float) -> str:
    """The section as HTML; empty where no remediator is configured, which is no fault."""
    if told is None:
        return ""
    if isinstance(told, str):
        said = f"It cannot be asked: {escape(told)}. What it knows and does is not shown here."
        return page.section("Remediator", f'<p class="bad">{said}</p>')
    mode = f'<span class="quiet">mode {told.mode}</span>'
    parts = [f'<p><span class="{told.tone}">{escape(told.verdict)}</span> {mode}</p>']
    parts.append(_alerts(told, now=now))
    parts.append(_actions(told, now=now))
    return page.section("Remediator", "\n".join(parts))


def alerts_in_short(told: Told) -> tuple[str, str, str]:
    """How many alerts it watches: tone, number, and the newest."""
    if not told.open_alerts:
        return "good", "none open", ""
    tones = {alert.tone for alert in told.alerts}
    tone = next((one for one in ("bad", "warn") if one in tones), "quiet")
    newest = max(told.alerts, key=lambda alert: alert.since, default=None)
    named = "" if newest is None else f"newest {newest.alert} {_about(newest.run, newest.worker)}"
    return tone, f"{told.open_alerts:,} open", named


def action_in_short(told: Told, *, now: float) -> tuple[str, str, str]:
    """The last thing it did: tone, what came of it, and what it was."""
    if not told.actions:
        return "quiet", "none yet", ""
    last = told.actions[0]
    about = _about(last.run, last.worker)
    return last.tone, last.outcome, f"{about} {last.doing}, {_ago(last.at, now)}"


def _alerts(told: Told, *, now: float) -> str:
    shown = told.alerts[:MOST_ALERTS]
    if not shown:
        return '<p class="quiet">No alert is open.</p>' if not told.open_alerts else ""
    rows = "\n".join(f"<tr>{_alert(alert, now=now)}</tr>" for alert in shown)
    left = told.open_alerts - len(shown)
    more = f'<p class="quiet">and {left:,} more</p>' if left > 0 else ""
    columns = {"Alert": "", "About": "", "What is done": "", "Since": "number"}
    return f"{page.table(columns, rows)}{more}"


def _alert(alert: ToldAlert, *, now: float) -> str:
    state = f'<span class="state {alert.tone}">{escape(alert.verdict)}</span>'
    reason = f': <span class="quiet">{escape(alert.reason)}</span>' if alert.reason else ""
    return "".join(
        (
            f'<td class="name" data-label="Alert">{escape(alert.alert)}</td>',
            f'<td data-label="About">{escape(_about(alert.run, alert.worker))}</td>',
            f'<td data-label="What is done"><span>{state}{reason}</span></td>',
            page.number("Since", wording.span(max(0, round(now - alert.since)))),
        )
    )


def _actions(told: Told, *, now: float) -> str:
    if not told.actions:
        return '<p class="quiet">It has done nothing yet.</p>'
    rows = "\n".join(f"<tr>{_action(one, now=now)}</tr>" for one in told.actions[:MOST_ACTIONS])
    return page.table({"Last actions": "", "What": "", "Outcome": "", "When": "number"}, rows)


def _action(action: ToldAction, *, now: float) -> str:
    state = f'<span class="state {action.tone}">{escape(action.outcome)}</span>'
    about = escape(_about(action.run, action.worker))
    return "".join(
        (
            f'<td class="name" data-label="Last actions">{about}</td>',
            f'<td data-label="What">{escape(action.doing)}</td>',
            f'<td data-label="Outcome">{state}</td>',
            page.number("When", _ago(action.at, now)),
        )
    )


def _about(run: str, worker: str) -> str:
    return "/".join(part for part in (run, worker) if part) or "the box"


def _ago(at: float, now: float) -> str:
    return f"{wording.span(max(0, round(now - at)))} ago"
