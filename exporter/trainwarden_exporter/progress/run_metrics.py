"""Metrics of runs: where their time went, their interruptions and their attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainwarden_exporter.progress.attempts import RunAttempt, attempt_ends
from trainwarden_exporter.progress.run_time import RunState, RunTime
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.scrape.collector import MetricTable, Sample

_table = MetricTable("trainwarden_run_", "run")
_gauge, _counter = _table.gauge, _table.counter

TIME = _counter(
    "time_seconds_total",
    "Time of the run by state; each second belongs to exactly one. At most the limit from which on"
    " silence alone restarts a run and a minute behind the clock, because a pause may turn out to"
    " be a stall. A start, and a silence of a run whose pace is unknown, count when they end.",
    "state",
)
PAUSED = _counter(
    "paused_seconds_total",
    "The part of the training in which no step was made for longer than a slow step takes, and then"
    " one was: an evaluation that is not logged, or a hang that ended.",
)
STEPS = _counter(
    "steps_total",
    "Steps of the run while it was watched: made, repetitions of lost steps among them (redone),"
    " and steps made after the one from which the run later continued (lost).",
    "kind",
)
ETTR_MINIMUM = _gauge(
    "ettr_minimum_ratio",
    "Effective training time ratio under which TrainingTimeLost warns, as configured.",
)
INTERRUPTIONS = _counter(
    "interruptions_total", "Times between two new steps in which the run was down or stalled."
)
INTERRUPTION_START = _gauge(
    "interruption_start_timestamp_seconds", "Last new step before the last interruption."
)
INTERRUPTION_END = _gauge(
    "interruption_end_timestamp_seconds",
    "Next new step, with which the last interruption ended; only present once it has ended.",
)
INTERRUPTION_STEPS = _gauge(
    "interruption_steps_redone", "Steps that were lost in the last interruption and made again."
)
ATTEMPTS = _gauge("ended_attempts", "Last attempts of the run that have ended; at most five.")
ATTEMPTS_ALIKE = _gauge(
    "ended_alike_attempts",
    "Those of the last attempts that failed like the last one: at the same step, give or take one,"
    " with the same exit code.",
)
ATTEMPTS_INFO = _gauge(
    "attempts_loop_info",
    "1 with how the last attempts of the trainer ended, while three or more failed alike.",
    "trainer",
    "ends",
)
METRICS = _table.metrics

_STATES = tuple(RunState)


def run_samples(
    spec: ProgressSpec, time: RunTime, attempts: Sequence[RunAttempt]
) -> Iterator[Sample]:
    """Yields the samples of one run."""
    run = spec.run
    for state in _STATES:
        yield TIME, (run, state), time.seconds.get(state, 0.0)
    yield PAUSED, (run,), time.paused_seconds
    yield STEPS, (run, "made"), time.steps_made
    yield STEPS, (run, "redone"), time.steps_redone
    yield STEPS, (run, "lost"), time.steps_lost
    yield ETTR_MINIMUM, (run,), spec.ettr_minimum
    yield INTERRUPTIONS, (run,), time.interruptions
    if (last := time.interruption) is not None:
        yield INTERRUPTION_START, (run,), last.start
        yield INTERRUPTION_END, (run,), last.end
        yield INTERRUPTION_STEPS, (run,), last.steps_redone
    if attempts:
        ends = attempt_ends(attempts)
        yield ATTEMPTS, (run,), ends.ended
        yield ATTEMPTS_ALIKE, (run,), ends.alike
        if ends.text and len(spec.trainers) == 1:
            yield ATTEMPTS_INFO, (run, spec.trainers[0], ends.text), 1
