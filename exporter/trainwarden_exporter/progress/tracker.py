"""Follows the progress of all runs from reported observations."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import FATAL_LINES, FATAL_PREFIX
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.absence import RunSigns
from trainwarden_exporter.progress.beats import SOURCE as BEAT
from trainwarden_exporter.progress.beats import Beat, events_from_beat
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
from trainwarden_exporter.progress.progress_files import FileProgress, ProgressFileSpec
from trainwarden_exporter.progress.reducer import apply
from trainwarden_exporter.progress.run_time import RunTime, count_event, count_look, retain
from trainwarden_exporter.progress.specs import TRAINER, ProgressSpec
from trainwarden_exporter.progress.stall_limits import pause_limit, stall_limit
from trainwarden_exporter.progress.state import RunProgress, without_guesses
from trainwarden_exporter.runtime.state_file import StateFile

HEARTBEAT = "heartbeat"

MAX_PENDING = 10_000

_STEP_EVENTS = frozenset({StepReported, Advanced, TotalAnnounced, TrainerStarted, RecordsFound})
_PHASE_EVENTS = frozenset({PhaseBegan, PhaseEnded, RunFinished})

_OWN_TIME_SECONDS = 1.0
"""A line that existed before observation began has a valid time of its own if that is at least
this many seconds earlier."""

_CLOCK_SET_SECONDS = 5.0
"""Difference between two clocks over one look from which on the wall clock was set."""

_CLOCK_TOLERANCE_SECONDS = 2.0
"""Seconds by which the start of one process may appear to differ across restarts of the
exporter.
"""


class ProgressTracker:
    """Progress of each run. All methods are thread-safe and return at once.

    Ignores runs that are not configured. `save` stores the states in `state_folder`, if configured.
    """

    def __init__(
        self,
        specs: Iterable[ProgressSpec] = (),
        *,
        state_folder: Path | None = None,
        now: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._now = now
        self._shared = _SharedState({spec.run: spec for spec in specs}, state_folder, now, elapsed)

    def take_over_from(self, predecessor: ProgressTracker) -> None:
        """Continues the states of `predecessor` for runs in both configurations.

        Reports to `predecessor` reach this tracker from now on.
        """
        ours, theirs = self._shared, predecessor._shared
        if ours is not theirs:
            theirs.hand_over(ours)
            self._shared = theirs

    def record_line(self, event: LineEvent) -> None:
        """Records a log line that matched a pattern."""
        self._shared.record_line(event)

    def record_checkpoint(self, run: str, checkpoint: str, step: int, timestamp: float) -> None:
        """Records that the checkpoint of `step` is complete since `timestamp`."""
        source = f"checkpoint/{checkpoint}"
        self._shared.record_guess(run, StepReported(source, step, timestamp, is_live=False))

    def record_checkpoints(self, run: str, records: Iterable[tuple[int, float]]) -> None:
        """Records step and time of the complete checkpoints on disk, which show the usual pace."""
        self._shared.record_checkpoints(run, records)

    def record_saving(self, run: str, since: float | None) -> None:
        """Records the start of a save in progress, as seen in its folder; None for no save."""
        self._shared.record_saving(run, since)

    def record_file(self, spec: ProgressFileSpec, report: FileProgress) -> None:
        """Records the content of a progress file."""
        file = spec.file
        self._shared.record_save_interval(spec.run, report.save_interval)
        self._shared.record_guess(
            spec.run,
            StepReported(
                source=f"file/{file.name}",
                step=report.step,
                timestamp=report.timestamp,
                is_live=file.kind in ("jsonl", "csv"),
                total=report.total,
            ),
        )

    def record_heartbeat(self, run: str, name: str, step: int, timestamp: float) -> None:
        """Records a step from a heartbeat."""
        self._shared.record_guess(run, StepReported(f"{HEARTBEAT}/{name}", step, timestamp))

    def record_beat(self, run: str, beat: Beat) -> None:
        """Records what a program of the run reports of itself.

        While it does, steps and totals of other sources are ignored; and phases, if it reports
        these, except for a save that is seen in its folder.
        """
        self._shared.record_beat(run, beat)

    def retain_beats(self, runs: Collection[str]) -> None:
        """Believes the other sources again about all runs but those in `runs`."""
        self._shared.retain_beats(runs)

    def record_trainer(self, run: str, started: float | None, *, finished: bool) -> None:
        """Records the start of the trainer's oldest process, or that all trainers have finished."""
        self._shared.record_trainer(run, started, finished=finished)

    def record_trainer_restart(self, run: str, started: float) -> None:
        """Records the start of the newest process of several trainers."""
        self._shared.record(run, Interrupted(started))

    def record_look(self, trainers_alive: Mapping[str, bool]) -> None:
        """Records that all runs were looked at, and whether their trainers lived where known."""
        self._shared.record_look(trainers_alive)

    def step(self, run: str) -> int | None:
        """Returns the completed steps of `run`; None if unknown."""
        state = self._shared.states.get(run)
        return None if state is None else state.step

    def phase(self, run: str) -> tuple[Phase, float] | None:
        """Returns the phase of `run` and its start (Unix seconds)."""
        state = self._shared.states.get(run)
        if state is None or state.phase is None or state.phase_began_at is None:
            return None
        return state.phase, state.phase_began_at

    def signs(self, run: str) -> RunSigns:
        """Returns whether `run` has finished or failed, and its last reported progress."""
        state = self._shared.states.get(run)
        return RunSigns() if state is None else self._shared.signs(run, state)

    def updating_since(self, run: str) -> float | None:
        """Returns the start of a weight update in progress (Unix seconds), or None."""
        phase = self.phase(run)
        return phase[1] if phase is not None and phase[0] is Phase.UPDATING_WEIGHTS else None

    def states(self) -> tuple[tuple[ProgressSpec, RunProgress], ...]:
        """Returns the states of all runs in configuration order."""
        return self._shared.all()

    def save(self) -> Mapping[str, RunTime]:
        """Stores the states and the times for the next start of the exporter, if they changed.

        Returns how the time of each configured run was spent, as stored.
        """
        return self._shared.save()


