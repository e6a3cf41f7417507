"""Progress of all runs: applies events to it, and stores it for the next start of the exporter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.absence import RunSigns
from trainwarden_exporter.processes.stacks.endings import EndKind, ScriptEnd
from trainwarden_exporter.progress.beats import SOURCE as BEAT
from trainwarden_exporter.progress.beats import Beat, events_from_beat
from trainwarden_exporter.progress.continuation import (
    after_unobserved_time,
    shifted,
    without_guesses,
)
from trainwarden_exporter.progress.counts import resolve_count
from trainwarden_exporter.progress.events import (
    Advanced,
    Interrupted,
    PhaseBegan,
    PhaseEnded,
    ProgressEvent,
    RecordsFound,
    RunFinished,
    StepReported,
    TotalAnnounced,
    TrainerStarted,
)
from trainwarden_exporter.progress.log_lines import events_from_line
from trainwarden_exporter.progress.reducer import apply
from trainwarden_exporter.progress.run_time import RunTime
from trainwarden_exporter.progress.run_time_evidence import RunLook
from trainwarden_exporter.progress.run_time_history import Part, RunTimes
from trainwarden_exporter.progress.specs import TRAINER, ProgressSpec, is_fatal
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.step_timing import SAME_SIGN_SECONDS
from trainwarden_exporter.progress.trainings import before_start
from trainwarden_exporter.runtime.state_file import StateFile

MAX_PENDING = 10_000

_STEP_EVENTS = frozenset({StepReported, Advanced, TotalAnnounced, TrainerStarted, RecordsFound})
_PHASE_EVENTS = frozenset({PhaseBegan, PhaseEnded, RunFinished})

_OWN_TIME_SECONDS = 1.0
"""A line that existed before observation began has a valid time of its own if that is at least
this many seconds earlier."""

_CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which the start of one process may differ across restarts of the exporter."""


