"""Metrics of the progress of a run, and their samples from its state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.silence import is_stall_known
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import (
    has_all_steps,
    pause_limit,
    restart_limit,
    stall_limit,
    unseen_limit,
)
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.scrape.collector import MetricTable, Sample

_table = MetricTable("trainwarden_training_", "run")
_gauge, _counter = _table.gauge, _table.counter

STEP = _gauge("step", "Completed steps, counted from one.")
TOTAL = _gauge("total_steps", "Total steps, as reported by the run or as configured.")
LAST_STEP = _gauge("last_step_timestamp_seconds", "Time of the last completed step.")
DURATION = _gauge("step_duration_seconds", "Duration of the last step.")
MEDIAN = _gauge("step_duration_median_seconds", "Median duration of the last 32 steps.")
PHASE = _gauge("phase", "1 for the current phase of the run, 0 for all others.", "phase")
PHASE_TIME = _gauge("phase_timestamp_seconds", "Start of the current phase.")
PROGRESS = _gauge(
    "progress_timestamp_seconds", "Last sign of progress: a step or a change of phase."
)
STALL_LIMIT = _gauge(
    "stall_limit_seconds", "Time without progress after which the run currently counts as stalled."
)
PAUSE_LIMIT = _gauge(
    "stall_pause_limit_seconds",
    "Stall limit in the absence of other symptoms: counts twice the longest harmless pause.",
)
RESTART_LIMIT = _gauge(
    "stall_restart_limit_seconds",
    "Time without progress that alone justifies a restart of the run; +Inf while the pace of the"
    " run is unknown. Shorter while the run is stuck, longer while it moves, by its stacks.",
)
PHASE_LIMIT = _gauge("phase_limit_seconds", "Maximum time in a phase other than training.", "phase")
RESUMES = _counter("resumes_total", "Resumes of the run from an earlier step.")
RESUME_STEP = _gauge("resume_step", "Step from which the run last resumed, if known.")
FIRST_STEP = _gauge("first_step_after_resume", "First step observed after the last resume.")
SPACING = _gauge(
    "step_spacing", "Least difference of two observed steps: N of one line in N steps."
)
REPEATED = _counter("steps_repeated_total", "Steps that were lost by resumes and repeated.")
EXPECTED_RESUME = _gauge(
    "resume_checkpoint_step",
    "Step of the newest proved checkpoint when the run last resumed, or of its recovery record.",
)
LOST = _counter(
    "steps_lost_at_resume_total",
    "Repeated steps that the newest proved checkpoint contained: the run resumed from another one.",
)
LAST_STEP_MADE = _gauge(
    "last_step_made",
    "1 once the run has made all of its known total steps: from then on only its stacks show that"
    " it hangs, as an export or an upload shows no sign.",
)
FINISHED = _gauge("finished", "1 when the run has completed.")
UNENDED = _gauge(
    "unended_info",
    "1 with what the processes of a completed run wait for, which have not ended.",
    "waits",
)
SOURCE_STEP = _gauge(
    "source_step", "Last step reported by the source, regardless of age.", "source"
)
SOURCE_TIME = _gauge(
    "source_timestamp_seconds",
    "Time at which the source reports that the step was reached.",
    "source",
)
VALUE = _gauge("value", "Last value of that name in a progress file or a beat.", "source", "name")
VALUE_TIME = _gauge("value_timestamp_seconds", "Last write of the value.", "source", "name")
FINITE = _gauge("value_finite", "Whether the last value is finite.", "source", "name")
PATH_EXISTS = _gauge("path_exists", "Whether the configured path of the run is an existing folder.")
RANK_LAG = _gauge(
    "rank_lag_ratio",
    "Time by which the rank usually reports its steps later than the others, as share of a step, of"
    " the last two minutes and at least ten steps. Negative where it is earlier.",
    "rank",
)

METRICS = _table.metrics


def progress_samples(
    spec: ProgressSpec, state: RunProgress, movement: Movement, waits: str
) -> Iterator[Sample]:
    """Yields the samples of one run; `movement` is what its processes do since its last sign.

    `waits`: what the processes that outlive its script wait for, or "".
    """
    if state.finished and waits:
        yield UNENDED, (spec.run, waits), 1
    for metric, more, value in _samples(spec, state, movement):
        yield metric, (spec.run, *more), value


def value_samples(
    run: str, source: str, values: Mapping[str, float], times: Mapping[str, float]
) -> Iterator[Sample]:
    """Yields the samples of `values`, by name, with the time (Unix seconds) of each."""
    for name, number in values.items():
        labels = (run, source, name)
        yield VALUE, labels, number
        yield VALUE_TIME, labels, times[name]
        yield FINITE, labels, math.isfinite(number)


def _samples(spec: ProgressSpec, state: RunProgress, movement: Movement) -> Iterator[Sample]:
    """Yields the samples of one run, without the label of the run."""
    stall_known = is_stall_known(state, spec) or (
        movement is Movement.STUCK and unseen_limit(state, spec.limits) is not None
    )
    # A framework may log the start of an evaluation and still not write it into this log: Rich
    # draws no bar into a file.
    announced = spec.announces_evaluations and state.evaluations_seen
    known = {
        STEP: state.step,
        TOTAL: state.total_steps if spec.total is None else spec.total,
        LAST_STEP: state.last_step_at,
        DURATION: state.timing.last,
        MEDIAN: state.timing.typical,
        PHASE_TIME: state.phase_began_at,
        PROGRESS: state.last_sign_at,
        STALL_LIMIT: stall_limit(state, spec.limits) if stall_known else None,
        PAUSE_LIMIT: pause_limit(state, spec.limits) if stall_known else None,
        RESTART_LIMIT: restart_limit(
            state, spec.limits, evaluations_announced=announced, movement=movement
        )
        if stall_known
        else None,
        RESUMES: state.resumes,
        RESUME_STEP: state.attempt.known_origin,
        FIRST_STEP: state.attempt.first_step if state.attempt.resumed else None,
        SPACING: state.attempt.spacing,
        REPEATED: state.repeated,
        EXPECTED_RESUME: state.attempt.expected_origin,
        LOST: state.lost,
        LAST_STEP_MADE: has_all_steps(state),
        FINISHED: state.finished,
    }
    yield from ((metric, (), value) for metric, value in known.items())
    for phase, limit in spec.limits.phases.items():
        yield PHASE_LIMIT, (phase.value,), limit
    if state.phase is not None:
        yield from ((PHASE, (phase.value,), phase is state.phase) for phase in Phase)
    for source, reading in state.reports.items():
        yield SOURCE_STEP, (source,), reading.step
        if reading.dated:
            yield SOURCE_TIME, (source,), reading.timestamp
