"""Collects the progress of each run: steps, step time, phases, resumes and stall limits."""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.matching import WorkerKey, WorkerLiveness
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.endings import EndKind, ScriptEnd
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.attempts import AttemptLog
from trainwarden_exporter.progress.beats import SOURCE as BEAT
from trainwarden_exporter.progress.beats import Beat, lags_by_run, newest_by_run, read_beats
from trainwarden_exporter.progress.holds import HoldPollers, held_runs
from trainwarden_exporter.progress.metrics import (
    METRICS,
    PATH_EXISTS,
    RANK_LAG,
    progress_samples,
    value_samples,
)
from trainwarden_exporter.progress.progress_files import (
    FileProgress,
    ProgressFileScanner,
    ProgressFileSpec,
)
from trainwarden_exporter.progress.run_metrics import METRICS as RUN_METRICS
from trainwarden_exporter.progress.run_metrics import run_samples
from trainwarden_exporter.progress.run_time import RunTime
from trainwarden_exporter.progress.run_time_evidence import RunLook, ServerSigns
from trainwarden_exporter.progress.run_time_history import RunDay
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker, ReadProgress
from trainwarden_exporter.runtime.account_access import reading_for
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.runtime.safe_open import file_status
from trainwarden_exporter.scrape.collector import Collector, Family, Sample
from trainwarden_exporter.step_dirs.locations import InstanceFinder

INTERVAL = 5.0
"""Seconds between two reads of a progress file."""

BEATS_INTERVAL = 1.0
"""Seconds between two reads of the beats, which are written once a second: phases may be short."""

SAVE_INTERVAL = 30.0
"""Seconds between two saves while no state of a run changes; a longer time between two exporters
would count as one in which nobody looked."""

CheckpointSource = Callable[[], Iterable[tuple[str, str, int, float, float | None]]]
"""Newest complete checkpoints: run, checkpoint, step, and when their save ended and began (Unix
seconds; None if unknown)."""

RecordSource = Callable[[], Iterable[tuple[str, Sequence[tuple[int, float]]]]]
"""Checkpoints on disk, of each kind: run, and steps and completion times (Unix seconds)."""

SaveSource = Callable[[], Iterable[tuple[str, float | None]]]
"""Runs with known saves, and the start (Unix seconds) of a save in progress, or None. A run may
occur several times."""

LivenessSource = Callable[[], Iterable[WorkerLiveness]]

OwnerSource = Callable[[Identity], str | None]
"""The run that a process belongs to."""

MovementSource = Callable[[str, float | None], Movement]
"""What the processes of a run do since its last sign of progress."""

EndSource = Callable[[str, float | None], ScriptEnd | None]
"""How the script of a run is over since its last sign of progress; None if it may go on."""

ServerSource = Callable[[str, float | None], ServerSigns]
"""What the inference servers of a run show since its last sign of progress."""

_States = tuple[tuple[ProgressSpec, RunProgress], ...]


class _Saved(NamedTuple):
    """What was last saved, and when (monotonic clock)."""

    at: float
    states: _States
    times: Mapping[str, RunTime]


