"""Tells what the journal holds, one line an event, for a person."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import Any

from trainwarden_exporter.wording import moment
from trainwarden_remediator.records import Event

HEADING = ("time", "incident", "worker", "event", "what")

_CLOSED = "closed"
_REASONS = {
    "restart": "restart it",
    "clean": "end the leftovers",
    "hold": "hold: nothing is restarted while this lasts",
    "notify": "call a person",
    "asked": "a person was called",
    "resolved": "the alert is resolved",
    "forgotten": "not heard of any more",
    "no_remediation": "the alert asks for no remediation",
    "unknown_playbook": "no playbook of that name",
    "unknown_target": "not a configured target",
    "goes_on": "healed, and the run goes on by itself",
    "attempts_exhausted": "no attempts left: gave up, a person is needed",
    "ladder_exhausted": "everything has been tried: gave up, a person is needed",
    "restarts_fruitless": "restarting brings it no further: gave up, a person is needed",
    "no_checkpoint": "no complete checkpoint to resume from: a person is needed",
    "recovery_mismatch": "the record it would resume from does not fit: a person is needed",
    "observe_mode": "mode is observe: touched nothing",
    "held": "held by a person",
    "breaker_open": "more was done on this box than can be right: a person is needed",
    "widespread": "too much is down at once",
    "has_finished": "it has finished, and is not missed",
    "held_by_alert": "held while another alert lasts",
    "busy": "another action is under way in this run",
    "larger_first": "a larger one is above its limit too, and comes first",
    "alert_lingers": "healed; the alert has yet to clear",
    "cooldown": "too soon after the last action",
    "world_unknown": "cannot see: did nothing",
    "not_active": "not active at Alertmanager",
    "silenced": "silenced at Alertmanager",
    "inhibited": "inhibited at Alertmanager",
    "no_candidate": "nothing that may be acted upon",
    "left_alone": "left alone",
    "ambiguous_target": "more processes match than expected",
    "already_restarted": "has restarted already since the alert began",
    "trouble_over": "the exporter sees the trouble no more",
    "trouble_back": "its trouble is back, which is for a new alert to say",
    "explained": "something else explains it",
    "awaiting_progress": "healed; watching whether the run goes on",
    "disk_trouble": "a restart could not write",
    "saving": "a checkpoint is being written: waiting",
}


_PLAIN = {
    "breaker": "the breaker is open: nothing is done until `resume`; a person is needed",
    "save": "asked for a last checkpoint before it is restarted",
    "finished": "ended by itself with status 0: it has finished",
    "reopened": "a person allows actions again",
    "silent": "no alerts come any more: the alert that always fires does not; the brake watches",
    "heard": "alerts come again",
    "asked": "a person is asked to look",
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


def reason_in_words(reason: str) -> str:
    """Why something was decided; a reason of another version stands for itself."""
    return _REASONS.get(reason, reason)


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
            reason = reason_in_words(facts["reason"])
            verdict = _CLOSED if facts["reason"] in ("resolved", "forgotten") else facts["verdict"]
            return f"{event.alert}: {verdict}: {reason}{detail}"
        case "intent":
            rung = f", rung {facts['rung'] + 1} of its ladder" if facts.get("rung") else ""
            return f"action {event.action}: about to {_intent(facts)}{rung}"
        case "stop" | "end" | "spare" | "start" | "restart" | "requeue" | "cancel":
            return _step(event.kind, facts)
        case "said":
            status = "took too long" if facts["status"] is None else f"status {facts['status']}"
            return f"{status}: {facts['output'][-200:]}"
        case "result":
            return _result(facts)
        case "outcome":
            return _outcome(facts)
        case "hold" | "resume":
            return _word_of_a_person(event.kind, facts)
    if event.kind == "saved":
        return f"before it is restarted: {facts['came']}"
    return _PLAIN.get(event.kind) or json.dumps(facts)


def _word_of_a_person(kind: str, facts: dict[str, Any]) -> str:
    scope = "/".join(facts[part] for part in ("run", "worker") if facts.get(part))
    said = f"nothing may be done to {scope}" if scope else "nothing may be done"
    if kind == "resume":
        said = f"actions are allowed again{f' on {scope}' if scope else ''}"
    if facts.get("until"):
        said += f" until {moment(facts['until'])}"
    by = f", says {facts['who']}" if facts.get("who") else ""
    return f"{said}{by}{': ' + facts['why'] if facts.get('why') else ''}"


def _step(kind: str, facts: dict[str, Any]) -> str:
    if "manager" in facts:
        return f"{facts['manager']}: {kind} {facts['what']}"
    match kind:
        case "stop":
            return f"SIGTERM to {_pids(facts['processes'])}"
        case "end":
            return f"SIGTERM to {'; '.join(_leftover(one) for one in facts['processes'])}"
        case "spare":
            return "a checkpoint is being written, or may be: not killed yet"
    return " ".join(facts["command"])


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
    if facts.get("late"):
        killed += f"; its GPU memory is late: {facts['late']}"
    if facts["started_by"] == "another":
        return f"something else started {_pids(facts['processes'])} first{killed}"
    return f"started {_pids(facts['processes'])}{killed}"


def _outcome(facts: dict[str, Any]) -> str:
    if facts["outcome"] == "healed":
        remark = f"; but {facts['remark']}" if facts.get("remark") else ""
        return f"healed: verified by the exporter after {facts['seconds']:g} s{remark}"
    return f"not healed: {facts['seen']}" if facts.get("seen") else "not healed"


def _pids(pids: list[int | str]) -> str:
    if not pids:
        return "nothing"
    if any(isinstance(one, str) for one in pids):  # what a manager keeps has a name of its own
        return ", ".join(map(str, pids))
    return f"process{'es' * (len(pids) > 1)} {', '.join(map(str, pids))}"


def printable(text: str) -> str:
    """`text` without anything that could move a terminal's cursor or fake a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def as_json(event: Event) -> str:
    """`event` as one line of JSON."""
    return json.dumps(asdict(event))
