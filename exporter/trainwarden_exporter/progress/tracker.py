"""Follows the progress of all runs, fed by whoever sees something of it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.course import Course
from trainwarden_exporter.progress.files import FileReading, FileSubject
from trainwarden_exporter.progress.fold import after
from trainwarden_exporter.progress.lines import observe
from trainwarden_exporter.progress.observations import (
    Finished,
    Interrupted,
    Observation,
    PhaseBegan,
    PhaseEnded,
    Started,
    StepSeen,
)
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.statefile import StateFile

HEARTBEAT = "heartbeat"

MOST_EARLY = 10_000

_ITS_OWN_TIME = 1.0
"""A line that was there already, and says a time at least so long before we began to watch, bears
that time itself (seconds)."""

_CLOCKS_DIFFER = 2.0
"""Seconds by which the start of one process may seem to move between two lives of the exporter."""


class ProgressTracker:
    """The course of each run. Every method may be called from any thread, and returns at once.

    What is told of a run that is not configured is passed over. Courses are kept in `state_folder`,
    where one is given, whenever `save` is called.
    """

    def __init__(
        self,
        specs: Iterable[ProgressSpec] = (),
        *,
        state_folder: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._book = _Book({spec.run: spec for spec in specs}, state_folder, now)

    def adopt(self, predecessor: ProgressTracker) -> None:
        """Go on where `predecessor` is, for the runs known to both.

        Whoever still tells `predecessor` something tells it this one.
        """
        ours, theirs = self._book, predecessor._book
        if ours is not theirs:
            theirs.hand_over(ours)
            self._book = theirs

    def note_line(self, event: LineEvent) -> None:
        """A line of a log matched a pattern."""
        self._book.note_line(event)

    def note_checkpoint(self, run: str, checkpoint: str, step: int, timestamp: float) -> None:
        """The checkpoint of `step` is complete since `timestamp`."""
        source = f"checkpoint/{checkpoint}"
        self._book.note(run, StepSeen(source, step, timestamp, tells=False))

    def note_saving(self, run: str, since: float | None) -> None:
        """A checkpoint of `run` is being written since then, as its folder shows; None: none is."""
        self._book.note_saving(run, since)

    def note_file(self, subject: FileSubject, reading: FileReading) -> None:
        """A progress file says something."""
        file = subject.file
        self._book.note(
            subject.run,
            StepSeen(
                source=f"file/{file.name}",
                step=reading.step,
                timestamp=reading.timestamp,
                tells=file.kind in ("jsonl", "csv"),
                total=reading.total,
            ),
        )

    def note_heartbeat(self, run: str, name: str, step: int, timestamp: float) -> None:
        """A heartbeat carried a step."""
        self._book.note(run, StepSeen(f"{HEARTBEAT}/{name}", step, timestamp))

    def note_trainer(self, run: str, started: float | None, *, finished: bool) -> None:
        """The oldest process of the trainer started at `started`, or all of it has finished."""
        self._book.note_trainer(run, started, finished=finished)

    def note_trainers(self, run: str, started: float) -> None:
        """The newest process of several trainers started at `started`."""
        self._book.note(run, Interrupted(started))

    def step(self, run: str) -> int | None:
        """Steps that `run` has done; None where that is not known."""
        course = self._book.courses.get(run)
        return None if course is None else course.step

    def phase(self, run: str) -> tuple[Phase, float] | None:
        """What `run` is doing, and since when (unix seconds)."""
        course = self._book.courses.get(run)
        if course is None or course.phase is None or course.since is None:
            return None
        return course.phase, course.since

    def updating_since(self, run: str) -> float | None:
        """Since when `run` hands new weights to its servers (unix seconds), if it does."""
        phase = self.phase(run)
        return phase[1] if phase is not None and phase[0] is Phase.UPDATING_WEIGHTS else None

    def courses(self) -> tuple[tuple[ProgressSpec, Course], ...]:
        """All runs, in the order of the configuration."""
        return self._book.all()

    def save(self) -> None:
        """Keep what is known for a later life of the exporter. Writes a file where it changed."""
        self._book.save()


class _Book:
    """What trackers that took over from one another share."""

    def __init__(
        self,
        specs: Mapping[str, ProgressSpec],
        state_folder: Path | None,
        now: Callable[[], float],
    ) -> None:
        self._specs = dict(specs)
        self._now = now
        self._since = now()
        self._lock = Lock()
        self._saving: dict[str, float] = {}
        self._file = _open(state_folder)
        self.courses: dict[str, Course] = {
            run: _awoken(course, self._since)
            for run, course in self._file.value.items()
            if run in specs
        }
        # What is told between a reload and the first collection after it must reach the
        # predecessor's courses too.
        self._early: deque[tuple[str, Observation]] | None = deque(maxlen=MOST_EARLY)

    def hand_over(self, successor: _Book) -> None:
        """Take over the configuration of `successor`, and what it was told until now."""
        with successor._lock:
            specs, file, early = successor._specs, successor._file, successor._early or ()
            told = tuple(early)
        with self._lock:
            self._specs, self._file = specs, file
            self.courses = {run: one for run, one in self.courses.items() if run in specs}
        for run, seen in told:
            self.note(run, seen)

    def note_line(self, event: LineEvent) -> None:
        spec = self._specs.get(event.run)
        pattern = None if spec is None else spec.lines.get((event.log, event.pattern))
        if pattern is None:
            return
        dated = event.fresh or event.timestamp < self._since - _ITS_OWN_TIME
        for seen in observe(event, pattern, dated=dated):
            self.note(event.run, seen)

    def note_trainer(self, run: str, started: float | None, *, finished: bool) -> None:
        course = self.courses.get(run, Course())
        if started is not None and started > course.attempt.began + _CLOCKS_DIFFER:
            witnessed = started >= self._since
            self.note(run, Started(started, witnessed=witnessed, noticed=self._now()))
        if finished and not course.finished:
            self.note(run, Finished(self._now()))

    def note_saving(self, run: str, since: float | None) -> None:
        course = self.courses.get(run, Course())
        if since is None:
            if self._saving.pop(run, None) is not None:
                self.note(run, PhaseEnded(Phase.SAVING, self._now()))
        # A save that steps are made beside is none that they wait for.
        elif course.phase is Phase.TRAINING and (course.stepped or since) <= since:
            self._saving[run] = since
            self.note(run, PhaseBegan(Phase.SAVING, since))

    def note(self, run: str, seen: Observation) -> None:
        spec = self._specs.get(run)
        if spec is None:
            return
        seen = _not_of_the_future(seen, self._now())
        if spec.total is not None and isinstance(seen, StepSeen):
            seen = replace(seen, total=spec.total)
        with self._lock:
            self.courses[run] = after(self.courses.get(run, Course()), seen)
            if self._early is not None:
                self._early.append((run, seen))

    def all(self) -> tuple[tuple[ProgressSpec, Course], ...]:
        with self._lock:
            self._early = None
            return tuple(
                (spec, self.courses.get(run, Course())) for run, spec in self._specs.items()
            )

    def save(self) -> None:
        with self._lock:
            courses = dict(self.courses)
        self._file.save(courses)


def _open(folder: Path | None) -> StateFile[dict[str, Course]]:
    path = None if folder is None else folder / "progress.json"
    return StateFile(path, dict[str, Course], empty={})


def _awoken(course: Course, now: float) -> Course:
    """A course after a pause in which nobody watched.

    Logs and files are read up; a heartbeat that came meanwhile was lost, and its silence says
    nothing. Of none is it known what ended a silence that went on meanwhile.
    """
    course = replace(course, interrupted=now)
    beaten = any(
        source.startswith(f"{HEARTBEAT}/") and reading.attempt == course.attempt.number
        for source, reading in course.readings.items()
    )
    return replace(course, sign=now) if beaten and course.sign is not None else course


def _not_of_the_future(seen: Observation, now: float) -> Observation:
    # The clock of a file server may be ahead; its files would keep a run from ever being stalled.
    return replace(seen, timestamp=min(seen.timestamp, now))
