"""The events of a run in order of time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trainwarden.autopsy import patterns
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.end_findings import ENDED_FROM_OUTSIDE
from trainwarden.autopsy.journals import Action
from trainwarden.autopsy.model import Attempt
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.runtime.formatting import format_size, plural

MAX_EVENTS = 40
_SHOWN_ATTEMPTS = 12


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at` (Unix seconds)."""

    at: float
    text: str
    line: str = ""


def timeline(case: Case) -> tuple[Event, ...]:
    """Returns the events in order; of too many, the first and the last ones."""
    events = (*_attempts(case), *_errors(case), *_outside(case), *_checkpoints(case), *_signs(case))
    found = sorted(events, key=lambda event: event.at)
    first = case.first_sign_at
    if first is not None and (not found or first < found[0].at):
        found.insert(0, Event(first, "first line with a time"))
    if len(found) > MAX_EVENTS:
        half = MAX_EVENTS // 2
        left_out = len(found) - 2 * half
        gap = Event(found[half].at, f"… {plural(left_out, 'event')} left out")
        return (*found[:half], gap, *found[-half:])
    return tuple(found)


def how_it_ended(case: Case, attempt: Attempt) -> str:
    """Returns in a few words how an attempt ended."""
    if case.has_finished(attempt):
        return "finished"
    outside = [kind for kind in ENDED_FROM_OUTSIDE if kind in attempt.after]
    errors = [tally for kind, tally in attempt.after.items() if kind in case.error_kinds]
    named = [tally for tally in errors if tally.kind != "exception"] or errors
    first = min(named, key=lambda tally: tally.first.order, default=None)
    if first is not None:
        return first.kind.replace("_", " ")
    if outside:
        return outside[0].replace("_", " ")
    if patterns.NOT_FINITE in attempt.after:
        return patterns.NOT_FINITE.replace("_", " ")
    for kind in ("restart_requested", "stop_requested"):
        if (asked := attempt.after.get(kind)) is not None:
            return asked.last.text.removeprefix("trainwarden: ")
    if attempt.phase not in (None, Phase.TRAINING, Phase.STARTING):
        return f"no error; phase {attempt.phase.value.replace('_', ' ')}"
    return "no error logged"


def describe(action: Action) -> str:
    """Returns what the remediator did, why, and what has become of it."""
    alert = f" for {action.alert}" if action.alert else ""
    what = f"{action.kind.replace('_', ' ')} of {action.worker}{alert}: {action.end}"
    return f"{what}, {action.attempt}" if action.attempt else what


def _attempts(case: Case) -> Iterator[Event]:
    shown = case.attempts
    if len(shown) > _SHOWN_ATTEMPTS:
        shown = shown[-_SHOWN_ATTEMPTS:]
    for attempt in shown:
        if attempt.began_at is not None:
            step = "" if attempt.first_step is None else f", step {attempt.first_step}"
            yield Event(attempt.began_at, f"{attempt.file}: first progress of an attempt{step}")
        if attempt.progress_at is not None and attempt.progress_at != attempt.began_at:
            step = "" if attempt.last_step is None else f", step {attempt.last_step}"
            end = how_it_ended(case, attempt)
            text = f"{attempt.file}: last progress of the attempt{step} ({end})"
            yield Event(attempt.progress_at, text)


def _errors(case: Case) -> Iterator[Event]:
    for error in case.errors:
        name = error.name.replace("_", " ")
        if error.first.at is not None:
            count = "" if error.count == 1 else f", the first of {error.count}"
            yield Event(error.first.at, f"{error.first.file}: {name}{count}", error.first.text)
        if error.count > 1 and error.last.at is not None and error.last.at != error.first.at:
            yield Event(error.last.at, f"{error.last.file}: {name}, the last of {error.count}")


def _outside(case: Case) -> Iterator[Event]:
    for kind in ENDED_FROM_OUTSIDE:
        found = case.find(kind)
        if found is not None and found.last.at is not None:
            yield Event(
                found.last.at, f"{found.last.file}: {kind.replace('_', ' ')}", found.last.text
            )
    first = min((one.at for one in case.material.actions if one.is_restart), default=math.inf)
    for tally in case.tallies(("restart_requested",)):
        for at in tally.times:  # of the end: that of the request is not in the log
            if at >= first:
                continue  # its journal has it, with the reason
            yield Event(at, f"{tally.last.file}: the process ended, and the remediator started it")
    for action in case.material.actions:
        yield Event(action.at, f"the remediator: {describe(action)}")
    for boot in case.boots:
        if boot is not None:
            yield Event(boot, "the host booted")


def _checkpoints(case: Case) -> Iterator[Event]:
    found, resume = case.checkpoint, case.resume
    good = None if resume is None else resume.checkpoint
    if found is not None and good is not None:
        number = found.number(good)
        size = format_size(good.size)
        yield Event(
            good.completed_at,
            f"checkpoint {good.name.text} complete"
            + (f" ({number})" if number else "")
            + f", {size}",
        )


def _signs(case: Case) -> Iterator[Event]:
    for log in case.logs:
        if log.log.source == "log" and log.last_at is not None and log.role:
            which = "last line with a time" if log.ends_undated else "last line"
            yield Event(log.last_at, f"{log.name}: {which} ({log.role})")
    if case.last_sign is not None:
        at, name = case.last_sign
        yield Event(at, f"last sign of life, in {name}")
