"""The progress of each run: steps, their pace, phases, resumes, and when it would be stalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Self

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.entries.place import Finder
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.processes.alive import WorkerLife
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.course import Course
from trainwarden_exporter.progress.files import FileEye, FileReading, FileSubject
from trainwarden_exporter.progress.limits import pause_limit, restart_limit, stall_limit
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.watching import Watch, Watches

INTERVAL = 5.0
"""Seconds between two looks at a progress file."""

Checkpoints = Callable[[], Iterable[tuple[str, str, int, float]]]
"""The newest complete ones: run, checkpoint, step, and when it was completed (unix seconds)."""

Saving = Callable[[], Iterable[tuple[str, float | None]]]
"""Runs of which that is known, and since when a checkpoint is being saved (unix seconds); None when
none is. A run may come several times."""

Lives = Callable[[], Iterable[WorkerLife]]


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_training_{name}", kind, text, ("run", *more))


STEP = _metric("step", "gauge", "Steps done, counted from one.")
TOTAL = _metric("total_steps", "gauge", "Steps in all, as the run says or as configured.")
LAST_STEP = _metric("last_step_timestamp_seconds", "gauge", "When the last step was done.")
DURATION = _metric("step_duration_seconds", "gauge", "What the last step took.")
MEDIAN = _metric("step_duration_median_seconds", "gauge", "What one of the last 32 steps took.")
PHASE = _metric("phase", "gauge", "1 for what the run is doing, 0 for all else.", "phase")
PHASE_TIME = _metric("phase_timestamp_seconds", "gauge", "When the present phase began.")
PROGRESS = _metric(
    "progress_timestamp_seconds", "gauge", "Last sign of progress: a step or a change of phase."
)
STALL_LIMIT = _metric(
    "stall_limit_seconds", "gauge", "Time without a sign after which the run is stalled now."
)
PAUSE_LIMIT = _metric(
    "stall_pause_limit_seconds",
    "gauge",
    "That while nothing else tells of trouble: twice the longest pause that ended well counts.",
)
RESTART_LIMIT = _metric(
    "stall_restart_limit_seconds",
    "gauge",
    "Time without a sign after which that alone is reason enough to restart the run.",
)
PHASE_LIMIT = _metric(
    "phase_limit_seconds", "gauge", "That time in another phase than training.", "phase"
)
STALL_FACTOR = _metric(
    "stall_factor", "gauge", "Usual times between signs that may pass, as configured."
)
STALL_FLOOR = _metric("stall_floor_seconds", "gauge", "Time that may always pass, as configured.")
RESUMES = _metric("resumes_total", "counter", "Times that the run went on from an earlier step.")
RESUME_STEP = _metric("resume_step", "gauge", "The step it last went on from.")
FIRST_STEP = _metric("first_step_after_resume", "gauge", "The first step seen after that.")
REPEATED = _metric("steps_repeated_total", "counter", "Steps lost by resumes, and so done again.")
FINISHED = _metric("finished", "gauge", "1 when the run has done all that it was to do.")
SOURCE_STEP = _metric("source_step", "gauge", "The step by one source, however old.", "source")
SOURCE_TIME = _metric(
    "source_timestamp_seconds", "gauge", "When the run came to it, by that source.", "source"
)


class ProgressCollector(Collector):
    """Brings together what was told to the tracker, and looks itself where nobody tells."""

    name = "progress"
    metrics = (
        STEP,
        TOTAL,
        LAST_STEP,
        DURATION,
        MEDIAN,
        PHASE,
        PHASE_TIME,
        PROGRESS,
        STALL_LIMIT,
        PAUSE_LIMIT,
        RESTART_LIMIT,
        PHASE_LIMIT,
        STALL_FACTOR,
        STALL_FLOOR,
        RESUMES,
        RESUME_STEP,
        FIRST_STEP,
        REPEATED,
        FINISHED,
        SOURCE_STEP,
        SOURCE_TIME,
    )

    def __init__(
        self,
        specs: Sequence[ProgressSpec],
        tracker: ProgressTracker,
        *,
        checkpoints: Checkpoints = tuple,
        saving: Saving = tuple,
        lives: Lives = tuple,
        interval: float = INTERVAL,
    ) -> None:
        """Show the runs in `specs`, which `tracker` follows."""
        self._tracker = tracker
        self._specs = tuple(specs)
        self.notes = self._specs
        self._checkpoints = checkpoints
        self._saving = saving
        self._lives = lives
        finders = {subject.place: Finder(subject.place) for spec in specs for subject in spec.files}
        self._files: Watches[FileSubject, FileReading | None] = Watches(
            {
                subject: Watch(
                    f"progress file {subject.file.name} of {subject.run}",
                    FileEye(subject, finders[subject.place]),
                    interval=interval,
                )
                for spec in specs
                for subject in spec.files
            }
        )

    def adopt(self, predecessor: Self) -> None:
        """Go on with all that `predecessor` has seen, and with its looks at files."""
        self._tracker.adopt(predecessor._tracker)
        self._files.adopt(predecessor._files)

    def collect(self) -> Iterable[Family]:
        if not self._specs:
            raise NoData("no runs are configured")
        self._look()
        families = {metric: metric.family() for metric in self.metrics}
        for spec, course in self._tracker.courses():
            for metric, more, value in _samples(spec, course):
                families[metric].add_metric([spec.run, *more], value)
        self._tracker.save()
        return families.values()

    def _look(self) -> None:
        for subject, watch in self._files:
            seen = watch.seen()
            if seen is not None and seen.value is not None:
                self._tracker.note_file(subject, seen.value)
        for run, checkpoint, step, timestamp in self._checkpoints():
            self._tracker.note_checkpoint(run, checkpoint, step, timestamp)
        saving = _earliest(self._saving())
        lives = {life.key: life for life in self._lives()}
        for spec in self._specs:
            if spec.run in saving:
                self._tracker.note_saving(spec.run, saving[spec.run])
            self._note_trainer(spec, lives)

    def _note_trainer(self, spec: ProgressSpec, lives: Mapping[WorkerKey, WorkerLife]) -> None:
        keys = [WorkerKey(spec.run, worker) for worker in spec.trainers]
        if not keys or any(key not in lives for key in keys):
            return
        # Of several, one that starts anew is no start of the run.
        started = lives[keys[0]].started if len(keys) == 1 else None
        if len(keys) > 1:
            starts = (lives[key].started for key in keys)
            newest = max((one for one in starts if one is not None), default=None)
            if newest is not None:
                self._tracker.note_trainers(spec.run, newest)
        finished = all(lives[key].finished for key in keys)
        self._tracker.note_trainer(spec.run, started, finished=finished)


def _earliest(saving: Iterable[tuple[str, float | None]]) -> Mapping[str, float | None]:
    """Since when each run saves, of whatever kind."""
    found: dict[str, float | None] = {}
    for run, since in saving:
        known = found.setdefault(run, since)
        if since is not None and (known is None or since < known):
            found[run] = since
    return found


def _samples(spec: ProgressSpec, course: Course) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    """All that is known of one run: metric, values of its labels beyond the run, value.

    A run of which no line and no file tells steps may go for hours without a sign, as from one
    checkpoint to the next: until it is known what is usual, no silence of it is a stall.
    """
    judged = spec.is_told or course.pace.usual_silence is not None
    told = spec.tells_evaluations
    known = {
        STEP: course.step,
        TOTAL: course.total if spec.total is None else spec.total,
        LAST_STEP: course.stepped,
        DURATION: course.pace.last,
        MEDIAN: course.pace.typical,
        PHASE_TIME: course.since,
        PROGRESS: course.sign,
        STALL_LIMIT: stall_limit(course, spec.limits) if judged else None,
        PAUSE_LIMIT: pause_limit(course, spec.limits) if judged else None,
        RESTART_LIMIT: restart_limit(course, spec.limits, told=told) if judged else None,
        STALL_FACTOR: spec.limits.factor,
        STALL_FLOOR: spec.limits.floor,
        RESUMES: course.resumes,
        RESUME_STEP: course.attempt.origin,
        FIRST_STEP: course.attempt.first if course.attempt.resumed else None,
        REPEATED: course.repeated,
        FINISHED: course.finished,
    }
    yield from ((metric, (), value) for metric, value in known.items() if value is not None)
    for phase, limit in spec.limits.phases.items():
        yield PHASE_LIMIT, (phase.value,), limit
    if course.phase is not None:
        yield from ((PHASE, (phase.value,), phase is course.phase) for phase in Phase)
    for source, reading in course.readings.items():
        yield SOURCE_STEP, (source,), reading.step
        if reading.dated:
            yield SOURCE_TIME, (source,), reading.timestamp
