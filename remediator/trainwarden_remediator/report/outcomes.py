"""The outcomes of the actions, and the progress of the run after them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainwarden_exporter.runtime.formatting import plural
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.step_dirs.names import number_unit
from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.repeated_steps import describe_repeated
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.report.fault import origin, process_end
from trainwarden_remediator.report.markdown import (
    TimeFormat,
    bullets,
    code,
    format_elapsed,
    format_offset,
    text,
)
from trainwarden_remediator.report.model import ActionRecord, IncidentRecord

_ACTION_NAMES = {
    "restart": "Restart of",
    "gpu_cleanup": "GPU cleanup of",
    "command": "Command for",
    "notify": "Notification of",
}


def actions_section(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns the actions with their rungs and outcomes."""
    if not incident.actions:
        reasons = [_reason(*one) for one in incident.reasons if one[0] != "hold"]
        listed = f"\n\n{bullets(dict.fromkeys(reasons))}" if reasons else ""
        return f"No action was taken.{listed}"
    zero, _ = origin(incident)
    lines = [f"{line}\n" for line in (*_waits(incident, times), *_caveats(incident, times))]
    for number, action in enumerate(incident.actions, start=1):
        what = _ACTION_NAMES.get(action.kind, f"{text(action.kind)} on")
        rung = f", rung {action.rung + 1} of playbook {code(incident.remediation)}"
        facts = next((e.facts for e in incident.events_of(action) if e.kind == "intent"), {})
        nth = event_text.describe_attempt(action.attempt, action.attempts, facts.get("restarts"))
        lines.append(
            f"{number}. **{what} {code(action.name)}** at {times.clock(action.at)} "
            f"({format_offset(action.at, zero)}){rung}{nth}: {_result_text(action)}\n"
            + "\n".join(f"    - {line}" for line in _steps(incident.events_of(action), times))
        )
    return "\n".join(lines)


