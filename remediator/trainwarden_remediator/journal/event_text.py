"""Renders the events of the journal as one line of text each."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime, tzinfo
from typing import Any

from trainwarden_exporter.runtime.formatting import format_time, plural
from trainwarden_exporter.runtime.responsibility import HELD_BY_ALERT
from trainwarden_remediator.journal.recurrence import describe_recurrence
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.journal.run_event_text import describe_run_event
from trainwarden_remediator.model import GIVEN_UP, NEEDS_OPERATOR, TakenOver

HEADING = ("time", "incident", "worker", "event", "what")

_REASONS = {
    "restart": "restart the worker",
    "clean": "terminate leftover GPU processes",
    "hold": "hold: no restarts while this alert fires",
    "notify": "notify the on-call",
    "awaiting_operator": "the on-call was notified",
    "resolved": "the alert has resolved",
    "alert_stale": "the alert stopped arriving",
    "no_remediation": "the alert asks for no remediation",
    "unknown_playbook": "no playbook of that name",
    "unknown_target": "the remediator may not restart it",
    "progressing": "healed, and the run makes progress",
    "attempts_exhausted": "no attempts left",
    "ladder_exhausted": "all rungs were tried",
    "restarts_without_progress": "restarts bring no progress",
    "last_step_made": "it hangs after its last step",
    "no_checkpoint": "no complete checkpoint to resume from",
    "recovery_mismatch": "the recovery record does not match",
    "several_trainers": "none of several trainers is restarted alone",
    "processes_differ": "other processes match than the action is for",
    "config_differs": "exporter and remediator do not use the same file",
    "largest_left_alone": "the worker that holds the memory may not be restarted",
    "damaged_resume": "it resumes from a checkpoint that cannot be loaded",
    "observe_mode": "mode is observe: no action taken",
    "approval_void": "approved, and not done: it is not what was approved",
    "held": "held by an operator",
    "breaker_open": "circuit breaker open: too many actions on this host; run `resume`",
    "mass_failure": "too many targets are down at once",
    "has_finished": "the worker has finished and needs no restart",
    "stopped": "an operator has stopped it",
    "ended_with_run": "its `trainwarden run` ended it, as the rest of its run had ended",
    "held_by_alert": HELD_BY_ALERT,
    "busy": "another action is in progress",
    "larger_worker_first": "a larger worker is above its limit too, and is restarted first",
    "alert_lingers": "healed; the alert has not resolved yet",
    "cooldown": "too soon after the last action",
    "observation_failed": "observation failed: no action taken",
    "not_active": "not active at Alertmanager",
    "silenced": "silenced at Alertmanager",
    "inhibited": "inhibited at Alertmanager",
    "no_candidate": "no process that may be acted upon",
    "managed_elsewhere": "the remediator may not restart it",
    "ambiguous_target": "other processes match than expected",
    "already_restarted": "restarted already since the alert started firing",
    "condition_cleared": "the exporter no longer shows the condition",
    "contradicted": "its alert fires, though the exporter does not show the condition",
    "condition_returned": "the condition has returned; a new alert reports it",
    "stall_lasts": "its alert has ended, and the run makes no progress",
    "root_cause_elsewhere": "the root cause is elsewhere",
    "awaiting_progress": "healed; waiting for the run to make progress",
    "disk_unusable": "the disk is not usable for a restart",
    "at_prompt": "it waits for you at a prompt, and is left alone",
    "suspended": "a process of it is stopped, and it is left alone",
    "at_work": "its inference server works, though it does not answer, and is left alone",
    "moving": "its processes are awake: it may evaluate, or have caught the error",
    "undecided": "its processes were looked at for too short a time since a start of the exporter",
    "account_limit": "too many restarts of the runs of its account: waiting",
    "saving": "a checkpoint is being written, or settling: waiting",
}

_VERDICTS = {
    "resolved": "closed",
    "alert_stale": "closed",
    "progressing": "no action",
    "has_finished": "no action",
    "stopped": "no action",
    "ended_with_run": "no action",
    "alert_lingers": "",
    "awaiting_progress": "",
}
"""Words for decisions that close an incident or refuse nothing, by reason; empty where the reason
has a word of its own."""

_STEPS = frozenset(
    {
        *("stop", "end", "stop_deferred", "kill_deferred", "kill", "set_aside"),
        *("start", "restart", "requeue", "cancel", "output"),
    }
)

_FIXED_TEXTS = {
    "breaker_opened": "circuit breaker open: no actions until an operator runs `resume`",
    "save_requested": "requested a final checkpoint before the restart",
    "finished": "exited with status 0: finished",
    "breaker_reset": "an operator reset the circuit breaker",
    "alerts_stale": ("the watchdog alert stopped arriving: only the failsafe watches the memory"),
    "alerts_resumed": "the watchdog alert arrives again",
}

SERIOUS_REASONS = GIVEN_UP | NEEDS_OPERATOR
LAST_COLUMN = 73
"""Where the last column of the table begins, if the columns before it are not too long."""


def format_line(event: Event, zone: tzinfo | None = None) -> str:
    """Returns `event` as one line of the table, in local time unless `zone` is given."""
    at = datetime.fromtimestamp(event.at, zone).strftime("%Y-%m-%d %H:%M:%S")
    number = f"#{event.incident}" if event.incident is not None else ""
    return _columns(at, number, worker_name(event) or "-", event.kind, printable(describe(event)))


def format_heading() -> str:
    return _columns(*HEADING)


def worker_name(event: Event) -> str:
    """Returns the run and worker of `event`, joined by a slash."""
    return printable("/".join(part for part in (event.run, event.worker) if part))


def describe_reason(reason: str, detail: str = "") -> str:
    """Returns the text of a decision's reason; an unknown reason is returned unchanged."""
    follows = ": gave up, an operator is needed" if reason in GIVEN_UP else ""
    follows = ": an operator is needed" if reason in NEEDS_OPERATOR else follows
    brief = brief_reason(reason)
    return brief + follows + (f" ({detail})" if not brief.startswith(detail) else "")


