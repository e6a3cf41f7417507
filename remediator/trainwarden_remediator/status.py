"""The status page: how the remediator stands, and the newest lines of its journal.

And the same in short as JSON, for the exporter's status page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trainwarden_exporter import wording
from trainwarden_exporter.serving import page
from trainwarden_remediator import story
from trainwarden_remediator.config import Config
from trainwarden_remediator.decision import AT_PEACE, GIVEN_UP, STUCK, Incident, PastAction
from trainwarden_remediator.metrics import Condition, Record
from trainwarden_remediator.records import Event

EVENTS = 60
"""Lines of the journal on the page."""
ALERTS = 20
ACTIONS = 10
"""How many of each the short form has at most, the newest actions."""
LONGEST = 200
"""Characters of a name in it: an alert's came over the wire."""

_DOING = {
    "restart": "restarted",
    "command": "command run",
    "gpu_cleanup": "leftovers ended",
    "notify": "called",
}
_VERDICTS = {"act": "acts", "wait": "waits", "refuse": "refuses"}


def render(condition: Condition, config: Config, events: Iterable[Event], *, now: float) -> str:
    """The page, as HTML. `events` are the newest first; `now` is a Unix time."""
    tone, verdict = judge(condition, config)
    return page.render(
        program="remediator",
        standing=f"mode {condition.mode}",
        tone=tone,
        verdict=verdict,
        sections="\n".join(
            (
                page.section("State", _state(condition, now=now)),
                page.section("Journal, the newest first", _journal(events)),
                page.section("What may be acted upon", _targets(config)),
            )
        ),
        footer=f"Read from the journal at {wording.moment(now)}.",
    )


def judge(condition: Condition, config: Config) -> tuple[str, str]:
    """The page in one sentence, and its tone: `good`, `warn` or `bad`."""
    record = condition.record
    if record is None:
        return "bad", "The journal cannot be read: nothing will be done."
    if bad := _bad(condition, record):
        return "bad", bad
    if condition.held:
        return "warn", "Held by a person: nothing is done until `resume`."
    if condition.holds:
        scopes = ", ".join(hold.scope for hold in condition.holds)
        return "warn", f"Held by a person: nothing is done to {scopes}."
    if condition.mode == "observe":
        return "good", "On watch; only observing, nothing is touched."
    if record.open_incidents:
        return "warn", f"Watching {wording.plural(record.open_incidents, 'incident')}."
    return "good", f"On watch over {wording.plural(len(config.targets), 'worker')}."


def _bad(condition: Condition, record: Record) -> str:
    """What a person is needed for, or nothing."""
    if record.given_up:
        names = ", ".join("/".join(key) for key in record.given_up)
        return f"A person is needed: gave up on {names}."
    if not condition.reload_successful:
        return "The configuration file is not in force."
    if condition.braking:
        return "No alerts come and memory is short: the local brake is on."
    if condition.silent:
        return "No alerts come any more: only the local brake watches over the memory."
    if record.guards is not None and record.guards.breaker_open:
        return "A person is needed: the breaker is open, nothing is done until `resume`."
    return ""


def _state(condition: Condition, *, now: float) -> str:
    facts = {"Mode": condition.mode, "Held": _holds(condition)}
    if (record := condition.record) is not None:
        facts["Open incidents"] = str(record.open_incidents)
        for name, outcome in (("Healed", "healed"), ("Not healed", "not_healed")):
            counts = record.tallies.get("outcomes", {}).items()
            facts[name] = f"{sum(count for labels, count in counts if labels[-1] == outcome):.0f}"
        beat = record.moments.get("watchdog")
        heard = "never" if beat is None else f"{wording.span(now - beat)} ago"
        facts["Alert pipeline last heard"] = heard
    facts["Configuration read"] = f"{wording.span(now - condition.reload_timestamp)} ago"
    return page.facts(facts)


def _holds(condition: Condition) -> str:
    told = [f"{hold.scope} {hold.told}".strip() for hold in condition.holds]
    return "; ".join(told) or ("yes" if condition.held else "no")