def progress_section(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns how the run continued: its steps, its checkpoint and lost steps."""
    return bullets(_progress(incident, times))


def cost_line(incident: IncidentRecord, times: TimeFormat) -> str:
    """Returns in one line what a healed incident cost, and whether the run goes on."""
    lines: list[str] = []
    for action in incident.actions:
        outcome = next((e for e in incident.events_of(action) if e.kind == "outcome"), None)
        if outcome is not None:
            lines += [*_downtime(incident, action, outcome)][:1]
            lines += [*_training_steps(action, outcome.facts, incident, times)][-1:]
    return " ".join(dict.fromkeys([*lines, *[*_final_state(incident, times)][1:]]))


def _waits(incident: IncidentRecord, times: TimeFormat) -> Iterator[str]:
    """Yields why the first action was delayed."""
    for event in incident.events:
        early = event.at < incident.actions[0].at
        if early and event.kind == "decision" and event.facts.get("verdict") == "wait":
            why = _reason(str(event.facts["reason"]), str(event.facts.get("detail") or ""))
            yield f"Waiting since {times.clock(event.at)}: {why}."


def _caveats(incident: IncidentRecord, times: TimeFormat) -> Iterator[str]:
    """Yields known risks at the time of an action."""
    for event in incident.events:
        detail = event.facts.get("detail")
        if detail and event.kind == "decision" and event.facts.get("verdict") == "act":
            yield f"Action at {times.clock(event.at)} although {text(str(detail))}."


def _reason(reason: str, detail: str) -> str:
    return text(event_text.describe_reason(reason, detail))


def _result_text(action: ActionRecord) -> str:
    is_over = action.outcome is not None or action.result == "interrupted"
    word = outcome_word(action)
    return f"**{word}**" if is_over and action.kind != "notify" else word


def outcome_word(action: ActionRecord) -> str:
    """Returns what has become of an action, in a few words."""
    if action.kind == "notify":
        return "queued for delivery"
    if action.outcome == "healed":
        return "healed"
    if action.outcome is not None:
        return "not healed" if action.result == "done" else "failed"
    if action.result == "interrupted":
        return "interrupted"
    return "done, not verified yet" if action.result else "in progress"


def _steps(events: Sequence[Event], times: TimeFormat) -> Iterator[str]:
    for event in events:
        if event.kind not in ("intent", "decision"):
            yield f"{times.clock(event.at)} {event_sentence(event)}"


def event_sentence(event: Event) -> str:
    """Describes an event, without secrets."""
    description = redact(event_text.describe(event))
    return f"started: {code(description)}" if event.kind == "start" else text(description)


def _progress(incident: IncidentRecord, times: TimeFormat) -> Iterator[str]:
    for action in incident.actions:
        outcome = next((e for e in incident.events_of(action) if e.kind == "outcome"), None)
        if outcome is not None:
            yield from _downtime(incident, action, outcome)
            yield from _training_steps(action, outcome.facts, incident, times)
    yield from _final_state(incident, times)


def _downtime(incident: IncidentRecord, action: ActionRecord, outcome: Event) -> Iterator[str]:
    stopped, known = _stopped_at(incident, action)
    started = next((e.at for e in incident.events_of(action) if e.kind == "start"), None)
    last = action.id == max(one.id for one in incident.actions if one.name == action.name)
    if stopped is not None and started is not None and last:
        at_least = "" if known else "at least "
        lasted = format_elapsed(started - stopped)
        yield f"{code(action.name)} did not run for {at_least}{lasted}, from its end to its start."
    if outcome.facts.get("outcome") == "healed":
        since, of = (action.at, "the action began") if started is None else (started, "its start")
        yield f"It was verified as healthy {format_elapsed(outcome.at - since)} after {of}."


def _stopped_at(incident: IncidentRecord, action: ActionRecord) -> tuple[float | None, bool]:
    """When the worker was stopped, by `action` or by an attempt before it after which it was gone.

    A worker that no attempt stopped was down already when the alert started; the second value is
    whether its end is known.
    """
    attempts: list[ActionRecord] = []
    first: Event | None = None
    for one in incident.actions:
        # It was held back right before its first change.
        held_back = one.result == "interrupted" and one.last_step is None
        if one.name == action.name and one.id <= action.id and not held_back:
            steps = (e for e in incident.events_of(one) if e.kind in ("stop", "end", "start"))
            step = next(steps, None)
            stops = step is not None and step.kind != "start"  # it has run until then
            if stops or not attempts or attempts[-1].outcome == "healed":
                attempts, first = [], step
            attempts, first = [*attempts, one], first or step
    if first is None or first.kind != "start":
        return (None if first is None else first.at), True
    ended = process_end(incident, attempts[0])
    return (incident.starts_at, False) if ended is None else (ended, True)


def _training_steps(
    action: ActionRecord, facts: Any, incident: IncidentRecord, times: TimeFormat
) -> Iterator[str]:
    if action.step is not None:
        saved = ""
        if action.checkpoint is not None:
            run = _run_before(incident, action)
            unit = number_unit(run.get("proved_checkpoint", ""))
            saved = f"; its newest complete checkpoint was {unit} {action.checkpoint:g}"
            if (at := run.get("checkpoint_at")) is not None:
                saved += f", saved {times.clock(at)}, {format_elapsed(action.at - at)} before"
        yield f"The run was at step {action.step:g} when the action started{saved}."
    first, step = facts.get("first_step"), facts.get("step")
    if (resumed := facts.get("resume_step")) is not None and first is not None:
        again = describe_repeated(facts, action.step)
        named = "first step" if facts.get("step_spacing", 1) == 1 else "first logged step"
        more = f": {again}" if again else ""
        yield f"It resumed from step {resumed:g}; its {named} then was {first:g}{more}."
    elif step is not None and action.step is not None:
        yield f"When it was healthy again, the run was at step {step:g}."


def _run_before(incident: IncidentRecord, action: ActionRecord) -> Mapping[str, Any]:
    """Returns what the exporter showed of the run at an action."""
    seen = (one.exporter_facts("runs") for one in incident.evidence if one.action == action.id)
    found: Mapping[str, Any] = next(seen, {}).get(action.run, {})
    return found


def _final_state(incident: IncidentRecord, times: TimeFormat) -> Iterator[str]:
    record = next((one for one in reversed(incident.evidence) if one.kind == "end"), None)
    run = {} if record is None else record.exporter_facts("runs").get(incident.affected_run, {})
    if record is None or not run:
        return
    step, phase = run.get("step"), run.get("phase")
    at = f"At the end of the incident ({times.clock(record.at)}), the run was"
    facts = [f"at step {step:g}"] if step is not None else []
    facts += [f"in phase {text(str(phase))}"] if phase else []
    if run.get("checkpoint") is not None:
        unit = number_unit(run.get("proved_checkpoint", ""))
        facts.append(f"with a complete checkpoint of {unit} {run['checkpoint']:g}")
    if facts:
        yield f"{at} {', '.join(facts)}."
    first = next((action for action in incident.actions if action.step is not None), None)
    if first is not None and first.step is not None and step is not None:
        if (gone := step - first.step) > 0:
            yield f"Progress since the action: {plural(round(gone), 'step')}."
        elif (run.get("last_step_at") or 0.0) <= first.at:  # else it makes lost steps again
            yield f"**No step since the action** (it was at step {first.step:g})."