def brief_reason(reason: str) -> str:
    """Returns the text of a decision's reason without what follows from it."""
    return _REASONS.get(reason, reason)


def describe_taken_over(by: TakenOver) -> str:
    """Returns the text of what has taken over a worker while an action on it was verified."""
    again = "an operator has started it again"
    return again if by == "started_by_operator" else describe_reason(by)


def _columns(at: str, number: str, name: str, kind: str, what: str) -> str:
    return f"{at:<19}  {number:<8}  {name:<24}  {kind:<14}  {what}".rstrip()


def _decision(event: Event) -> str:
    facts, detail = event.facts, event.facts.get("detail") or ""
    if detail and facts["reason"] == "alert_stale":
        lasts = f"its alert does not arrive while {detail} fires"
        return f"{event.alert}: not known to be over: {lasts}"
    reason = describe_reason(facts["reason"], detail)
    verdict = _VERDICTS.get(facts["reason"], facts["verdict"])
    return ": ".join(filter(None, (event.alert, verdict, reason)))


def describe(event: Event) -> str:
    """Returns the text of an event."""
    facts = dict(event.facts)
    match event.kind:
        case "alert" | "resolved":
            return f"{event.alert} fires again" if facts.get("again") else event.alert
        case "decision":
            return _decision(event)
        case "intent":
            return f"action {event.action}: about to {_intent(facts)}"
        case kind if kind in _STEPS:
            return _step(event.kind, facts)
        case "result":
            return _result(facts)
        case "outcome":
            return _outcome(event)
        case "hold" | "resume" | "approved":
            return _describe_hold_event(event.kind, facts)
        case "run_finished" | "stalled" | "unhandled" | "unhandled_ended":
            return describe_run_event(event.kind, facts, event.at)
        case "save_result" | "clock_set" | "paged" | "not_sent":
            return _describe_change(event.kind, facts)
    return _FIXED_TEXTS.get(event.kind) or json.dumps(facts, ensure_ascii=False)


def _describe_change(kind: str, facts: dict[str, Any]) -> str:
    match kind:
        case "not_sent":
            waiting = plural(facts["pending"], "notification")
            return f"not sent to {facts['receiver']}: {facts['error']}; {waiting} pending"
        case "paged":
            return ": ".join(filter(None, ("the on-call is notified", facts.get("detail"))))
        case "save_result":
            return f"before the restart: {facts['came']}"
    way = "forward" if facts["seconds"] > 0 else "back"
    return f"the clock of the host was set {way} by {abs(facts['seconds'])} s"


def _describe_hold_event(kind: str, facts: dict[str, Any]) -> str:
    if kind == "approved":
        on = f" on {facts['target']}" if facts.get("target") else ""
        return f"the next action{on} is approved once, by {facts['who']}"
    scope = "/".join(facts[part] for part in ("run", "worker") if facts.get(part))
    on = f" on {scope}" if scope else ""
    text = f"actions{on} are allowed again" if kind == "resume" else f"no actions{on}"
    if facts.get("reopened"):
        text += f"; incidents {', '.join(f'#{one}' for one in facts['reopened'])} are reopened"
    if facts.get("until"):
        text += f" until {format_time(facts['until'])}"
    by = f", by {facts['who']}" if facts.get("who") else ""
    return f"{text}{by}{': ' + facts['why'] if facts.get('why') else ''}"