class _SharedState:
    """State shared by trackers that took over from one another."""

    def __init__(
        self,
        specs: Mapping[str, ProgressSpec],
        state_folder: Path | None,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        self._specs = dict(specs)
        self._now, self._elapsed = now, elapsed
        self._watched_since = now()
        self._lock = Lock()
        self._saving: dict[str, float] = {}
        self._failed_at: dict[str, float] = {}
        self._save_intervals: dict[str, int] = {}
        self._exact: dict[str, frozenset[type[ProgressEvent]]] = {}
        """What each run reports itself, so that nothing else is believed about it."""
        path = None if state_folder is None else state_folder / "progress.json"
        self._file = StateFile[dict[str, RunProgress]](path, dict[str, RunProgress], empty={})
        self.states: dict[str, RunProgress] = {
            run: _after_restart(state, self._watched_since)
            for run, state in self._file.value.items()
            if run in specs
        }
        times = None if state_folder is None else state_folder / "run_time.json"
        self._times_file = StateFile[dict[str, RunTime]](times, dict[str, RunTime], empty={})
        self.times = retain(self._times_file.value, specs, self._watched_since)
        self._clocks = now(), elapsed()
        # Reports between a reload and the first collection after it must reach the predecessor's
        # states too.
        self._pending: deque[tuple[str, ProgressEvent]] | None = deque(maxlen=MAX_PENDING)

    def hand_over(self, successor: _SharedState) -> None:
        """Hands over to the configuration of `successor`, including its reports so far."""
        with successor._lock:
            specs, file, waiting = successor._specs, successor._file, successor._pending or ()
            times_file, pending = successor._times_file, tuple(waiting)
        with self._lock:
            self._specs, self._file, self._times_file = specs, file, times_file
            self.states = {run: one for run, one in self.states.items() if run in specs}
            self.times = retain(self.times, specs, self._now())
        for run, event in pending:
            self.record(run, event)

    def record_line(self, event: LineEvent) -> None:
        spec = self._specs.get(event.run)
        pattern = None if spec is None else spec.lines.get((event.log, event.pattern))
        if pattern is None:
            return
        if event.fresh and pattern.error and _is_fatal(pattern, event):
            self._failed_at[event.run] = event.timestamp
        dated = event.fresh or event.timestamp < self._watched_since - _OWN_TIME_SECONDS
        for progress_event in events_from_line(event, pattern, dated=dated):
            self.record_guess(event.run, progress_event)

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
        state = self.states.get(run, RunProgress())
        if started is not None and started > state.attempt.began + _CLOCK_TOLERANCE_SECONDS:
            beat = state.reports.get(BEAT)
            if beat is None or beat.timestamp < started:
                self._exact.pop(run, None)  # an earlier process reported
            witnessed = started >= self._watched_since
            self.record(run, TrainerStarted(started, witnessed=witnessed, learned_at=self._now()))
        if finished and not state.finished:
            self.record(run, RunFinished(self._now()))

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
        event = _limit_to_now(event, self._now())
        with self._lock:
            self._follow_clock()
            state = self.states.get(run, RunProgress())
            if isinstance(event, StepReported):
                state, accepted = resolve_count(state, event, configured_total=spec.total)
                if accepted is None:
                    return
                event = accepted
            new = self.states[run] = apply(state, event)
            if run in self.times:
                limit = _silence_limit(state, spec)
                self.times[run] = count_event(self.times[run], state, new, event.timestamp, limit)
            if self._pending is not None:
                self._pending.append((run, event))

    def record_look(self, trainers_alive: Mapping[str, bool]) -> None:
        now = self._now()
        with self._lock:
            self._follow_clock()
            for run, spec in self._specs.items():
                time, state = self.times.get(run, RunTime(now, now)), self.states.get(run)
                alive, state = trainers_alive.get(run, True), state or RunProgress()
                limit = _silence_limit(state, spec)
                self.times[run] = count_look(time, state, now, alive=alive, limit=limit)

    def _follow_clock(self) -> None:
        before, self._clocks = self._clocks, (self._now(), self._elapsed())
        now, elapsed = self._clocks
        set_by = (now - before[0]) - (elapsed - before[1])
        if abs(set_by) > _CLOCK_SET_SECONDS:
            self.times = {run: time.shifted(set_by, now) for run, time in self.times.items()}

    def signs(self, run: str, state: RunProgress) -> RunSigns:
        """Returns the signs; a record, such as a checkpoint, is no sign of a running trainer."""
        live = [
            report.timestamp
            for report in state.reports.values()
            if report.is_live and report.dated and report.attempt == state.attempt.number
        ]
        if not state.reports and state.last_sign is not None and state.last_sign.dated:
            live.append(state.last_sign.timestamp)
        return RunSigns(state.finished, max(live, default=None), self._failed_at.get(run))

    def all(self) -> tuple[tuple[ProgressSpec, RunProgress], ...]:
        with self._lock:
            self._pending = None
            return tuple(
                (spec, self.states.get(run, RunProgress())) for run, spec in self._specs.items()
            )

    def save(self) -> Mapping[str, RunTime]:
        with self._lock:
            states, times, runs = dict(self.states), dict(self.times), tuple(self._specs)
        self._file.save(states)
        self._times_file.save(times)
        return {run: times[run] for run in runs if run in times}


def _silence_limit(state: RunProgress, spec: ProgressSpec) -> float | None:
    """Returns the seconds after which silence is a stall: evaluations may not be logged."""
    announced = spec.announces_evaluations and state.evaluations_seen
    return (stall_limit if announced else pause_limit)(state, spec.limits)


def _is_fatal(pattern: LinePattern, event: LineEvent) -> bool:
    known = pattern.name in FATAL_LINES or pattern.name.startswith(FATAL_PREFIX)
    return known and event.role in ("", TRAINER)


def _after_restart(state: RunProgress, now: float) -> RunProgress:
    """Returns the state after an unobserved time.

    Logs and files are read completely; heartbeats in the meantime were lost, so their silence says
    nothing. The end of any silence that spanned this time is unknown.
    """
    state = replace(state, interrupted_at=now)
    has_heartbeat = any(
        source.startswith(f"{HEARTBEAT}/") and report.attempt == state.attempt.number
        for source, report in state.reports.items()
    )
    if has_heartbeat and state.last_sign_at is not None:
        return replace(state, last_sign_at=now)
    return state


def _limit_to_now(event: ProgressEvent, now: float) -> ProgressEvent:
    # The clock of a file server may be ahead; its file times would prevent a stall forever.
    return replace(event, timestamp=min(event.timestamp, now))
