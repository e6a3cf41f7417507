"""Tells which count is that of the training, where a run counts several things. Pure.

Another count than that of the training is an evaluation at first, and shows only that the run does
not hang. It is a training if it goes on for longer than evaluations do, or at the pace of the
training that has ended. If the count before goes on again, it was none. The first training of a
run, or the preparation of its data, may have more steps than what follows it.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from trainwarden_exporter.progress.events import StepReported
from trainwarden_exporter.progress.source_reports import JITTER_STEPS
from trainwarden_exporter.progress.state import Count, RunProgress
from trainwarden_exporter.progress.step_timing import StepTiming

EVALUATION_SECONDS = 60.0
"""Seconds for which another count is an evaluation, whatever the pace of the steps."""

EVALUATION_EPOCHS = 2
"""Multiple of the time of an epoch for which it is an evaluation, if its pace is another one."""

SAME_PACE = 1.5
"""Factor within which the steps of two trainings take equally long."""

MAX_COUNTS = 32
"""Most counts to remember."""

MAX_EQUAL_BARS = 4
"""Most bars of the length of the training that are drawn in turn."""

MAX_OTHER_BARS = 16
"""The same of another length: they may be those of the workers of an evaluation."""

READ_SECONDS = 1.0
"""Seconds by which lines are read late, and then all at once."""

_ATTEMPTS = ("attempt", "resumes_before", "repeated_before", "lost_before")
_COURSE = (*_ATTEMPTS, "steps", "last_sign", "timing", "epoch_total", "line_total")
"""What a training has shown, besides its reports."""


def find_count(state: RunProgress, event: StepReported) -> Count | None:
    """Returns what is known of the count of `event`."""
    return next((x for x in state.counts if x.key == (event.source, event.total)), None)


def last_count(state: RunProgress, event: StepReported) -> int | None:
    """Returns the last step of the same source in this attempt."""
    report = state.reports.get(event.source)
    if report is None or report.attempt != state.attempt.number:
        return None
    return report.step


def counted_beside(state: RunProgress) -> Count | None:
    """Returns what counts on since the last step, and is none: an evaluation, or other work."""
    last, sign, count = state.last_step_at, state.last_sign_at, next(iter(state.counts[-1:]), None)
    if count is None or last is None or sign is None or not (count.began > last < sign):
        return None
    return None if state.finished else count


def with_draw(
    state: RunProgress, event: StepReported, training_total: int | None, *, in_turn: bool = False
) -> tuple[RunProgress, Count | None]:
    """Returns the state with the count of `event`, and that count if it moves.

    `in_turn` is what `is_drawn_in_turn` has returned.
    """
    since, is_other = state.attempt.since, event.total != training_total
    if is_other and state.steps:
        since = max(since, state.steps[-1].timestamp)
    count = _current_count(state, event, since)
    if count is None:
        return state, None
    # the next evaluation of the same length, after the end of one
    again = is_complete(state, event) and event.step <= min(count.drawn[:-1], default=-1)
    known = () if is_other and again else count.drawn
    moves = event.step not in known
    before = count.drawn[-1] if count.drawn else event.step
    drawn = (*(one for one in known if one != event.step), event.step)
    drawn = drawn[-(MAX_OTHER_BARS if is_other else MAX_EQUAL_BARS) :]
    made = event.step - (before if event.step > before else 0) if moves and count.drawn else 0
    in_turn = in_turn or count.in_turn
    count = replace(count, drawn=drawn, made=count.made + made, in_turn=in_turn)
    return _with_count(state, count), count if moves else None


def with_highest(state: RunProgress, event: StepReported) -> tuple[RunProgress, bool]:
    """Returns the state with the highest number of a bar of something else, and whether it grew.

    Bars that are drawn in turn, and gauges that go up and down, count on no further.
    """
    since = max(state.attempt.since, state.steps[-1].timestamp if state.steps else 0.0)
    count = _current_count(state, event, since)
    if count is None or event.step <= max(count.drawn, default=-1):
        return state, False
    return _with_count(state, replace(count, drawn=(event.step,))), True


def _current_count(state: RunProgress, event: StepReported, since: float) -> Count | None:
    """Returns the count of `event` since `since`; None if the event is older, or counts nothing."""
    if event.total is None or not event.dated or event.timestamp < since:
        return None
    count = find_count(state, event) or Count(event.source, event.total, began=event.timestamp)
    if count.began >= since:
        return count
    # the training went on between
    return replace(count, began=event.timestamp, drawn=(), made=0, in_turn=False)


def _with_count(state: RunProgress, count: Count) -> RunProgress:
    others = [one for one in state.counts if one.key != count.key]
    return replace(state, counts=(*others, count)[-MAX_COUNTS:])


def is_drawn_in_turn(state: RunProgress, event: StepReported) -> bool:
    """Whether `event` is another bar of the same length, drawn in turn with that of the epoch.

    So are the complete bars of earlier epochs. A number that was drawn before is one of these if
    no bar can have moved that far, or if there are such bars.
    """
    count, last, total = find_count(state, event), last_count(state, event), event.total
    if count is None or last is None or not total or event.total_of != "epoch":
        return False
    forward, typical = (event.step - last) % total, state.timing.typical
    if forward == 0 or not {event.step, total} <= {*count.drawn}:
        return False
    if count.in_turn or typical is None:
        return count.in_turn and (event.step, forward) != (total, 1)
    elapsed = event.timestamp - state.reports[event.source].timestamp
    return forward * typical > elapsed + READ_SECONDS


def is_complete(state: RunProgress, event: StepReported) -> bool:
    """Whether the last bar before `event` was complete, though drawn in turn with its epoch."""
    count = find_count(state, event)
    return count is not None and count.drawn[-1:] == (event.total,)


def is_training(state: RunProgress, count: Count, event: StepReported, whole: int) -> bool:
    """Whether a count has gone on for too long to be an evaluation.

    `whole` is the total of the training so far. Before the first step of an attempt the count may
    be what is left of that.
    """
    if count.is_evaluation:
        return False
    lasted, longest, each = event.timestamp - count.began, EVALUATION_SECONDS, state.timing.typical
    done = 0 if state.attempt.previous_step is None else state.attempt.previous_step % whole
    if state.last_step_at is not None:
        has_ended = state.finished or (state.step or 0) % whole == 0
        pace = lasted / max(1, count.made) / (each or inf)
        if not (has_ended and 1 / SAME_PACE <= pace <= SAME_PACE):
            longest = max(longest, EVALUATION_EPOCHS * whole * (inf if each is None else each))
    elif done + (count.total or 0) < whole:
        longest = max(longest, EVALUATION_EPOCHS * whole * (each or 0))
    return lasted > longest


def begins_again(
    state: RunProgress, event: StepReported, trainer_start: float | None, error_at: float | None
) -> bool:
    """Whether the process that made the last steps counts from the start again, without an error.

    So does the next command of a script. A restart has another process, or the script has shown
    the error of the one before.
    """
    report, last, total = state.reports.get(event.source), last_count(state, event), event.total
    if report is None or last is None or not (event.dated and report.dated and event.is_live):
        return False
    if not event.source.startswith("log/") or event.step >= last - JITTER_STEPS:
        return False
    if event.step > max(1, state.attempt.spacing or 1):
        return False
    if total and (total not in (state.epoch_total, state.bar_total) or last % total == 0):
        return False  # something else, or the next epoch
    if is_complete(state, event):
        return False
    if trainer_start == 0 or error_at is None or error_at >= report.timestamp:
        return False
    # A start that is not known yet undoes this, see `before_start`.
    return max(trainer_start or 0.0, state.interrupted_at) <= report.timestamp


def without_steps(state: RunProgress, source: str) -> RunProgress:
    """Returns `state` without the steps of this attempt, and without what `source` reported."""
    reports = {name: one for name, one in state.reports.items() if name != source}
    attempt = replace(state.attempt, first_step=None)
    return replace(state, reports=reports, attempt=attempt, steps=(), timing=StepTiming())


def without_training(state: RunProgress, since: float, *, same: bool = False) -> RunProgress:
    """Returns `state` before a training whose steps have nothing to do with those before `since`.

    If it is the `same` one again, its pace is known.
    """
    number, state = state.attempt.number, with_training_kept(state)
    reports = {
        name: replace(one, attempt=min(one.attempt, number - 1))
        for name, one in state.reports.items()
        if not name.startswith("log/")
    }
    return replace(
        state,
        reports=reports,
        attempt=replace(
            state.attempt,
            counts_from=since,
            first_step=None,
            previous_step=None,
            announced_step=None,
            counted_step=None,
        ),
        steps=(),
        timing=state.timing if same else StepTiming(),
        total=None,
        bar_total=None,
        epoch_total=None,
        resumes_before=state.resumes,
        repeated_before=state.repeated,
        lost_before=state.lost,
    )


def with_training_kept(state: RunProgress) -> RunProgress:
    """Returns `state` with the counts that have shown its training, in case that goes on."""
    before = replace(state, counts=())
    for source in [one for one in state.reports if one.startswith("log/")]:
        total = state.epoch_total or state.bar_total
        known = next((one for one in state.counts if one.key == (source, total)), None)
        known = known or Count(source, total, began=state.attempt.since)
        state = _with_count(state, replace(known, training=before))
    return state


def restored(state: RunProgress, event: StepReported) -> RunProgress | None:
    """Returns the state with the training that another count was taken to have ended.

    None if `event` is not of that training.
    """
    count = find_count(state, event) if event.dated and event.total != state.epoch_total else None
    before = None if count is None else count.training
    if count is None or before is None:
        return None
    if state.attempt.started and state.attempt.number != before.attempt.number:
        return None  # another process
    if (event.total or 0) < (state.epoch_total or 0):
        # More steps are no evaluation, unless they took less time.
        took = before.steps[-1].timestamp - count.began if before.steps else 0.0
        others = [one.began for one in state.counts if one.total == state.epoch_total]
        if event.timestamp - min(others, default=0.0) > took:
            return None
    return _with_training(state, before)


def _with_training(state: RunProgress, before: RunProgress) -> RunProgress:
    no_trainings = {state.epoch_total, *(one.total for one in state.counts if one.is_evaluation)}
    counts = tuple(
        replace(one, is_evaluation=one.total in no_trainings, training=None) for one in state.counts
    )
    others = {
        name: replace(one, attempt=min(one.attempt, before.attempt.number))
        for name, one in state.reports.items()
    }
    state = replace(state, reports={**others, **before.reports}, counts=counts)
    return replace(state, **{name: getattr(before, name) for name in _COURSE})


def before_start(state: RunProgress, started: float) -> RunProgress:
    """Returns `state` before a process of the trainer that started at `started`.

    What counted from the start again since then was that process, and no other training.
    """
    for before in [one.training for one in state.counts if one.training is not None]:
        last = before.steps[-1].timestamp if before.steps else before.attempt.since
        if last < started < state.attempt.counts_from:
            course = {name: getattr(before, name) for name in _ATTEMPTS}
            return replace(state, steps=(*before.steps, *state.steps), **course)
    return state
