"""Follows the progress of all runs from reported observations."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.absence import RunSigns
from trainwarden_exporter.processes.stacks.endings import ScriptEnd
from trainwarden_exporter.progress.beats import Beat
from trainwarden_exporter.progress.events import (
    Interrupted,
    ResumePoints,
    ResumePointsFound,
    StepReported,
)
from trainwarden_exporter.progress.progress_files import FileProgress, ProgressFileSpec
from trainwarden_exporter.progress.run_states import RunStates
from trainwarden_exporter.progress.run_time import RunTime
from trainwarden_exporter.progress.run_time_evidence import RunLook
from trainwarden_exporter.progress.run_time_history import Part
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import CHECKPOINT, HEARTBEAT, RunProgress


class ReadProgress(NamedTuple):
    """The progress of a run, which is only read when a page shows it."""

    run: str
    read: Callable[[], RunProgress]


class RunWatch(NamedTuple):
    """Since when a run is watched, and how often it reports; computed when a page shows them."""

    run: str
    since: Callable[[], float]
    """Returns since when the exporter has followed its log (Unix seconds)."""
    report_seconds: Callable[[], float | None]
    """Returns the usual time between reports of several steps each; None for others."""


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
        self._shared = RunStates({spec.run: spec for spec in specs}, state_folder, now, elapsed)

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

    def record_checkpoint(
        self, run: str, checkpoint: str, step: int, timestamp: float, began: float | None = None
    ) -> None:
        """Records that the checkpoint of `step` is complete since `timestamp`, and its start."""
        source = f"{CHECKPOINT}/{checkpoint}"
        if began is not None:
            self._shared.record_save(run, began, timestamp)
        self._shared.record_guess(run, StepReported(source, step, timestamp, is_live=False))

    def record_checkpoints(self, run: str, records: Iterable[tuple[int, float]]) -> None:
        """Records step and time of the complete checkpoints on disk, which show the usual pace."""
        self._shared.record_checkpoints(run, records)

    def record_resume_points(self, run: str, points: ResumePoints) -> None:
        """Records the checkpoints from which a resume is sound."""
        self._shared.record(run, ResumePointsFound(points, self._now()))

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

    def record_script_end(self, run: str, end: ScriptEnd) -> None:
        """Records that the script of a run is over though a process of it lives."""
        self._shared.record_script_end(run, end)

    def has_error_since(self, run: str, silence: float | None) -> bool:
        """Whether a log of its trainer has reported an error since its last sign of progress."""
        return self._shared.has_error_since(run, silence)

    def unended(self, run: str) -> str:
        """Returns what the processes of a run whose script is over wait for, or ""."""
        return self._shared.unended.get(run, "")

    def record_trainer_restart(self, run: str, started: float) -> None:
        """Records the start of the newest process of several trainers."""
        self._shared.trainer_starts[run] = started
        self._shared.record(run, Interrupted(started))

    def record_looks(self, looks: Mapping[str, RunLook]) -> None:
        """Records that all runs were looked at, and what the looks showed."""
        self._shared.record_looks(looks)

    def day(self, run: str) -> tuple[Part, ...]:
        """Returns how the last 24 hours of `run` were spent, in parts, oldest first."""
        return self._shared.day(run)

    def state(self, run: str) -> RunProgress:
        """Returns the progress of `run` by now."""
        return self._shared.states.get(run, RunProgress())

    def step(self, run: str) -> int | None:
        """Returns the completed steps of `run`; None if unknown."""
        return self.state(run).step

    def phase(self, run: str) -> tuple[Phase, float] | None:
        """Returns the phase of `run` and its start (Unix seconds)."""
        state = self.state(run)
        if state.phase is None or state.phase_began_at is None:
            return None
        return state.phase, state.phase_began_at

    def signs(self, run: str) -> RunSigns:
        """Returns whether `run` has finished or failed, and its last reported progress."""
        return self._shared.signs(run, self.state(run))

    def error(self, run: str) -> str:
        """Returns the pattern of the last fatal line of the present attempt of `run`, or ""."""
        return self._shared.error(run, self.state(run).attempt.began)

    def updating_since(self, run: str) -> float | None:
        """Returns the start of a weight update in progress (Unix seconds), or None."""
        phase = self.phase(run)
        return phase[1] if phase is not None and phase[0] is Phase.UPDATING_WEIGHTS else None

    def watch(self, run: str) -> RunWatch:
        """Returns since when `run` is watched, and how often it reports."""
        return RunWatch(
            run,
            lambda: self._shared.watched_since,
            lambda: self.state(run).timing.report_seconds,
        )

    def states(self) -> tuple[tuple[ProgressSpec, RunProgress], ...]:
        """Returns the states of all runs in configuration order."""
        return self._shared.all()

    def save(self) -> Mapping[str, RunTime]:
        """Stores the states and the times for the next start of the exporter, if they changed.

        Returns how the time of each configured run was spent, as stored.
        """
        return self._shared.save()
