"""The table at the head of the report: the last sign of life, the progress, the resume. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.journals import Action
from trainwarden.autopsy.model import Attempt, LogReading
from trainwarden_exporter.runtime.formatting import (
    format_duration,
    format_size,
    format_time,
    plural,
)
from trainwarden_remediator.report.markdown import code, table, text


def at_a_glance(case: Case) -> str:
    """Returns the table as Markdown."""
    rows: list[tuple[str, str]] = []
    if case.last_log is not None:
        rows.append(("Last sign of life", _last_sign(*case.last_log)))
    latest = case.latest
    if latest is not None:
        rows.append(("Last progress", _progress(latest, case)))
    resume = case.resume
    is_sound = resume is None or resume.checkpoint is None or resume.state == "proved"
    rows.append((f"Last {'good' if is_sound else 'complete'} checkpoint", checkpoint_text(case)))
    if not case.finished or case.not_finite:
        rows.append(("A resume begins at", resume_text(case)))
    if len(case.attempts) > 1:
        rows.append(("Attempts", attempts_text(case)))
    if case.material.actions:
        rows.append(("The remediator", _actions(case.material.actions)))
    rows += [(f"Worker {one.worker}", _announced(one)) for one in case.material.announced]
    count = sum(error.count for error in case.errors)
    rows.append(("Errors", f"{count}, in {plural(len(case.errors), 'kind')}" if count else "none"))
    return table(("", ""), [(f"**{name}**", value) for name, value in rows])


def _actions(actions: Sequence[Action]) -> str:
    counts = Counter((one.kind.replace("_", " "), one.worker, one.alert) for one in actions)
    done = (
        f"{kind} of {code(worker)}{f' for {alert}' if alert else ''}"
        f"{f', {count} times' if count > 1 else ''}"
        for (kind, worker, alert), count in counts.items()
    )
    return f"{'; '.join(done)}; the last at {format_time(actions[-1].at)}: {actions[-1].end}"


def _last_sign(at: float, log: LogReading) -> str:
    if at != log.last_at:
        return f"{format_time(at)}, the last change of {code(log.name)}"
    more = "; lines without a time follow" if log.ends_undated else ""
    return f"{format_time(at)}, in {code(log.name)}{more}"


def _announced(worker: AnnouncedWorker) -> str:
    if not worker.ended and not worker.alive:
        return f"no process; run {code(worker.run)} recorded no end"
    how = f", {worker.how}" if worker.ended and worker.how else ""
    at = f", {format_time(worker.ended_at)}" if worker.ended and worker.ended_at else ""
    return f"{text(worker.state)}{how}{at}, as run {code(worker.run)} recorded"


def _progress(attempt: Attempt, case: Case) -> str:
    parts = []
    if attempt.last_step is not None:
        total = f" of {attempt.total}" if attempt.total else ""
        parts.append(f"step {attempt.last_step}{total}")
    elif attempt.advances:
        parts.append(f"{plural(attempt.advances, 'line')} of progress, without a step number")
    if attempt.progress_at is not None:
        parts.append(format_time(attempt.progress_at))
    elif attempt.ended_at is not None and not attempt.finished:
        is_after = attempt.ended_at == attempt.after_at
        parts.append(f"{'after' if is_after else 'before'} {format_time(attempt.ended_at)}")
    if attempt.finished:
        parts.append("the run reported its end")
    elif attempt.phase is not None:
        parts.append(f"phase {attempt.phase.value.replace('_', ' ')}")
    sign = case.last_sign
    if sign and attempt.progress_at is not None and sign[0] - attempt.progress_at >= 60:  # noqa: PLR2004 - shorter is usual
        parts.append(
            f"{format_duration(sign[0] - attempt.progress_at)} before the last sign of life"
        )
    return text(", ".join(parts) or "unknown")


def checkpoint_text(case: Case) -> str:
    """Returns the last good checkpoint, and an incomplete one after it."""
    found, resume = case.checkpoint, case.resume
    if case.mixed_checkpoints:
        return "not known: those of several runs are mixed"
    if found is None or resume is None:
        kinds = len(case.material.checkpoints)
        return "none is complete" if kinds else "none was found"
    good = resume.checkpoint
    parts = []
    if good is not None:
        number = found.number(good)
        what = code(good.name.text) + (f", {number}" if number else "")
        parts.append(f"{what}, saved {format_time(good.completed_at)}, {format_size(good.size)}")
        if resume.state != "proved":
            parts.append(f"its content is {resume.state}")
    if resume.damaged:
        newest, *others = resume.damaged
        more = f", and so {'are' if others[1:] else 'is'} {plural(len(others), 'other')}"
        parts.append(
            f"{'none is sound: ' if good is None else ''}{code(newest.step_dir.name.text)}"
            f"{'' if good is None else ' after it'} is **damaged**"
            f" ({text(str(newest.damages[0]))}){more if others else ''}"
        )
    if resume.unclear:
        parts.append("which of them are from before the loss was NaN or infinite is not known")
    elif (until := resume.finite_until) is not None:
        which = "newer ones are" if good is not None else "none is known; the ones here are"
        parts.append(f"{which} from after step {until}, the last with a finite loss")
    started = found.snapshot.result.in_progress
    if started is not None:
        parts.append(f"{code(started.name.text)} after it is **incomplete**: do not resume from it")
    recovery = found.snapshot.recovery
    if recovery is not None:
        state = "complete" if recovery.is_complete else "**incomplete**"
        missing = f", {code(recovery.missing)} is missing" if recovery.missing else ""
        parts.append(f"recovery record of step {recovery.step}, {state}{missing}")
    return "; ".join(parts) or "none is complete"


def resume_text(case: Case) -> str:
    resume, step = case.resume, case.checkpoint_step
    if resume is not None and resume.checkpoint is not None and step is None:
        return "that checkpoint; its name holds no step, so which one comes next is not known"
    if case.mixed_checkpoints or (resume is not None and resume.unclear):
        return "not known"
    if step is None:
        return "the beginning, as far as the files show"
    found, last = case.checkpoint, case.last_step
    offset = 0 if found is None else found.spec.layout.step_offset
    # A loop that begins with the step of its checkpoint has shown that in an earlier resume.
    repeats = any(attempt.first_step == step for attempt in case.attempts[1:])
    first = step if repeats else step + 1
    own = f", which the framework's own records count as {first - offset}" if offset else ""
    steps = f"steps {first} to {last} are" if last != first else f"step {first} is"
    lost = f"; {steps} repeated" if last is not None and last > step else ""
    return f"step {first}{own}{lost}"


def attempts_text(case: Case) -> str:
    same, count = case.same_step, len(case.attempts)
    if same is None:
        finished = sum(map(case.has_finished, case.attempts))
        return f"{count}, of them {finished} finished"
    spread = f" ± {same.spread}" if same.spread else ""
    return f"{same.ended} of {same.of} ended at step {same.step}{spread}"
