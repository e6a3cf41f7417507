"""Writes the verdict as Markdown. Pure."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from trainwarden.autopsy import settings
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.cause import LIKELY, RESUME, Setting
from trainwarden.autopsy.glance import at_a_glance, attempts_text
from trainwarden.autopsy.kinds import Kind
from trainwarden.autopsy.model import LogReading
from trainwarden.autopsy.timeline import how_it_ended, timeline
from trainwarden.autopsy.verdict import Verdict, Weighed
from trainwarden_exporter.frameworks.error_lines import TRACEBACK
from trainwarden_exporter.runtime.formatting import (
    format_size,
    format_time,
    plural,
)
from trainwarden_remediator.report.markdown import bullets, code, fence, table, text

SHOWN_CAUSES = 4
_SHOWN_ERRORS = 20
_SHOWN_ATTEMPTS = 15
_SHOWN_LOGS = 15
_SHOWN_RUNS = 20


def render(verdict: Verdict) -> str:
    """Returns the whole report."""
    case = verdict.case
    sections = [
        f"# Autopsy of {code(str(case.material.folder))}",
        f"**{text(verdict.headline)}**",
        *_other_runs(case),
    ]
    if verdict.has_material:
        sections += [
            at_a_glance(case),
            *_causes(verdict),
            *_next_steps(verdict),
            *_last_lines(verdict),
            *_configuration(verdict),
            *_timeline(case),
            *_attempts(case),
            *_errors(case),
        ]
    sections += _material(case)
    return "\n\n".join(sections) + "\n"


def _other_runs(case: Case) -> Iterator[str]:
    others, mixed = case.material.other_runs, case.mixed_checkpoints
    if others:
        yield (
            f"{len(others) + 1} runs of `trainwarden run` belong to this folder. This is the last, "
            f"{code(case.material.announced[0].run)}, from its own log and checkpoints. The others:"
        )
        yield bullets(
            f"{code(one.run)}, {text(one.state)}: {_command(str(one.own_path))}"
            for one in others[:_SHOWN_RUNS]
        )
    if mixed:
        yield (
            "Checkpoints of several runs lie here, one of them far ahead of the last step of the "
            "logs. Which belong to the logs is not known. Give the folder of one run:"
        )
        yield bullets(_command(one) for one in mixed[:_SHOWN_RUNS])


def _command(path: str) -> str:
    return code(f"trainwarden autopsy {shlex.quote(path)}")


def _causes(verdict: Verdict) -> Iterator[str]:
    if verdict.likely:
        yield "## Likely causes"
        yield (
            "A cause's score is the sum of the points of the evidence below it; "
            f"{LIKELY} or more is likely."
        )
    for number, weighed in enumerate(verdict.likely[:SHOWN_CAUSES], 1):
        yield f"### {number}. {text(weighed.cause.title)} (score {weighed.score})"
        yield _evidence(weighed)
    others = (*verdict.likely[SHOWN_CAUSES:], *verdict.unlikely)
    if others:
        yield "## Also considered"
        for weighed in others:
            yield f"**{text(weighed.cause.title)}** (score {weighed.score})"
            yield _evidence(weighed)


def _evidence(weighed: Weighed) -> str:
    rows = []
    for points, evidence in sorted(weighed.evidence, key=lambda one: -one[0]):
        line = f": {code(evidence.line)}" if evidence.line else ""
        side = "for" if points > 0 else "against" if points < 0 else "note"
        rows.append(f"{side} ({points:+d}): {text(evidence.text)}{line}")
    if not weighed.opposing:
        rows.append("against: no evidence was found")
    return bullets(rows)


def next_steps(verdict: Verdict) -> list[str]:
    """Returns what to do now, of the likely causes."""
    found = [step for one in verdict.likely[:2] for step in one.cause.next_steps]
    case = verdict.case
    if case.resume is None or case.resume.checkpoint is None:
        found = [one for one in found if one != RESUME]
    if (case.finished and not case.not_finite) or not verdict.likely:
        return found
    step = case.checkpoint_step
    if step is None and case.resume is not None and case.resume.checkpoint is not None:
        found.append(RESUME)
    elif step is not None:
        found.append(f"Resume from the checkpoint of step {step}: the next step is {step + 1}.")
    return list(dict.fromkeys(found))


def _next_steps(verdict: Verdict) -> Iterator[str]:
    if found := next_steps(verdict):
        yield "## What to do now"
        yield bullets(_with_code(step) for step in found)


def _last_lines(verdict: Verdict) -> Iterator[str]:
    name, lines = verdict.case.last_log_lines
    if lines and (verdict.likely or not verdict.case.finished):
        yield f"## The last lines of {code(name)}"
        yield fence(lines)


def _with_code(step: str) -> str:
    """Escapes all but what stands in backticks."""
    pieces = step.split("`")
    return "".join(
        code(piece) if index % 2 else text(f".{piece}.")[1:-1] for index, piece in enumerate(pieces)
    )


def proposed_settings(verdict: Verdict) -> str:
    """Returns an exporter.yml with which the likely causes are caught next time.

    "" where `trainwarden run` has announced the run, and all that needs one is watched without.
    """
    wanted = _wanted(verdict)
    if verdict.case.material.announced and not settings.needs_file(wanted):
        return ""
    return settings.propose(verdict.case, wanted)


def _wanted(verdict: Verdict) -> list[Setting]:
    found = [name for one in verdict.likely[:3] for name in one.cause.settings]
    return found or ["workers"]


def alerts(verdict: Verdict) -> list[str]:
    """Returns the alerts that report the likely causes."""
    found = [alert for one in verdict.likely[:3] for alert in one.cause.alerts]
    material = verdict.case.material
    parts = {log.role for log in material.logs} | {one.role for one in material.framework.roles}
    if parts.isdisjoint(("inference", "orchestrator", "rollout")) and not verdict.case.waiting:
        found = [alert for alert in found if alert != "TrainingWaitingForRollouts"]
    return list(dict.fromkeys(found))


def _configuration(verdict: Verdict) -> Iterator[str]:
    if verdict.case.not_started:
        return
    yield "## To catch it next time" if verdict.likely else "## To watch such a run"
    named, proposed = ", ".join(map(code, alerts(verdict))), proposed_settings(verdict)
    announced = verdict.case.material.announced
    if not proposed:
        report = f"; these alerts report it: {named}" if named else ""
        yield f"`trainwarden run` has recorded run {code(announced[0].run)}: it is watched{report}."
        if lacks := settings.missing_options(announced, _wanted(verdict)):
            yield "What `trainwarden run` can be given, unless it was:"
            yield bullets(map(_with_code, lacks))
        return
    if named:
        yield f"With this `exporter.yml`, these alerts report it: {named}."
    yield fence(proposed.splitlines(), "yaml")
    yield (
        "The commands, limits and numbers in it are guesses: compare them with yours, then run "
        "`trainwarden check exporter.yml`."
    )


def _timeline(case: Case) -> Iterator[str]:
    events = timeline(case)
    if not events:
        return
    yield "## Timeline (UTC)"
    rows = []
    for event in events:
        line = f" {code(_shortened(event.line))}" if event.line else ""
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.at))
        rows.append((clock, f"{text(event.text)}{line}"))
    yield table(("time", "event"), rows)


def _shortened(line: str) -> str:
    return line if len(line) <= 120 else line[:119] + "…"  # noqa: PLR2004 - fits a table


def _attempts(case: Case) -> Iterator[str]:
    if len(case.attempts) < 2:  # noqa: PLR2004 - one attempt is in the table above
        return
    yield f"## Attempts: {attempts_text(case)}"
    rows = []
    for one in case.attempts[-_SHOWN_ATTEMPTS:]:
        steps = "" if one.last_step is None else f"{one.first_step} to {one.last_step}"
        began = "" if one.began_at is None else format_time(one.began_at)
        ended = "" if one.progress_at is None else format_time(one.progress_at)
        rows.append((code(one.file), began, ended, steps, text(how_it_ended(case, one))))
    yield table(("log", "first progress", "last progress", "steps", "end"), rows)
    if len(case.attempts) > _SHOWN_ATTEMPTS:
        yield f"The last {_SHOWN_ATTEMPTS} of {len(case.attempts)}."
    if len({one.file for one in case.attempts}) > 1:
        yield (
            "Several logs are taken as those of one run. If one is that of another run, give the "
            "log instead of the folder: `trainwarden autopsy LOG`."
        )


def _errors(case: Case) -> Iterator[str]:
    if not case.errors:
        return
    yield "## Errors, each counted once"
    rows = [
        (
            text(error.name.replace("_", " ")),
            str(error.count),
            "" if error.first.at is None else format_time(error.first.at),
            "" if error.last.at is None else format_time(error.last.at),
            ", ".join(map(code, error.files[:3])),
            code(_shortened(_last_text(error, case))),
        )
        for error in case.errors[:_SHOWN_ERRORS]
    ]
    yield table(("kind", "lines", "first", "last", "in", "the last one"), rows)
    yield (
        "A line that is in several files of the run counts once. "
        "An error that progress followed did not end the run."
    )


def _last_text(error: Kind, case: Case) -> str:
    """Returns the last line of a kind; of a traceback the exception, which comes after it."""
    raised = case.find("raised") if error.name == TRACEBACK else None
    last = error.last if raised is None else raised.last
    follows = last.file == error.last.file and last.order > error.last.order
    return last.text if follows else error.last.text


def _relative(log: LogReading, case: Case) -> str:
    folder = case.material.folder
    return (
        str(log.log.path.relative_to(folder)) if log.log.path.is_relative_to(folder) else log.name
    )


def _material(case: Case) -> Iterator[str]:
    material = case.material
    yield "## What was read"
    framework = (
        material.framework.title if material.framework.name != "generic" else "not recognised"
    )
    size = sum(log.bytes_read for log in case.logs)
    points = [
        f"Framework: {text(framework)}.",
        f"{plural(len(case.logs), 'log')}, {format_size(size)}.",
        f"{plural(material.files.others, 'other file')}, not read as text.",
    ]
    zone = time.strftime("%Z")
    points.append(f"Times in logs without a zone are taken as {zone}, the zone of this host.")
    logs = sorted(case.logs, key=lambda log: -(case.end_of(log) or 0.0))[:_SHOWN_LOGS]
    points += [
        f"{code(_relative(log, case))}"
        + (f" ({log.role})" if log.role else "")
        + (f": {format_time(log.last_at)} last" if log.last_at is not None else ": without times")
        for log in logs
    ]
    if len(case.logs) > _SHOWN_LOGS:
        points.append(f"and {len(case.logs) - _SHOWN_LOGS} older ones")
    points += [f"Not read: {code(one)}" for one in material.unread[:10]]
    yield bullets(points)