class RunStates:
    """Progress of each run. Thread-safe; shared by trackers that took over from one another."""

    def __init__(
        self,
        specs: Mapping[str, ProgressSpec],
        state_folder: Path | None,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self._specs = dict(specs)
        self._now = now
        self.watched_since = now()
        self._lock = Lock()
        self._saving: dict[str, float] = {}
        self._failures: dict[str, tuple[float, str]] = {}
        """Time and pattern of the last fatal line of each run."""
        self._errors: dict[str, float] = {}
        """Time of the last line in a trainer's log that reports any error."""
        self.unended: dict[str, str] = {}
        """What the processes of each run waited for when its script was found to be over."""
        self._save_intervals: dict[str, int] = {}
        self._exact: dict[str, frozenset[type[ProgressEvent]]] = {}
        """What each run reports itself, so that nothing else is believed about it."""
        self.trainer_starts: dict[str, float] = {}
        """When the newest process of each run's trainer started, as seen by this exporter."""
        path = None if state_folder is None else state_folder / "progress.json"
        self._file = StateFile[dict[str, RunProgress]](path, dict[str, RunProgress], empty={})
        self.states: dict[str, RunProgress] = {
            run: after_unobserved_time(state, self.watched_since)
            for run, state in self._file.value.items()
            if run in specs
        }
        self._known_until = {run: state.last_sign_at for run, state in self.states.items()}
        """The last sign of progress that the exporter before has seen."""
        self.times = RunTimes(specs, state_folder, now, elapsed)
        for run, spec in specs.items():
            self.times.count_boot(spec, self.states.get(run, RunProgress()))
        # Reports between a reload and the first collection after it must reach the predecessor's
        # states too.
        self._pending: deque[tuple[str, ProgressEvent]] | None = deque(maxlen=MAX_PENDING)

    def hand_over(self, successor: RunStates) -> None:
        """Hands over to the configuration of `successor`, including its reports so far."""
        with successor._lock:
            specs, file, waiting = successor._specs, successor._file, successor._pending or ()
            times, pending = successor.times, tuple(waiting)
        with self._lock:
            self._specs, self._file = specs, file
            self.states = {run: one for run, one in self.states.items() if run in specs}
            self.times.reconfigure(times, specs)
        for run, event in pending:
            self.record(run, event)

    def record_line(self, event: LineEvent) -> None:
        spec = self._specs.get(event.run)
        pattern = None if spec is None else spec.lines.get((event.log, event.pattern))
        if pattern is None:
            return
        if event.fresh and pattern.error and event.role in ("", TRAINER):
            self._errors[event.run] = event.timestamp
            if is_fatal(pattern, event.role):
                self._failures[event.run] = event.timestamp, pattern.name
        own = not event.is_bound and event.timestamp < self.watched_since - _OWN_TIME_SECONDS
        dated = event.fresh or own
        known_until = self._known_until.get(event.run) or 0.0
        again = not dated and event.timestamp <= known_until + SAME_SIGN_SECONDS
        for progress_event in events_from_line(event, pattern, dated=dated):
            # Nothing was written since: this line was read before. A step shows that by its number.
            if not (again and isinstance(progress_event, Advanced | PhaseBegan | PhaseEnded)):
                self.record_guess(event.run, progress_event)
                if not dated:
                    self.record(event.run, Interrupted(self._now()))  # nobody looked until now

    def record_beat(self, run: str, beat: Beat) -> None:
        began = self.states.get(run, RunProgress()).attempt.began
        current = not beat.ended
        exact: set[type[ProgressEvent]] = set()
        if current and beat.step is not None and beat.step_time >= began:
            exact |= _STEP_EVENTS
        if current and beat.phase is not None and beat.written >= began:
            exact |= _PHASE_EVENTS
        if run in self._specs and StepReported in exact:
            with self._lock:
                state = self.states.get(run, RunProgress())
                self.states[run] = without_guesses(state, but_not=BEAT)
        self._exact[run] = frozenset(exact)
        for event in events_from_beat(beat):
            self.record(run, event)

    def retain_beats(self, runs: Collection[str]) -> None:
        self._exact = {run: exact for run, exact in self._exact.items() if run in runs}

    def record_guess(self, run: str, event: ProgressEvent) -> None:
        """Records what an output of the run suggests, unless the run reports that itself."""
        if type(event) not in self._exact.get(run, ()):
            self.record(run, event)

    def record_trainer(self, run: str, started: float | None, *, finished: bool) -> None:
        with self._lock:
            self._follow_clock()  # a clock that was set moves the start, too
        state = self.states.get(run, RunProgress())
        if started is not None:
            self.trainer_starts[run] = started
        if started is not None and started > state.attempt.began + _CLOCK_TOLERANCE_SECONDS:
            beat = state.reports.get(BEAT)
            if beat is None or beat.timestamp < started:
                self._exact.pop(run, None)  # an earlier process reported
            witnessed = started >= self.watched_since
            self.record(run, TrainerStarted(started, witnessed=witnessed, learned_at=self._now()))
        if finished and not state.finished:
            self.record(run, RunFinished(self._now()))

    def record_script_end(self, run: str, end: ScriptEnd) -> None:
        """Ends a run whose script is over, without an error, at its last sign of progress."""
        state = self.states.get(run, RunProgress())
        last = state.last_sign_at
        if end.kind is not EndKind.LEFT or not state.steps or state.finished or last is None:
            return
        if not self.has_error_since(run, last):
            self.unended[run] = end.waits
            self.record(run, RunFinished(last))

    def has_error_since(self, run: str, silence: float | None) -> bool:
        return silence is not None and self._errors.get(run, 0.0) >= silence

    def record_save_interval(self, run: str, steps: int | None) -> None:
        if steps is not None:
            self._save_intervals[run] = steps

    def record_checkpoints(self, run: str, records: Iterable[tuple[int, float]]) -> None:
        ascending: list[tuple[int, float]] = []
        for step, timestamp in sorted(records, key=lambda record: record[1]):
            # A lower step began another attempt; equal times are those of a copy.
            if ascending and (step <= ascending[-1][0] or timestamp <= ascending[-1][1]):
                ascending.clear()
            ascending.append((step, timestamp))
        interval = self._save_intervals.get(run)
        self.record_guess(run, RecordsFound(tuple(ascending), interval, self._now()))

    def record_save(self, run: str, began: float, ended: float) -> None:
        with self._lock:
            self._follow_clock()
            if (spec := self._specs.get(run)) is not None and ended <= self._now():
                state = self.states.get(run, RunProgress())
                self.times.count_save(spec, state, began, ended)

    def record_saving(self, run: str, since: float | None) -> None:
        state = self.states.get(run, RunProgress())
        if since is None:
            if self._saving.pop(run, None) is not None:
                self.record(run, PhaseEnded(Phase.SAVING, self._now()))
        # A save during which steps continue does not block them.
        elif state.phase is Phase.TRAINING and (state.last_step_at or since) <= since:
            self._saving[run] = since
            self.record(run, PhaseBegan(Phase.SAVING, since))

    def record(self, run: str, event: ProgressEvent) -> None:
        spec = self._specs.get(run)
        if spec is None:
            return
        # The clock of a file server may be ahead; its times would prevent a stall forever.
        event = replace(event, timestamp=min(event.timestamp, self._now()))
        with self._lock:
            self._follow_clock()
            state = self.states.get(run, RunProgress())
            if isinstance(event, StepReported):
                start = self.trainer_starts.get(run, None if spec.trainers else 0.0)
                # the restart of one of several trainers is no start of the run
                error_at = self._errors.get(run, 0.0) if len(spec.trainers) == 1 else None
                state, accepted = resolve_count(
                    state,
                    event,
                    configured_total=spec.total,
                    trainer_start=start,
                    error_at=error_at,
                )
                if accepted is None:
                    self.states[run] = state
                    return
                event = accepted
            elif isinstance(event, TrainerStarted):
                state = before_start(state, event.timestamp)
            new = self.states[run] = apply(state, event)
            self.times.count_event(spec, state, new, event.timestamp)
            if self._pending is not None:
                self._pending.append((run, event))

    def _follow_clock(self) -> None:
        if set_by := self.times.follow_clock():
            self.states = {run: shifted(state, set_by) for run, state in self.states.items()}
            self._saving = {run: since + set_by for run, since in self._saving.items()}
            self._errors = {run: at + set_by for run, at in self._errors.items()}
            self.watched_since += set_by

    def record_looks(self, looks: Mapping[str, RunLook]) -> None:
        with self._lock:
            self._follow_clock()
            for run, spec in self._specs.items():
                state = self.states.get(run, RunProgress())
                look = looks.get(run, RunLook())
                sign_at = self.signs(run, state).progress_at
                self.times.count_look(spec, state, look._replace(sign_at=sign_at))

    def signs(self, run: str, state: RunProgress) -> RunSigns:
        """Returns the signs; a record, such as a checkpoint, is no sign of a running trainer."""
        live = [
            report.timestamp
            for report in state.reports.values()
            if report.is_live and report.dated and report.attempt == state.attempt.number
        ]
        if not state.reports and state.last_sign is not None and state.last_sign.dated:
            live.append(state.last_sign.timestamp)
        failed_at, _ = self._failures.get(run, (None, ""))
        return RunSigns(state.finished, max(live, default=None), failed_at)

    def error(self, run: str, since: float) -> str:
        at, pattern = self._failures.get(run, (0.0, ""))
        return pattern if at >= since else ""

    def all(self) -> tuple[tuple[ProgressSpec, RunProgress], ...]:
        with self._lock:
            self._pending = None
            return tuple(
                (spec, self.states.get(run, RunProgress())) for run, spec in self._specs.items()
            )

    def day(self, run: str) -> tuple[Part, ...]:
        with self._lock:
            return self.times.day(run)

    def save(self) -> Mapping[str, RunTime]:
        with self._lock:
            states = dict(self.states)
            times = self.times.save(self._specs)
        self._file.save(states)
        return times