def _journal(events: Iterable[Event]) -> str:
    rows = "\n".join(
        f'<tr><td class="quiet short" data-label="Time">{wording.moment(event.at)}</td>'
        f'<td class="quiet short" data-label="Report">{_link(event)}</td>'
        f'<td class="name short" data-label="Worker">{escape(story.worker(event))}</td>'
        f'<td data-label="Event"><span class="state {_tone(event)}">{escape(event.kind)}</span>'
        "</td>"
        f'<td data-label="What">{escape(story.sentence(event))}</td></tr>'
        for event in events
    )
    if not rows:
        return '<p class="quiet">Nothing has been heard yet.</p>'
    return page.table(dict.fromkeys(("Time", "Report", "Worker", "Event", "What"), ""), rows)


def _link(event: Event) -> str:
    """Where all of its incident is told."""
    number = event.incident
    return "" if number is None else f'<a href="report/{number}">#{number}</a>'


def _tone(event: Event) -> str:
    if event.kind == "outcome":
        tone = "warn" if event.facts.get("remark") else "good"
        return tone if event.facts.get("outcome") == "healed" else "bad"
    if event.kind == "result" and event.facts.get("result") != "done":
        return "bad"
    if event.facts.get("reason") in GIVEN_UP | STUCK:
        return "bad"
    return "warn" if event.kind in ("alert", "intent") else "quiet"


def _targets(config: Config) -> str:
    rows = "\n".join(
        f'<tr><td class="name short" data-label="Worker">{escape("/".join(target.key))}</td>'
        f'<td data-label="Start"><code>{escape(target.means.told)}</code></td>'
        f"{page.number('Grace', wording.span(target.means.grace))}"
        f"{page.number('Cooldown', wording.span(target.cooldown))}"
        f"{page.number('Attempts', f'{target.attempts} in {wording.span(target.attempts_window)}')}"
        "</tr>"
        for target in config.targets
    )
    if not rows:
        return '<p class="quiet">Nothing: the configuration names no targets.</p>'
    columns = {"Worker": "", "Start": ""}
    columns |= dict.fromkeys(("Grace", "Cooldown", "Attempts"), "number")
    return page.table(columns, rows)


def in_short(
    condition: Condition,
    config: Config,
    incidents: Sequence[Incident],
    actions: Sequence[PastAction],
) -> Mapping[str, Any]:
    """How it stands, for another program: nothing that the page does not say.

    `incidents` are the first of the open ones, and `actions` the last, in the order they were
    begun. Moments are Unix times; a tone is `good`, `warn`, `bad` or `quiet`.
    """
    tone, verdict = judge(condition, config)
    record = condition.record
    return {
        "mode": condition.mode,
        "tone": tone,
        "verdict": verdict,
        "open_alerts": len(incidents) if record is None else record.open_incidents,
        "alerts": [_alert_in_short(one) for one in incidents[:ALERTS]],
        "actions": [_action_in_short(one) for one in reversed(actions[-ACTIONS:])],
    }


def _alert_in_short(incident: Incident) -> Mapping[str, Any]:
    verdict, _, reason = incident.said.partition(" ")
    tone = "bad" if reason in STUCK else "quiet" if reason in AT_PEACE else "warn"
    return {
        "alert": story.printable(incident.alert[:LONGEST]),
        "run": story.printable(incident.run[:LONGEST]),
        "worker": story.printable(incident.worker[:LONGEST]),
        "since": incident.starts_at,
        "tone": "quiet" if incident.resolved else tone,
        "verdict": _VERDICTS.get(verdict, "is being decided"),
        "reason": story.reason_in_words(reason),
    }


def _action_in_short(action: PastAction) -> Mapping[str, Any]:
    if action.kind == "notify":
        tone, outcome = "warn", "a person is asked to look"
    elif action.ended_at is None:
        tone, outcome = "warn", "under way"
    elif action.healed:
        tone, outcome = "good", "healed"
    elif action.result == "interrupted":
        tone, outcome = "warn", "cut short"
    else:
        tone, outcome = "bad", "failed" if action.result == "failed" else "not healed"
    return {
        "run": action.key.run,
        "worker": action.key.worker,
        "at": action.intent_at,
        "tone": tone,
        "doing": _DOING.get(action.kind, action.kind),
        "outcome": outcome,
    }