class ProgressCollector(Collector):
    """Feeds the tracker with polled files and checkpoints, and exports its state."""

    name = "progress"
    metrics = (*METRICS, *RUN_METRICS)

    def __init__(
        self,
        specs: Sequence[ProgressSpec],
        tracker: ProgressTracker,
        *,
        checkpoints: CheckpointSource = tuple,
        complete_checkpoints: RecordSource = tuple,
        resume_points: RecordSource = tuple,
        saves_in_progress: SaveSource = tuple,
        liveness: LivenessSource = tuple,
        beats_folder: Path | None = None,
        run_of: OwnerSource = lambda _: None,
        holds: HoldPollers | None = None,
        state_folder: Path | None = None,
        movement: MovementSource = lambda _run, _silence: Movement.UNKNOWN,
        script_end: EndSource = lambda _run, _silence: None,
        servers: ServerSource = lambda _run, _silence: ServerSigns(),
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracker = tracker
        self._specs = tuple(specs)
        days = (RunDay(spec.run, partial(tracker.day, spec.run)) for spec in specs)
        states = (ReadProgress(spec.run, partial(tracker.state, spec.run)) for spec in specs)
        watches = (tracker.watch(spec.run) for spec in specs)
        self.artifacts = (*self._specs, *days, *states, *watches)
        self._checkpoints = checkpoints
        self._complete_checkpoints = complete_checkpoints
        self._resume_points = resume_points
        self._saves_in_progress = saves_in_progress
        self._liveness = liveness
        self._run_of = run_of
        self.holds = HoldPollers({}) if holds is None else holds
        self._attempts = AttemptLog(state_folder)
        self._sampled_movement = movement
        self._script_end = script_end
        self._servers = servers
        self._clock = clock
        self._saved: _Saved | None = None
        self._runs = frozenset(spec.run for spec in specs)
        finders = {
            subject.location: InstanceFinder(subject.location)
            for spec in specs
            for subject in spec.files
        }
        self._files: BackgroundPollers[ProgressFileSpec, FileProgress | None] = BackgroundPollers(
            {
                subject: BackgroundPoller(
                    f"progress file {subject.file.name} of {subject.run}",
                    ProgressFileScanner(subject, finders[subject.location]),
                    interval=interval,
                )
                for spec in specs
                for subject in spec.files
            }
        )
        self._beats: BackgroundPollers[Path, tuple[Beat, ...]] = BackgroundPollers(
            {
                folder: BackgroundPoller(
                    f"beats in {folder}",
                    partial(read_beats, folder),
                    interval=min(interval, BEATS_INTERVAL),
                )
                for folder in ([] if beats_folder is None or not specs else [beats_folder])
            }
        )
        self._paths: BackgroundPollers[tuple[str, Path, int | None], bool] = BackgroundPollers(
            {
                (spec.run, spec.path, spec.account): BackgroundPoller(
                    f"path of {spec.run}",
                    partial(_is_folder, spec.path, spec.account),
                    interval=interval,
                )
                for spec in specs
                if spec.path is not None
            }
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the state and the pollers of `predecessor`."""
        self._tracker.take_over_from(predecessor._tracker)
        self.holds.take_over_from(predecessor.holds)
        self._attempts.take_over_from(predecessor._attempts)
        self._paths.take_over_from(predecessor._paths)
        self._files.take_over_from(predecessor._files)
        self._beats.take_over_from(predecessor._beats)

    def collect(self) -> Iterable[Family]:
        if not self._specs:
            raise NoData("no runs are configured")
        self._update_tracker()
        return self.families(self._all_samples())

    def _save(self, states: _States) -> Mapping[str, RunTime]:
        """Returns the times of all runs as stored: a later exporter continues from these."""
        now, saved = self._clock(), self._saved
        if saved is None or states != saved.states or now - saved.at >= SAVE_INTERVAL:
            saved = self._saved = _Saved(now, states, self._tracker.save())
        return saved.times

    def _all_samples(self) -> Iterator[Sample]:
        states = self._tracker.states()
        for spec, state in states:
            movement = self._movement(spec.run, state.last_sign_at)
            waits = redact(self._tracker.unended(spec.run))
            yield from progress_samples(spec, state, movement, waits)
        saved = self._save(states)
        for spec, _ in states:
            if (spent := saved.get(spec.run)) is not None:
                yield from run_samples(spec, spent, self._attempts.attempts(spec.run))
        for (run, *_), path_poller in self._paths:
            if (exists := path_poller.result()) is not None:
                yield PATH_EXISTS, (run,), exists.value
        for subject, poller in self._files:
            seen = poller.result()
            if seen is not None and seen.value is not None:
                source = f"file/{subject.file.name}"
                values = seen.value.values
                times = dict.fromkeys(values, seen.value.timestamp)
                yield from value_samples(subject.run, source, values, times)
        for run, beat in self._newest_beats().items():
            times = {name: beat.number_times.get(name, beat.written) for name in beat.numbers}
            yield from value_samples(run, BEAT, beat.numbers, times)
        lags = lags_by_run(self._all_beats(), self._run_of_beat, time.time())
        for run, ranks in lags.items():
            yield from ((RANK_LAG, (run, str(rank)), lag) for rank, lag in ranks.items())

    def _all_beats(self) -> Iterator[Beat]:
        for _, poller in self._beats:
            if (seen := poller.result()) is not None:
                yield from seen.value

    def _newest_beats(self) -> Mapping[str, Beat]:
        return newest_by_run(self._all_beats(), self._run_of_beat)

    def _run_of_beat(self, beat: Beat) -> str | None:
        if beat.run in self._runs:
            return beat.run
        return None if beat.identity is None else self._run_of(beat.identity)

    def _update_tracker(self) -> None:
        beats = self._newest_beats()
        self._tracker.retain_beats(beats)
        for run, beat in beats.items():
            self._tracker.record_beat(run, beat)
        for subject, poller in self._files:
            seen = poller.result()
            if seen is not None and seen.value is not None:
                self._tracker.record_file(subject, seen.value)
        for newest in self._checkpoints():
            self._tracker.record_checkpoint(*newest)
        saves_in_progress = _earliest_save(self._saves_in_progress())
        liveness = {worker.key: worker for worker in self._liveness()}
        for spec in self._specs:
            if spec.run in saves_in_progress:
                self._tracker.record_saving(spec.run, saves_in_progress[spec.run])
            self._update_trainer(spec, liveness)
            silence = self._tracker.state(spec.run).last_sign_at
            if (end := self._script_end(spec.run, silence)) is not None:
                self._tracker.record_script_end(spec.run, end)
        # After the start of the trainer: checkpoints from before say less.
        for run, records in _most_records(self._complete_checkpoints()):
            self._tracker.record_checkpoints(run, records)
        kinds = list(self._resume_points())
        for run in {run for run, _ in kinds}:
            points = tuple(tuple(found) for one, found in kinds if one == run)
            self._tracker.record_resume_points(run, points)
        held = held_runs(self._specs, self.holds)
        self._tracker.record_looks(
            {spec.run: self._look(spec, liveness, held) for spec in self._specs}
        )

    def _look(
        self, spec: ProgressSpec, liveness: Mapping[WorkerKey, WorkerLiveness], held: Container[str]
    ) -> RunLook:
        names = spec.trainers or spec.searchers
        known = [liveness.get(WorkerKey(spec.run, name)) for name in names]
        found = [one for one in known if one is not None]
        alive = [one.finished or one.unconfirmed or one.started is not None for one in found]
        all_found = bool(known) and len(found) == len(known)
        silence = self._tracker.state(spec.run).last_sign_at
        movement, servers = self._movement(spec.run, silence), self._servers(spec.run, silence)
        if movement is Movement.UNKNOWN and servers.working:
            movement = Movement.MOVING  # at an evaluation, say, that nothing announces
        return RunLook(
            # A rank that is gone ends the run; of a search, the others go on.
            alive=not all_found or (all if spec.trainers else any)(alive),
            finished=not spec.trainers and all_found and all(one.finished for one in found),
            held=spec.run in held,
            movement=movement,
            unserved_since=servers.down_since,
        )

    def _movement(self, run: str, silence: float | None) -> Movement:
        """Returns what the processes do; a script that an error has ended makes no step either."""
        end = self._script_end(run, silence)
        is_over = end is not None and end.kind is not EndKind.LEFT_TO_THREAD
        failed = is_over and self._tracker.has_error_since(run, silence)
        return Movement.STUCK if failed else self._sampled_movement(run, silence)

    def _update_trainer(
        self, spec: ProgressSpec, liveness: Mapping[WorkerKey, WorkerLiveness]
    ) -> None:
        keys = [WorkerKey(spec.run, worker) for worker in spec.trainers]
        if not keys or any(key not in liveness for key in keys):
            return
        if len(keys) == 1:
            state = self._tracker.state(spec.run)
            self._attempts.record(spec.run, liveness[keys[0]], state, self._tracker.error(spec.run))
        # With several trainers, the restart of one is not a start of the run.
        started = liveness[keys[0]].started if len(keys) == 1 else None
        if len(keys) > 1:
            starts = (liveness[key].started for key in keys)
            newest = max((one for one in starts if one is not None), default=None)
            if newest is not None:
                self._tracker.record_trainer_restart(spec.run, newest)
        finished = all(liveness[key].finished for key in keys)
        self._tracker.record_trainer(spec.run, started, finished=finished)


def _is_folder(path: Path, account: int | None) -> bool:
    """Raises OSError where the folder cannot be examined: it may exist."""
    try:
        with reading_for(account):
            return stat.S_ISDIR(file_status(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _earliest_save(
    saves_in_progress: Iterable[tuple[str, float | None]],
) -> Mapping[str, float | None]:
    """Returns the earliest start of a save in progress for each run."""
    found: dict[str, float | None] = {}
    for run, since in saves_in_progress:
        known = found.setdefault(run, since)
        if since is not None and (known is None or since < known):
            found[run] = since
    return found


def _most_records(
    kinds: Iterable[tuple[str, Sequence[tuple[int, float]]]],
) -> Iterable[tuple[str, Sequence[tuple[int, float]]]]:
    """Returns for each run its most frequent kind of checkpoint."""
    found: dict[str, Sequence[tuple[int, float]]] = {}
    for run, records in kinds:
        if len(records) > len(found.get(run, ())):
            found[run] = records
    return found.items()
