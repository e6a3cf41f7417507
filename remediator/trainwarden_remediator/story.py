"""Tells what the journal holds, one line an event, for a person."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import Any

from trainwarden_remediator.journal import Event

HEADING = ("time", "incident", "worker", "event", "what")

_CLOSED = "closed"
_REASONS = {
    "restart": "restart it",
    "clean": "end the leftovers",
    "hold": "hold: nothing is restarted while this lasts",
    "resolved": "the alert is resolved",
    "forgotten": "not heard of any more",
    "no_remediation": "the alert asks for no remediation",
    "unknown_playbook": "no playbook of that name",
    "unknown_target": "not a configured target",
    "attempts_exhausted": "no attempts left: gave up, a person is needed",
    "observe_mode": "mode is observe: touched nothing",
    "held": "held by a person",
    "held_by_alert": "held while another alert lasts",
    "busy": "another action is under way in this run",
    "alert_lingers": "healed; the alert has yet to clear",
    "cooldown": "too soon after the last action",
    "world_unknown": "cannot see: did nothing",
    "not_active": "not active at Alertmanager",
    "silenced": "silenced at Alertmanager",
    "inhibited": "inhibited at Alertmanager",
    "no_candidate": "nothing that may be acted upon",
    "ambiguous_target": "more processes match than expected",
    "already_restarted": "has restarted already since the alert began",
    "trouble_over": "the exporter sees the trouble no more",
}


def line(event: Event, zone: tzinfo | None = None) -> str:
    """`event` as one line of the table, in local time unless `zone` is given."""
    at = datetime.fromtimestamp(event.at, zone).strftime("%Y-%m-%d %H:%M:%S")
    number = f"#{event.incident}" if event.incident is not None else ""
    return _columns(at, number, worker(event) or "-", event.kind, printable(sentence(event)))


def heading() -> str:
    return _columns(*HEADING)


def worker(event: Event) -> str:
    """Run and worker that `event` is about."""
    return printable("/".join(part for part in (event.run, event.worker) if part))


def _columns(at: str, number: str, name: str, kind: str, what: str) -> str:
    return f"{at:<19}  {number:<8}  {name:<24}  {kind:<9}  {what}".rstrip()


def sentence(event: Event) -> str:
    """What happened, in words."""
    facts = dict(event.facts)
    match event.kind:
        case "alert" | "resolved":
            return event.alert
        case "decision":
            detail = f" ({facts['detail']})" if facts.get("detail") else ""
            reason = _REASONS.get(facts["reason"], facts["reason"])
            verdict = _CLOSED if facts["reason"] in ("resolved", "forgotten") else facts["verdict"]
            return f"{event.alert}: {verdict}: {reason}{detail}"
        case "intent":
            return f"action {event.action}: about to {_intent(facts)}"
        case "stop":
            return f"SIGTERM to {_pids(facts['processes'])}"
        case "end":
            return f"SIGTERM to {'; '.join(_leftover(one) for one in facts['processes'])}"
        case "start":
            return " ".join(facts["command"])
        case "result":
            return _result(facts)
        case "outcome":
            return _outcome(facts)
    return json.dumps(facts)


def _intent(facts: dict[str, Any]) -> str:
    if facts.get("doing") == "gpu_cleanup":
        return f"end leftovers that hold a GPU: {_pids(facts['processes'])}"
    return f"restart {_pids(facts['processes'])}" if facts["processes"] else "start it"


def _leftover(process: dict[str, Any]) -> str:
    return f"process {process['pid']} of {process['owner']} ({process['command']})"


def _result(facts: dict[str, Any]) -> str:
    if facts["result"] != "done":
        return f"{facts['result']}: {facts.get('error') or facts.get('found', '')}"
    if facts.get("settled"):
        return "done, as was found after a restart of the remediator"
    killed = f", SIGKILL to {_pids(facts['killed'])}" if facts.get("killed") else ""
    if "ended" in facts:
        ended = _pids([process["pid"] for process in facts["ended"]])
        return f"ended {ended}{killed}; the memory is back"
    if facts["started_by"] == "another":
        return f"something else started {_pids(facts['processes'])} first{killed}"
    return f"started {_pids(facts['processes'])}{killed}"


def _outcome(facts: dict[str, Any]) -> str:
    if facts["outcome"] == "healed":
        return f"healed: verified by the exporter after {facts['seconds']:g} s"
    return f"not healed: {facts['seen']}" if facts.get("seen") else "not healed"


def _pids(pids: list[int]) -> str:
    if not pids:
        return "nothing"
    return f"process{'es' * (len(pids) > 1)} {', '.join(map(str, pids))}"


def printable(text: str) -> str:
    """`text` without anything that could move a terminal's cursor or fake a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def as_json(event: Event) -> str:
    """`event` as one line of JSON."""
    return json.dumps(asdict(event))
