"""Turns the counts of progress bars and of epochs into completed steps of the run. Pure.

A bar counts the steps of the run, of an epoch, or of something else, such as an evaluation. Its
total distinguishes them; `trainings` tells which of them is the training.
"""

from __future__ import annotations

from dataclasses import replace

from trainwarden_exporter.progress.events import Moved, StepReported
from trainwarden_exporter.progress.source_reports import JITTER_STEPS
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.trainings import (
    begins_again,
    find_count,
    is_complete,
    is_drawn_in_turn,
    is_training,
    last_count,
    restored,
    with_draw,
    with_highest,
    with_training_kept,
    without_steps,
    without_training,
)

_Resolved = tuple[RunProgress, StepReported | Moved | None]


def resolve_count(
    state: RunProgress,
    event: StepReported,
    *,
    configured_total: int | None,
    trainer_start: float | None = None,
    error_at: float | None = None,
) -> _Resolved:
    """Returns `event` in steps of the run, and its state.

    If it counts something else, only that this moves, or None if it does not. The state differs
    from `state` by the counts, and by the steps of what turned out not to be that of the run.
    `trainer_start` (Unix seconds): when the newest process of the trainer started; None if not yet
    known, 0 if nothing shows it. `error_at`: time of the last error in its log; None if unknown.
    """
    lines, seen = state.lines.resolve(event)
    state = replace(state, lines=lines)
    if not isinstance(seen, StepReported):
        return state, seen
    event = seen
    if event.total_of == "other":
        state, moves = with_highest(state, event)
        return state, Moved(event.timestamp) if moves else None
    if begins_again(state, event, trainer_start, error_at):
        state = without_training(state, event.timestamp, same=True)
    match event.total_of:
        case "bar":
            return _of_bar(state, event, configured_total)
        case "epoch" | "line":
            state = restored(state, event) or state
            whole, in_turn = state.epoch_total, is_drawn_in_turn(state, event)
            complete = is_complete(state, event)
            state, count = with_draw(state, event, whole, in_turn=in_turn)
            if whole and event.total and _is_other(state, event, whole):
                if count is None or not is_training(state, count, event, whole):
                    return state, None if count is None else Moved(event.timestamp)
                state = without_training(state, count.began)
            elif in_turn:
                return state, None
            return _of_epoch(state, event, configured_total, trainer_start, complete=complete)
    return state, event if configured_total is None else replace(event, total=configured_total)


def _is_other(state: RunProgress, event: StepReported, whole: int) -> bool:
    """Whether `event` counts something else than a training with epochs of `whole` steps."""
    count = find_count(state, event)
    return (event.total or 0) < whole or (count is not None and count.is_evaluation)


def _of_bar(state: RunProgress, event: StepReported, configured_total: int | None) -> _Resolved:
    known = state.total if configured_total is None else configured_total
    whole, last = state.bar_total if known is None else known, last_count(state, event)
    if event.total is None or (state.finished and whole is None):
        return state, None
    if whole in (None, event.total):
        if event.dated and last == whole and event.step < event.total - JITTER_STEPS:
            state = without_training(state, event.timestamp, same=True)
    elif known is None and not state.finished and last == whole:
        # An evaluation before the training has a bar of its own, which is complete by now.
        state = without_steps(state, event.source)
    else:
        state, count = with_draw(state, event, whole)
        if count is None:
            return state, None
        sign = state.last_sign
        # An evaluation may follow the training at its pace, but logs no loss.
        shows_steps = sign is not None and sign.timestamp > count.began
        if configured_total or not shows_steps or not (state.finished or state.step == whole):
            return state, Moved(event.timestamp)
        state = without_training(state, count.began)
    if event.total == known:
        return state, event
    # The end of the bar is not the end of the run: a last save or an evaluation may follow.
    return replace(state, bar_total=event.total), replace(event, total=None)


def _of_epoch(
    state: RunProgress,
    event: StepReported,
    configured_total: int | None,
    trainer_start: float | None,
    *,
    complete: bool,
) -> _Resolved:
    """`complete` is whether the bar that was drawn last was."""
    total, last, step = event.total, last_count(state, event), event.step
    if total and state.epoch_total not in (None, total):
        state, last = without_steps(with_training_kept(state), event.source), None
    if last is not None and state.reports[event.source].last_dated is not None:
        if not (event.dated or event.missed):
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
            in_epochs = before > 0 or state.epochs.seen
            ended = (
                complete
                or last - before == total
                or _ended_unobserved(state, event.source, trainer_start, in_epochs=in_epochs)
            )
            if ended is None:
                return state, None
            before = before + total if ended else 0
        step += before
    return state, replace(event, step=step, total=configured_total)


def _ended_unobserved(
    state: RunProgress, source: str, trainer_start: float | None, *, in_epochs: bool
) -> bool | None:
    """Whether the process of the last report of `source` has ended its epoch while unobserved.

    Another process has resumed instead. None if that is not yet known.
    """
    report = state.reports[source]
    # the time of a line that no exporter has seen written is only the latest possible one
    reported_at = report.timestamp if report.last_dated is None else report.last_dated[1]
    if reported_at >= state.interrupted_at:
        return False
    if trainer_start is None:
        return None if in_epochs else False
    return trainer_start <= reported_at and (trainer_start > 0 or in_epochs)


def _without_read_steps(state: RunProgress, source: str, last: int) -> RunProgress:
    """Returns `state` without the steps up to `last`, whose lines have no time, hence no pace."""
    if state.finished and state.total is not None and last >= state.total:
        state = replace(state, phase=None, phase_began_at=None)
    return replace(without_steps(state, source), timing=state.timing)
