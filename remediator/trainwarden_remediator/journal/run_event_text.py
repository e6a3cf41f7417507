"""Renders the events without an incident: ends and stalls of runs, alerts that nobody handles."""

from __future__ import annotations

from typing import Any

from trainwarden_exporter.processes.left_behind import describe_left_behind
from trainwarden_exporter.runtime.formatting import describe_finish, format_clock, format_duration
from trainwarden_exporter.runtime.responsibility import AVOIDS_STALL, left_alone, left_until


def describe_run_event(kind: str, facts: dict[str, Any], now: float) -> str:
    """Returns the text of an event of one of these kinds; `now` in Unix seconds."""
    match kind:
        case "run_finished":
            return _describe_finish(facts)
        case "stalled":
            return _describe_stall(facts, now)
        case "unhandled":
            return _describe_unhandled(facts)
    return _describe_unhandled_end(facts, now)


def _describe_finish(facts: dict[str, Any]) -> str:
    if goes_on := facts.get("goes_on"):
        return describe_left_behind(goes_on)
    step, total, stop, waits = map(facts.get, ("step", "total", "stop", "unended"))
    at = "" if step is None else f" at step {step:,.0f}"
    of = "" if step is None or total is None else f" of {total:,.0f}"
    ended = "has made its last step" if facts.get("ends") else describe_finish(step, total)
    failed = " with exit status 0, and has perhaps failed: an error was printed last"
    finish = f"the run {ended}{at}{of}{failed if facts.get('perhaps_failed') else ''}"
    if (until := facts.get("finite_until")) is not None:
        since = f"{finish}, but its loss is NaN or infinite, and was finite until step {until:,.0f}"
        finish = f"{since}: what it saved from then on is of no use"
    if others := facts.get("still_run"):
        runs, them = ("still runs", "it") if len(others) == 1 else ("still run", "them")
        finish = f"{finish}; {' and '.join(others)} {runs}: `{stop}` ends {them}"
    ends = f"; `{stop}` ends it" if stop else ""
    return f"{finish}, and its process does not end: {waits}{ends}" if waits else finish


def _describe_stall(facts: dict[str, Any], now: float) -> str:
    alert = _dated_alert(facts, now)
    if (lasted := facts.get("lasted_seconds")) is not None:
        step = facts.get("step")
        at = "" if step is None else f", at step {step:,.0f}"
        ended = f"has ended after {format_duration(lasted)}{at}"
        return f"{alert} {ended}: the run goes on, and the remediator has not acted"
    if halted := facts.get("halted"):
        return f"{alert}: {left_alone(halted)}"
    if (until := facts.get("until")) is not None:
        left = left_until(facts["handling"], format_clock(until, now))
        return f"{alert}: {left}; {AVOIDS_STALL}"
    detail = f"{facts['detail']}; " if facts.get("detail") else ""
    return f"{alert}: {detail}the remediator {facts['handling']}"


def _describe_unhandled(facts: dict[str, Any]) -> str:
    alert = facts["alert"]
    detail = f"{facts['detail']}; " if facts.get("detail") else ""
    why = facts.get("refused") or "the remediator takes no action on it"
    if incident := facts.get("proposed"):
        why = f"the remediator only observes: `trainwarden approve {incident}` lets it act once"
    return f"{alert}: {detail}{why}; `trainwarden runbook {alert}` says what to do"


def _describe_unhandled_end(facts: dict[str, Any], now: float) -> str:
    gone = facts.get("absent_seconds")
    since = f", and has not come back for {format_duration(gone)}" if gone else ""
    detail = f": {facts['detail']}" if facts.get("detail") else ""
    return f"{_dated_alert(facts, now)} has ended{since}{detail}"


def _dated_alert(facts: dict[str, Any], now: float) -> str:
    """Returns `TrainingStepStalled of 03:12 UTC`."""
    at = facts.get("starts_at")
    return f"{facts['alert']}{'' if at is None else f' of {format_clock(at, now)}'}"
