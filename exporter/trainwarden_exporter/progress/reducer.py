"""Computes the progress of a run from observed events. Pure.

Several sources report one run. They lag (a log is flushed once in a hundred steps, a checkpoint
is complete minutes after its step), so the highest reported step counts. They also become stale:
after a resume from step 1500 the checkpoint of step 1870 still exists, and must not count. The
attempt distinguishes the two cases. A new attempt begins

- when the trainer starts: it has a new process, or a line of its log reports the start;
- when a source goes back: it reports a lower step than before, at a later time;
- when sources contradict each other (see `find_contradiction`), which reveals a start that
  was not observed.

Only reports within the current attempt count, by their time: the time of the line, the last
change of the file, the completion of the checkpoint. So the highest step of the attempt wins over
lagging sources, and the lower step of the attempt over the higher one of an earlier attempt.
Repeated reports, such as lines that are read again, change nothing.

A record (a checkpoint, a state file) proves no contradiction, because it reports an earlier step.
Lines that existed before observation began usually have no time of their own. They set the state,
but yield no durations and do not override observed events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.continuation import with_records
from trainwarden_exporter.progress.events import (
    Advanced,
    EpochReported,
    Interrupted,
    Moved,
    PhaseBegan,
    PhaseEnded,
    ProgressEvent,
    RecordsFound,
    ResumePointsFound,
    RunFinished,
    StepReported,
    TotalAnnounced,
    TrainerStarted,
)
from trainwarden_exporter.progress.source_reports import SourceReport, find_contradiction
from trainwarden_exporter.progress.state import (
    CHECKPOINT,
    Attempt,
    RunProgress,
    find_first_step,
)
from trainwarden_exporter.progress.step_timing import (
    BURST_SECONDS,
    MAX_RECENT,
    SAME_SIGN_SECONDS,
    ProgressSign,
    StepMark,
)

_PHASES_WITHOUT_STEPS = (Phase.SAVING, Phase.EVALUATING)
"""Phases that are not part of a step."""

FLUSH_SECONDS = 5.0
"""Seconds after the end of a run within which a step is no next step: rows that it held back."""


def apply(state: RunProgress, event: ProgressEvent) -> RunProgress:
    """Returns the state after `event`."""
    match event:
        case StepReported():
            return _apply_step(state, event)
        case TrainerStarted():
            return _apply_start(state, event)
        case RecordsFound(records, interval):
            return with_records(state, records, interval)
        case ResumePointsFound(points):
            return replace(state, attempt=state.attempt.with_resume_points(points))
    if event.timestamp < state.attempt.began:
        return _apply_earlier_sign(state, event) if isinstance(event, Advanced) else state
    return _apply_current(state, event)


def _apply_current(
    state: RunProgress,
    event: Advanced
    | EpochReported
    | Moved
    | TotalAnnounced
    | Interrupted
    | PhaseBegan
    | PhaseEnded
    | RunFinished,
) -> RunProgress:
    """Applies an event of the current attempt."""
    match event:
        case Advanced():
            return _apply_advance(state, event)
        case Moved(timestamp):
            moved = _end_silence(state, timestamp)
            # Its many short silences make no pause older.
            return replace(moved, timing=replace(moved.timing, silences=state.timing.silences))
        case EpochReported(epoch, _, count):
            return replace(state, epochs=state.epochs.reported(epoch, count))
        case TotalAnnounced(total):
            return replace(state, total=total) if total > 0 else state
        case Interrupted(timestamp):
            return replace(state, interrupted_at=max(state.interrupted_at, timestamp))
        case PhaseBegan(phase, timestamp):
            return _apply_phase(state, phase, timestamp)
        case PhaseEnded(phase, timestamp):
            return (
                _change_phase(state, Phase.TRAINING, timestamp) if phase is state.phase else state
            )
        case RunFinished(timestamp):
            return _change_phase(state, Phase.FINISHED, timestamp)


def _apply_phase(state: RunProgress, phase: Phase, timestamp: float) -> RunProgress:
    if phase is Phase.EVALUATING:
        state = replace(state, evaluations_seen=True)
    late = state.phase_began_at is not None and timestamp < state.phase_began_at
    return state if late or state.finished else _change_phase(state, phase, timestamp)


def _apply_step(state: RunProgress, event: StepReported) -> RunProgress:
    number, known = state.attempt.number, state.reports.get(event.source)
    if known is not None and event.timestamp < known.timestamp:
        return state
    if event.timestamp < state.attempt.since:
        state = replace(state, attempt=state.attempt.with_late_step(event, known))
        return _with_report(state, event.source, SourceReport.of(event, number - 1))
    if known is None or known.attempt != number:
        state = _with_report(state, event.source, SourceReport.of(event, number, known))
    elif event.step >= known.step:
        if event.is_live:  # also while a checkpoint has shown a higher step
            state = replace(state, attempt=state.attempt.with_spacing(event.step - known.step))
        state = _with_report(state, event.source, known.updated(event))
    elif known.supersedes(event):
        return _with_report(state, event.source, known.with_repeat(event))
    elif not event.dated and known.last_dated is not None:
        return _apply_reread(state, event, known.at_last_dated)
    else:
        state = _begin_attempt(state, Attempt(began=event.timestamp), carry=False)
        state = _with_report(state, event.source, SourceReport.of(event, state.attempt.number))
        state = _enter_phase(state, Phase.STARTING, event.timestamp)
    return _count_step(_reconcile(_end_save(state, event)), event)


def _end_save(state: RunProgress, event: StepReported) -> RunProgress:
    """A complete checkpoint ends the phase of its save: not every log tells the end of one."""
    began = state.phase_began_at if state.phase is Phase.SAVING else None
    if began is None or event.timestamp < began or not event.source.startswith(CHECKPOINT):
        return state
    return _change_phase(state, Phase.TRAINING, event.timestamp)


def _apply_reread(state: RunProgress, event: StepReported, known: SourceReport) -> RunProgress:
    """Applies an event that was read again and is older than the `known` report."""
    steps = tuple(mark for mark in state.steps if mark.dated)
    state = _with_report(replace(state, steps=steps), event.source, known)
    return _apply_step(state, event) if event.step > known.step else state


def _with_report(state: RunProgress, source: str, report: SourceReport) -> RunProgress:
    return replace(state, reports={**state.reports, source: report})


def _reconcile(state: RunProgress) -> RunProgress:
    number = state.attempt.number
    contradiction = find_contradiction(
        one for one in state.reports.values() if one.attempt == number
    )
    if contradiction is None:
        return state
    return _begin_attempt(
        state, Attempt(began=contradiction.began, previous_step=contradiction.stale)
    )


def _apply_start(state: RunProgress, event: TrainerStarted) -> RunProgress:
    began = event.timestamp
    # The start in this line may be the known one.
    if began <= state.attempt.began or (not event.dated and any(m.dated for m in state.steps)):
        return state
    attempt = Attempt(0, began, started=True, witnessed=event.witnessed, announced_step=event.step)
    state = _begin_attempt(state, attempt)
    if state.steps:
        return state
    phase = (Phase.STARTING, began) if event.witnessed else (None, None)
    sign = began if event.witnessed else event.learned_at
    state = replace(state, phase=phase[0], phase_began_at=phase[1], last_sign_at=sign)
    # It may make no other step, and stand still for ever.
    again = [(source, one.repeated_since(began)) for source, one in state.reports.items()]
    steps = [StepReported(source, *step, event.witnessed) for source, step in again if step]
    return reduce(_apply_step, steps, state)


def _begin_attempt(state: RunProgress, attempt: Attempt, *, carry: bool = True) -> RunProgress:
    """Begins a new attempt; `carry` keeps the reports since its start.

    Shortly after a known start, the attempt refines that start.
    """
    old, same, sign = state.attempt, state.starting, state.last_sign
    number = old.number + 1

    def belongs(item: StepMark | ProgressSign | SourceReport) -> bool:
        return carry and item.timestamp >= attempt.began and (item.dated or not attempt.witnessed)

    kept = tuple(mark for mark in state.steps if belongs(mark))
    earlier_steps = [mark.step for mark in state.steps if not belongs(mark)]
    before = [] if old.number else [one for one in state.reports.values() if not belongs(one)]
    if live := [one for one in before if one.is_live]:  # records may be those of another run
        earlier_steps = [one.step for one in live]
    if attempt.previous_step is not None:
        earlier_steps.append(attempt.previous_step)
    # Lines without a time, but written since the start: those of this attempt, if read late.
    unsure = attempt.previous_step is None and all(
        carry and mark.timestamp >= attempt.began for mark in live or state.steps
    )
    if (previous := old.previous_step) is not None and (same or not earlier_steps):
        earlier_steps.append(previous)
        unsure = same and unsure and old.previous_unsure
    reports = {
        source: replace(one, attempt=number) if one.attempt == old.number and belongs(one) else one
        for source, one in state.reports.items()
    }
    first_step = find_first_step(reports.values(), attempt, kept[0].step) if kept else None
    recorded = old.previous_recorded if same else bool(before) and not live
    if recorded and kept and kept[0].step - 1 in [mark.step for mark in state.steps]:
        first_step = old.first_step  # it went on from lines that have no time
    attempt = replace(
        attempt,
        number=number,
        started=attempt.started or same,
        counts_from=old.counts_from,
        announced_step=old.announced_step
        if same and attempt.announced_step is None
        else attempt.announced_step,
        previous_step=max(earlier_steps, default=None),
        previous_unsure=unsure and bool(earlier_steps),
        previous_recorded=recorded,
        counted_step=old.counted_step if same else _counted_step(state, reports, number),
        first_step=first_step,
        spacing=old.spacing,
    )
    return replace(
        state,
        reports=reports,
        attempt=attempt,
        steps=kept,
        last_sign=sign if sign is not None and belongs(sign) else None,
        paused_seconds=state.paused_seconds if kept else 0.0,
        resumes_before=state.resumes_before if same else state.resumes,
        repeated_before=state.repeated_before if same else state.repeated,
        lost_before=state.lost_before if same else state.lost,
    )


def _counted_step(
    state: RunProgress, reports: Mapping[str, SourceReport], number: int
) -> int | None:
    """Returns the last step that was reported live before attempt `number`.

    None after the end of a run: what follows is another one, in the same folder.
    """
    steps = [one.step for one in reports.values() if one.is_live and one.attempt < number]
    return None if state.finished else max(steps, default=None)


def _count_step(state: RunProgress, event: StepReported) -> RunProgress:
    """Applies a step of the current attempt, higher or not."""
    if event.timestamp < state.attempt.since:
        return state
    if event.total is not None and event.total > 0:
        state = replace(state, total=event.total)
    if (last := state.steps[-1] if state.steps else None) is None:
        # Announcing the total completes no step: a progress bar is drawn before the first one.
        announced_step = state.attempt.announced_step or 0
        no_new_step = event.step == announced_step or (
            event.step < announced_step and not event.is_live
        )
        return state if no_new_step else _advance(state, event, None)
    if event.step > last.step:
        return _advance(state, event, last)
    return _apply_repeat(state, event, last)


def _apply_repeat(state: RunProgress, event: StepReported, last: StepMark) -> RunProgress:
    """Applies a repeated or lower step."""
    if event.step < last.step or not event.dated:
        return state
    if not last.dated:
        mark = last._replace(timestamp=event.timestamp, dated=True)
        state = replace(state, steps=(*state.steps[:-1], mark))
    earlier = state.phase_began_at is not None and event.timestamp < state.phase_began_at
    if event.is_live and not earlier and not state.finished:
        # The line of a step may come last, after its save and its evaluation.
        state = _enter_phase(state, Phase.TRAINING, event.timestamp)
    return state


def _advance(state: RunProgress, event: StepReported, last: StepMark | None) -> RunProgress:
    timestamp = event.timestamp if last is None else max(event.timestamp, last.timestamp)
    mark = StepMark(event.step, timestamp, event.dated, state.paused_seconds)
    if last is not None and not (last.dated or event.dated) and last.timestamp == timestamp:
        mark = mark._replace(reports=last.reports + 1)
    if (
        last is not None
        and last.dated
        and event.dated
        and timestamp - last.timestamp < BURST_SECONDS
    ):
        mark = mark._replace(timestamp=last.timestamp, paused_seconds=last.paused_seconds)
        previous = state.steps[-2] if len(state.steps) > 1 else None
        timing = state.timing.with_burst(previous, mark, event.seconds)
        steps = (*state.steps[:-1], mark)
    else:
        timing = state.timing.with_step(last, mark, event.seconds)
        steps = (*state.steps, mark)[-MAX_RECENT:]
    attempt = state.attempt
    if attempt.first_step is None:
        first_step = find_first_step(state.reports.values(), attempt, event.step)
        attempt = replace(attempt, first_step=first_step)
    if last is not None:
        attempt = attempt.with_spacing(event.step - last.step)
    epochs = state.epochs.with_step(event.step, state.line_total, is_first=last is None)
    state = replace(state, attempt=attempt, steps=steps, timing=timing, epochs=epochs)
    state = _record_sign(state, ProgressSign(timestamp, event.dated, state.paused_seconds))
    if state.total is not None and event.step >= state.total:
        return _enter_phase(state, Phase.FINISHED, timestamp)
    if state.finished and timestamp <= (state.phase_began_at or 0.0) + FLUSH_SECONDS:
        return state
    if event.is_live or state.phase in (None, Phase.STARTING):
        return _enter_phase(state, Phase.TRAINING, timestamp)
    return state


def _apply_advance(state: RunProgress, event: Advanced) -> RunProgress:
    """Applies an unreported step."""
    if event.seconds is not None:
        timing = state.timing.with_step(
            None, StepMark(0, event.timestamp, event.dated), event.seconds
        )
        state = replace(state, timing=timing)
    state = _record_sign(state, ProgressSign(event.timestamp, event.dated, state.paused_seconds))
    return state if state.finished else _enter_phase(state, Phase.TRAINING, event.timestamp)


def _apply_earlier_sign(state: RunProgress, event: Advanced) -> RunProgress:
    """Learns the pace of a search from trials before its start, until it has ended one itself."""
    if state.last_sign is not None or not event.dated:
        return state
    sign, earlier = ProgressSign(event.timestamp), state.earlier_sign
    state = replace(state, earlier_sign=sign)
    if earlier is None or sign.timestamp - earlier.timestamp < SAME_SIGN_SECONDS:
        return state
    return replace(state, timing=state.timing.with_sign(earlier, sign))


def _record_sign(state: RunProgress, sign: ProgressSign) -> RunProgress:
    state = _end_silence(state, sign.timestamp)
    last_sign, attempt = state.last_sign, state.attempt
    if last_sign is None and sign.dated and attempt.started and attempt.witnessed:
        first_silence = max(0.0, sign.timestamp - attempt.began)
        state = replace(state, timing=replace(state.timing, first_silence=first_silence))
    if last_sign is None or not last_sign.dated or not sign.dated:
        return replace(state, last_sign=sign)
    if sign.timestamp - last_sign.timestamp < SAME_SIGN_SECONDS:
        return state
    return replace(state, last_sign=sign, timing=state.timing.with_sign(last_sign, sign))


def _change_phase(state: RunProgress, phase: Phase, timestamp: float) -> RunProgress:
    """Changes the phase as reported by the run, which ends the previous phase."""
    began, paused_seconds = state.phase_began_at, state.paused_seconds
    stepless = state.phase in _PHASES_WITHOUT_STEPS
    if phase is not state.phase and stepless and began is not None:
        paused_seconds += max(0.0, timestamp - began)
    return _enter_phase(replace(state, paused_seconds=paused_seconds), phase, timestamp)


def _enter_phase(state: RunProgress, phase: Phase, timestamp: float) -> RunProgress:
    if phase is state.phase:
        return state
    state = _end_silence(state, timestamp, stepless=True)
    return replace(state, phase=phase, phase_began_at=timestamp)


def _end_silence(state: RunProgress, timestamp: float, *, stepless: bool = False) -> RunProgress:
    """Ends the silence since the last sign, of any kind.

    Limits of phases other than training are configured, not learned.
    """
    last, timing = state.last_sign_at, state.timing
    last_disruption = max(state.attempt.began, state.interrupted_at)
    if state.phase is Phase.TRAINING and last is not None and last >= last_disruption:
        timing = timing.with_silence(max(0.0, timestamp - last), stepless=stepless)
    return replace(state, timing=timing, last_sign_at=max(timestamp, last or 0.0))
