"""Turns the counts of progress bars and of epochs into completed steps of the run. Pure.

A bar counts the steps of the run, of an epoch, or of something else, such as an evaluation. Its
total distinguishes them. A smaller one within a training is an evaluation, and shows only that the
run does not hang; but the first training of a run, or the preparation of its data, may have more
steps than what follows it: then the smaller one goes on for longer than any evaluation.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from trainwarden_exporter.progress.events import Moved, StepReported
from trainwarden_exporter.progress.state import Attempt, Count, RunProgress
from trainwarden_exporter.progress.step_timing import StepTiming

EVALUATION_SECONDS = 60.0
"""Seconds for which a smaller count counts as an evaluation, whatever the pace of the steps."""

EVALUATION_EPOCHS = 2
"""Multiple of the time of an epoch for which it counts as an evaluation within the training."""

MAX_COUNTS = 32
"""Most counts to remember."""

MAX_EQUAL_BARS = 4
"""Most bars of one length that are drawn in turn while none of them moves."""

_COURSE = ("steps", "last_sign", "timing", "epoch_total", "line_total")
"""What a training has shown, besides its reports and its attempt."""


def resolve_count(
    state: RunProgress,
    event: StepReported,
    *,
    configured_total: int | None,
    trainer_start: float | None = None,
) -> tuple[RunProgress, StepReported | Moved | None]:
    """Returns `event` in steps of the run, and its state.

    If it counts something else, only that this moves, or None if it does not. The state differs
    from `state` by the totals of bars and epochs, and by the steps of a bar that turned out not to
    be that of the run. `trainer_start` (Unix seconds): when the newest process of the trainer
    started; None if not yet known, 0 if nothing shows it.
    """
    match event.total_of:
        case "bar":
            return _of_bar(state, event, configured_total)
        case "epoch" | "line":
            if (before := _training_before(state, event)) is not None:
                state = _with_training(state, before)
            elif event.total and event.total < (state.epoch_total or 0):
                state, moved = _of_other(state, event)
                if moved is None or not _is_training(state, event):
                    return state, moved
                state = _without_training(state)
            return _of_epoch(state, event, configured_total, trainer_start)
    if configured_total is not None:
        event = replace(event, total=configured_total)
    return state, event


def _of_bar(
    state: RunProgress, event: StepReported, configured_total: int | None
) -> tuple[RunProgress, StepReported | Moved | None]:
    known = state.total if configured_total is None else configured_total
    if known is not None:
        return (state, event) if event.total == known else _of_other(state, event)
    if state.finished or event.total is None:
        return state, None
    if state.bar_total not in (None, event.total):
        if _last_count(state, event) != state.bar_total:
            return _of_other(state, event)
        # An evaluation before the training has a bar of its own, which is complete by now.
        state = _without_steps(state, event.source)
    # The end of the bar is not the end of the run: a last save or an evaluation may follow.
    return replace(state, bar_total=event.total), replace(event, total=None)


def _of_epoch(
    state: RunProgress,
    event: StepReported,
    configured_total: int | None,
    trainer_start: float | None,
) -> tuple[RunProgress, StepReported | Moved | None]:
    total, last, step = event.total, _last_count(state, event), event.step
    if total and state.epoch_total not in (None, total):
        state, last = _without_steps(state, event.source), None
    if last is not None and state.reports[event.source].dated:
        if not event.dated:
            return state, None  # a line that is read again
    elif last is not None and step < last:
        # Lines from before the exporter may be those of several runs, or epochs.
        state, last = _without_read_steps(state, event.source, last), None
    if total:
        line_total = total if event.total_of == "line" else state.line_total
        state = replace(state, epoch_total=total, line_total=line_total)
    if total and last is not None and step <= total:
        before = max(0, last - 1) // total * total
        if step < last - before:
            ended = last - before == total or _ended_unobserved(
                state, event.source, trainer_start, in_epochs=before > 0 or state.epochs_seen
            )
            if ended is None:
                return state, None
            before = before + total if ended else 0
        step += before
    return state, replace(event, step=step, total=configured_total)


def _of_other(state: RunProgress, event: StepReported) -> tuple[RunProgress, Moved | None]:
    """Returns the state with a count of something else, and whether that counts on."""
    last_step_at = state.steps[-1].timestamp if state.steps else 0.0
    since = max(state.attempt.began, last_step_at)
    if event.total is None or not event.dated or event.timestamp < since:
        return state, None
    count = _find(state, event) or Count(event.source, event.total, began=event.timestamp)
    if count.began < since:  # the training went on between
        count = replace(count, began=event.timestamp, drawn=())
    if event.step in count.drawn:
        return state, None  # only drawn again
    drawn = (*count.drawn, event.step)[-MAX_EQUAL_BARS:]
    return _with_count(state, replace(count, drawn=drawn)), Moved(event.timestamp)


def _find(state: RunProgress, event: StepReported) -> Count | None:
    return next((x for x in state.counts if x.key == (event.source, event.total)), None)


def _with_count(state: RunProgress, count: Count) -> RunProgress:
    others = [one for one in state.counts if one.key != count.key]
    return replace(state, counts=(*others, count)[-MAX_COUNTS:])


def _is_training(state: RunProgress, event: StepReported) -> bool:
    """Whether a smaller count has gone on for too long to be an evaluation.

    Before the first step of an attempt it may be what is left of the training.
    """
    count, longest = _find(state, event), EVALUATION_SECONDS
    if count is None or count.is_evaluation:
        return False
    whole, each = state.epoch_total or 0, state.timing.typical
    done = 0 if state.attempt.previous_step is None else state.attempt.previous_step % whole
    if state.last_step_at is not None:
        longest = max(longest, EVALUATION_EPOCHS * whole * (inf if each is None else each))
    elif done + count.total < whole:
        longest = max(longest, EVALUATION_EPOCHS * whole * (each or 0))
    return event.timestamp - count.began > longest


def _ended_unobserved(
    state: RunProgress, source: str, trainer_start: float | None, *, in_epochs: bool
) -> bool | None:
    """Whether the process of the last report of `source` has ended its epoch while unobserved.

    Another process has resumed instead. None if that is not yet known.
    """
    reported_at = state.reports[source].timestamp
    if reported_at >= state.interrupted_at:
        return False
    if trainer_start is None:
        return None if in_epochs else False
    return trainer_start <= reported_at and (trainer_start > 0 or in_epochs)


def _last_count(state: RunProgress, event: StepReported) -> int | None:
    """Returns the last step of the same source in this attempt."""
    report = state.reports.get(event.source)
    if report is None or report.attempt != state.attempt.number:
        return None
    return report.step


def _without_read_steps(state: RunProgress, source: str, last: int) -> RunProgress:
    """Returns `state` without the steps up to `last`, whose lines have no time, hence no pace."""
    if state.finished and state.total is not None and last >= state.total:
        state = replace(state, phase=None, phase_began_at=None)
    return replace(_without_steps(state, source), timing=state.timing)


def _without_steps(state: RunProgress, source: str) -> RunProgress:
    reports = {name: one for name, one in state.reports.items() if name != source}
    attempt = replace(state.attempt, first_step=None)
    return replace(state, reports=reports, attempt=attempt, steps=(), timing=StepTiming())


def _without_training(state: RunProgress) -> RunProgress:
    """Returns `state` before a training whose steps have nothing to do with those before."""
    before = replace(state, counts=())
    for source in [one for one in state.reports if one.startswith("log/")]:
        state = _without_steps(state, source)
        known = Count(source, state.epoch_total or 0, before.attempt.began, training=before)
        state = _with_count(state, known)
    attempt = replace(state.attempt, previous_step=None, announced_step=None, counted_step=None)
    return _with_attempt(replace(state, epoch_total=None), attempt)


def _training_before(state: RunProgress, event: StepReported) -> RunProgress | None:
    """Returns the state before another count than that of `event` became the training."""
    count = _find(state, event) if event.dated and event.total != state.epoch_total else None
    before = None if count is None else count.training
    current = before is not None and before.attempt.number == state.attempt.number
    return before if current else None


def _with_training(state: RunProgress, before: RunProgress) -> RunProgress:
    """Returns `state` with the training of `before`: the count that has replaced it is none."""
    logs = {name: one for name, one in before.reports.items() if name.startswith("log/")}
    course = {name: getattr(before, name) for name in _COURSE}
    no_trainings = {state.epoch_total, *(one.total for one in state.counts if one.is_evaluation)}
    counts = tuple(
        replace(one, is_evaluation=one.total in no_trainings, training=None) for one in state.counts
    )
    return _with_attempt(
        replace(state, reports={**state.reports, **logs}, counts=counts, **course), before.attempt
    )


def _with_attempt(state: RunProgress, attempt: Attempt) -> RunProgress:
    """Returns `state` with `attempt` for the present one; what was counted stays counted."""
    return replace(
        state,
        attempt=attempt,
        resumes_before=state.resumes - attempt.resumed,
        repeated_before=state.repeated - attempt.repeated,
        lost_before=state.lost - attempt.lost,
    )
