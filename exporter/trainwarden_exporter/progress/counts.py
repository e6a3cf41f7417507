"""Turns the counts of progress bars and of epochs into completed steps of the run. Pure.

A bar counts the steps of the run, of an epoch, or of something else, such as an evaluation. Its
total distinguishes them.
"""

from __future__ import annotations

from dataclasses import replace

from trainwarden_exporter.progress.events import StepReported
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.step_timing import StepTiming


def resolve_count(
    state: RunProgress,
    event: StepReported,
    *,
    configured_total: int | None,
    trainer_start: float | None = None,
) -> tuple[RunProgress, StepReported | None]:
    """Returns `event` in steps of the run, None if it counts something else, and its state.

    The state differs from `state` by the totals of bars and epochs, and by the steps of a bar that
    turned out not to be that of the run. `trainer_start` (Unix seconds): when the newest process
    of the trainer started; None if not yet known, 0 if nothing shows it.
    """
    match event.total_of:
        case "bar":
            return _of_bar(state, event, configured_total)
        case "epoch" | "line":
            return _of_epoch(state, event, configured_total, trainer_start)
    if configured_total is not None:
        event = replace(event, total=configured_total)
    return state, event


def _of_bar(
    state: RunProgress, event: StepReported, configured_total: int | None
) -> tuple[RunProgress, StepReported | None]:
    known = state.total if configured_total is None else configured_total
    if known is not None:
        return state, event if event.total == known else None
    if state.finished or event.total is None:
        return state, None
    if state.bar_total not in (None, event.total):
        if _last_count(state, event) != state.bar_total:
            return state, None
        # An evaluation before the training has a bar of its own, which is complete by now.
        state = _without_steps(state, event.source)
    # The end of the bar is not the end of the run: a last save or an evaluation may follow.
    return replace(state, bar_total=event.total), replace(event, total=None)


def _of_epoch(
    state: RunProgress,
    event: StepReported,
    configured_total: int | None,
    trainer_start: float | None,
) -> tuple[RunProgress, StepReported | None]:
    total, last, step = event.total, _last_count(state, event), event.step
    if total and state.epoch_total not in (None, total):
        if total < (state.epoch_total or 0):
            return state, None  # an evaluation
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