def _step(kind: str, facts: dict[str, Any]) -> str:
    if "manager" in facts:
        return f"{facts['manager']}: {kind} {facts['what']}"
    match kind:
        case "stop":
            return f"SIGTERM to {_pids(facts['processes'])}"
        case "end":
            return f"SIGTERM to {'; '.join(_leftover(one) for one in facts['processes'])}"
        case "stop_deferred":
            return "a checkpoint is being written, or may be: stop deferred"
        case "kill_deferred":
            return "a checkpoint is being written, or may be: SIGKILL deferred"
        case "kill":
            return f"SIGKILL to {_pids(facts['processes'])}: {_ignored(facts['seconds'])}"
        case "set_aside":
            return f"{facts['path']} is damaged: renamed to {facts['name']} in its folder"
        case "output":
            status = "timed out" if facts["status"] is None else f"status {facts['status']}"
            return f"{status}: {facts['output'][-200:]}"
    return " ".join(facts["command"])


def _ignored(seconds: float) -> str:
    return f"did not end within {seconds:g} s of SIGTERM"


def _intent(facts: dict[str, Any]) -> str:
    action = f"restart {_pids(facts['processes'])}" if facts["processes"] else "start the worker"
    if facts.get("doing") == "gpu_cleanup":
        action = f"terminate leftover GPU processes: {_pids(facts['processes'])}"
    rung = f", rung {facts['rung'] + 1} of its ladder" if facts.get("rung") else ""
    counted = (facts.get(name) for name in ("attempt", "attempts", "restarts"))
    return f"{action}{rung}{describe_attempt(*counted)}"


def describe_attempt(attempt: int | None, attempts: int | None, restarts: int | None = None) -> str:
    """Returns `, attempt 2 of 3`; "" if that is not known.

    With how many `restarts` there were within a day, where they are more: new steps renew the
    attempts.
    """
    if attempt is None:
        return ""
    often = f", restart {restarts} in 24 h" if (restarts or 0) > attempt else ""
    return f", attempt {attempt} of {attempts}{often}"


def _leftover(process: dict[str, Any]) -> str:
    return f"process {process['pid']} of {process['owner']} ({process['command']})"


def _result(facts: dict[str, Any]) -> str:
    if facts["result"] != "done":
        return f"{facts['result']}: {facts.get('error') or facts.get('found', '')}"
    if facts.get("settled"):
        return "done, as found after a restart of the remediator"
    killed = f", SIGKILL to {_pids(facts['killed'])}" if facts.get("killed") else ""
    if "ended" in facts:
        ended = _pids([process["pid"] for process in facts["ended"]])
        if not facts["ended"]:
            return "no process was left to terminate; the GPU memory is free"
        return f"terminated {ended}{killed}; the GPU memory is free"
    if facts.get("late"):
        killed += f"; its GPU memory is not free yet: {facts['late']}"
    if facts["started_by"] == "another":
        return f"another program started {_pids(facts['processes'])} first{killed}"
    if not facts["processes"]:  # it was requested from a manager, and nothing runs yet
        return f"done: no new instance is known yet{killed}"
    return f"started {_pids(facts['processes'])}{killed}"


def _outcome(event: Event) -> str:
    facts = event.facts
    if facts["outcome"] == "healed":
        remark = f"; but {facts['remark']}" if facts.get("remark") else ""
        seconds = f"{facts['seconds']:g} s after the action began"
        again = describe_recurrence(event)
        if (ignored := facts.get("sigterm_ignored")) is not None:
            remark += f"; it {_ignored(ignored)}, and was killed: it may have saved nothing then"
        healed = "it makes steps again, and may overwrite better checkpoints"
        healed = healed if "passed_over" in facts else "healed"
        return f"{healed}: verified {seconds}{remark}{again and f'; {again}'}"
    return f"not healed: {facts['seen']}" if facts.get("seen") else "not healed"


def _pids(pids: list[int | str]) -> str:
    if not pids:
        return "nothing"
    if any(isinstance(one, str) for one in pids):  # instances of a manager have names
        return ", ".join(map(str, pids))
    return f"process{'es' * (len(pids) > 1)} {', '.join(map(str, pids))}"


def printable(text: str) -> str:
    """Returns `text` without characters that could move a terminal's cursor or forge a line.

    Its lines, as of a script in a command, are joined by spaces.
    """
    lines = text.expandtabs(1).splitlines()
    text = " ".join(filter(None, map(str.strip, lines))) if len(lines) > 1 else "".join(lines)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def as_json(event: Event) -> str:
    """Returns `event` as one line of JSON."""
    return json.dumps(asdict(event))
