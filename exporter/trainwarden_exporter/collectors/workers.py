"""Collects the workers of each run: processes, resources, restarts and exits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.absence import (
    SELECTOR_REASONS,
    AbsenceReason,
    PresenceLog,
    RunSigns,
    find_absence_reason,
)
from trainwarden_exporter.processes.announcements import AnnouncedRuns, ReadAnnouncements
from trainwarden_exporter.processes.config import RunWorkers, WorkerConfig, workers_by_key
from trainwarden_exporter.processes.exit_status import ExitWatcher
from trainwarden_exporter.processes.matching import (
    Matcher,
    ProcessTree,
    WorkerKey,
    WorkerLiveness,
    count_live_roots,
    oldest_root_start,
)
from trainwarden_exporter.processes.metrics import (
    METRICS,
    WorkerObservation,
    run_samples,
    worker_samples,
)
from trainwarden_exporter.processes.near_match import NearMatchFinder
from trainwarden_exporter.processes.output_files import read_output_files
from trainwarden_exporter.processes.process_table import ProcessTable
from trainwarden_exporter.processes.procfs import PROC, Identity
from trainwarden_exporter.processes.resource_usage import Usage, read_usage
from trainwarden_exporter.processes.start_history import RestartLog, StartLog, start_log_path
from trainwarden_exporter.processes.systemd_units import UnitStops
from trainwarden_exporter.processes.worker_history import WorkerHistory
from trainwarden_exporter.processes.worker_trials import TrialCounter
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.scrape.collector import Collector, Family, Sample

NEAR_LIMIT_SHARE, NEAR_LIMIT_SECONDS = 0.9, 30.0
"""Share of a memory limit from which PSS is read as well, and the seconds between two readings.

The warning TrainingWorkerMemoryOverLimit begins at the same share.
"""

_STATE_FILES = ("finished-workers", "worker-presence", "worker-restarts", "worker-trials")


class WorkersCollector(Collector):
    """Observes the workers of all runs in one pass over /proc."""

    name = "workers"
    metrics = METRICS

    def __init__(
        self,
        runs: Sequence[RunWorkers],
        *,
        state_folder: Path | None = None,
        trials_logged: Callable[[WorkerKey], int | None] = lambda _: None,
        run_signs: Callable[[str], RunSigns] = lambda _: RunSigns(),
        root: Path = PROC,
        clock: Callable[[], float] = time.time,
        announced: ReadAnnouncements = lambda _now, _before: AnnouncedRuns(),
        table: ProcessTable | None = None,
    ) -> None:
        """Observes `runs`; keeps finished workers and starts in `state_folder`.

        `table` is the process table at `root`, if shared with other collectors. `trials_logged`
        returns the trials that the logs of a worker report; None while unknown. `run_signs`
        returns what the logs and files of a run show. `announced` returns the runs that are
        announced at a time, after those of the previous collection.
        """
        self._workers = workers_by_key(runs)
        self._runs = runs
        self._matcher = Matcher(
            {key: worker.match for key, worker in self._workers.items()}, root=root, table=table
        )
        self._histories = {key: WorkerHistory() for key in self._workers}
        finished, presence, restarts, trials = (
            None if state_folder is None else state_folder / f"{name}.json" for name in _STATE_FILES
        )
        # Without this file, an exporter started after the end of a run would report its workers as
        # missing.
        self._finished = StateFile[frozenset[WorkerKey]](
            finished, frozenset[WorkerKey], empty=frozenset()
        )
        self._start_log = StartLog(start_log_path(state_folder))
        self._restart_log = RestartLog(restarts)
        self._presence_log = PresenceLog(presence, root)
        self._unit_stops = UnitStops(root)
        self._run_signs = run_signs
        self._near_matches = NearMatchFinder(root)
        self._last_over_age_at: dict[WorkerKey, float] = {}
        self._last_pss: dict[WorkerKey, tuple[float, Usage]] = {}
        self._trial_counter = TrialCounter(trials)
        self._trials_logged = trials_logged
        self._exit_watcher = ExitWatcher(root)
        self._read_announced = announced
        self._announced = AnnouncedRuns()
        self._root = root
        self._clock = clock
        self.liveness: tuple[WorkerLiveness, ...] = ()
        self._members: Mapping[Identity, str] = {}
        self._root_pids: Mapping[WorkerKey, tuple[int, ...]] = {}
        """All workers at the last collection."""
        self.trees: Mapping[WorkerKey, ProcessTree] = {}
        """The processes of all workers at the last collection."""

    def take_over_from(self, predecessor: Self) -> None:
        """Continues the counts of `predecessor` for workers in both configurations.

        The exit watchers move too; `predecessor` continues without them if it is still collecting.
        """
        known = self._histories.keys() & predecessor._histories.keys()
        self._histories |= {key: predecessor._histories[key] for key in known}
        ours = self._exit_watcher
        self._exit_watcher, predecessor._exit_watcher = predecessor._exit_watcher, ours
        self._start_log.take_over_from(predecessor._start_log)
        self._restart_log.take_over_from(predecessor._restart_log)
        self._presence_log.take_over_from(predecessor._presence_log)
        self._unit_stops.take_over_from(predecessor._unit_stops)
        self._last_over_age_at |= {
            key: predecessor._last_over_age_at[key]
            for key in known & predecessor._last_over_age_at.keys()
        }
        self._announced = predecessor._announced
        self._trial_counter.take_over_from(predecessor._trial_counter)

    def output_files(self, worker: WorkerKey) -> tuple[str, ...]:
        """Returns the files into which the processes of `worker` write their output."""
        files = (path for pid in self._root_pids.get(worker, ()) for path in read_output_files(pid))
        return tuple(dict.fromkeys(files))

    def run_of(self, identity: Identity) -> str | None:
        """Returns the run that a process belongs to; None for a process of no worker."""
        return self._members.get(identity)

    def collect(self) -> Iterable[Family]:
        if not self._workers:
            raise NoData("no workers are configured")
        trees, now = self._matcher.find(), self._clock()
        # read after the processes: the end of a process that is gone has then been announced
        self._announced = self._read_announced(now, self._announced)
        seen = self._observe(trees, now)
        self.trees = trees
        self._root_pids = {
            key: tuple(root.pid for root in tree.roots) for key, tree in trees.items()
        }
        self._members = {
            member.identity: key.run for key, tree in trees.items() for member in tree.members
        }
        self.liveness = tuple(
            WorkerLiveness(
                key,
                one.started_at,
                one.finished,
                now,
                one.history.roots.last_exit_code,
                one.history.roots.last_exit_timestamp,
                unconfirmed=one.absence in SELECTOR_REASONS,
            )
            for key, one in seen.items()
        )
        self.artifacts = tuple(
            one.announcement
            for key, one in self._announced.workers.items()
            if key in trees
            and (
                one.announcement.starts > 1
                or one.announcement.own_restarts
                or not (trees[key].roots and one.announcement.failure)
            )
        )
        self._finished.save(frozenset(key for key, one in seen.items() if one.finished))
        self._exit_watcher.retain(
            identity
            for history in self._histories.values()
            for identity in history.roots.awaiting_exit
        )
        return self.families(self._samples(seen, now))

    def _samples(self, seen: Mapping[WorkerKey, WorkerObservation], now: float) -> Iterator[Sample]:
        for key, one in seen.items():
            yield from worker_samples(key.run, one, now)
        for run in self._runs:
            yield from run_samples(
                run, {one.name: seen[WorkerKey(run.name, one.name)] for one in run.workers}
            )

    def _observe(
        self, trees: Mapping[WorkerKey, ProcessTree], now: float
    ) -> dict[WorkerKey, WorkerObservation]:
        """Returns the state of all workers, including changes since the last collection."""
        usages = {
            key: self._read_usage(key, worker, trees[key], now)
            for key, worker in self._workers.items()
        }
        counted_since = {key: self._announced.counted_since(key, now) for key in self._workers}
        self._histories = {
            key: history.merge_observed(
                *(trees[key], usages[key].transfers, self._exit_watcher, now),
                announced=partial(self._announced.exit_of, key),
                counted_since=counted_since[key],
            )
            for key, history in self._histories.items()
        }
        harmless_ends = {key: one.roots.harmless_ends for key, one in self._histories.items()}
        self._start_log.record(trees, now, harmless_ends, counted_since)
        self._presence_log.record(trees)
        self._unit_stops.record(trees)
        self._restart_log.record(
            {key: one.roots.failure_restarts for key, one in self._histories.items()},
            now,
            counted_since,
        )
        limited = (key for key, worker in self._workers.items() if worker.trials_limit is not None)
        trials = self._trial_counter.since_start(
            trees, {key: self._trials_logged(key) for key in limited}
        )
        started_at = {key: oldest_root_start(trees[key]) for key in self._workers}
        for key, worker in self._workers.items():
            start, limit = started_at[key], worker.age_limit
            if start is not None and limit is not None and now - start > limit:
                self._last_over_age_at[key] = now
        absences = self._absence_reasons(trees, now)
        return {
            key: WorkerObservation(
                worker=worker,
                tree=trees[key],
                usage=usages[key],
                history=self._with_announced_failure(key),
                started_at=started_at[key],
                finished=worker.finishes and self._has_finished(key, trees[key], absences[key]),
                absence=absences[key],
                recent_starts=self._start_log.recent(key),
                recent_restarts=self._restart_log.recent(key),
                trials=trials.get(key),
                last_over_age_at=self._last_over_age_at.get(key),
                is_added=self._is_added(key),
                near_match=self._near_matches.find(key, worker.match)
                if absences[key] in SELECTOR_REASONS
                else None,
            )
            for key, worker in self._workers.items()
        }

    def _is_added(self, key: WorkerKey) -> bool:
        found = self._announced.workers.get(key)
        return found is not None and found.announcement.starts == 1

    def _with_announced_failure(self, key: WorkerKey) -> WorkerHistory:
        """Returns the history with a failure that came between two collections."""
        history, found = self._histories[key], self._announced.workers.get(key)
        if found is None or not (one := found.announcement).failure or one.ended_at is None:
            return history
        return history.with_failure(one.exits[-1][2], one.ended_at)

    def _read_usage(
        self, key: WorkerKey, worker: WorkerConfig, tree: ProcessTree, now: float
    ) -> Usage:
        """Reads PSS above the limit each time, and near it seldom: it walks all pages.

        In between, the shared pages of the last time are assumed: the memory of the worker does not
        go up and down with each reading.
        """
        if worker.memory_limit is None:
            return read_usage(tree, self._root, pss=worker.pss)
        read_at, last = self._last_pss.get(key, (-math.inf, None))
        share = NEAR_LIMIT_SHARE if now - read_at >= NEAR_LIMIT_SECONDS else 1.0
        limit = share * worker.memory_limit
        usage = read_usage(tree, self._root, pss=worker.pss, doubtful_above=limit)
        if usage.pss is not None:
            self._last_pss[key] = (now, usage)
        elif not usage.resident_bytes:
            self._last_pss.pop(key, None)
        elif last is not None:
            usage = replace(usage, last_repeated_bytes=last.repeated_bytes)
        return usage

    def _absence_reasons(
        self, trees: Mapping[WorkerKey, ProcessTree], now: float
    ) -> dict[WorkerKey, AbsenceReason | None]:
        """Returns for each worker why an absence of its processes would be no failure."""
        found: dict[WorkerKey, AbsenceReason | None] = {}
        for run in self._runs:
            signs = self._run_signs(run.name)
            trainers = {worker.name for worker in run.trainers}
            idle = not any(count_live_roots(trees[WorkerKey(run.name, one)]) for one in trainers)
            for worker in run.workers:
                key = WorkerKey(run.name, worker.name)
                roots = self._histories[key].roots
                ended_at = roots.last_exit_timestamp if roots.unreplaced_statuses else None
                found[key] = find_absence_reason(
                    roots,
                    signs,
                    seen=key not in self._matcher.unread
                    and (self._presence_log.was_seen(key) or key in self._announced.workers),
                    finishes=worker.finishes and self._announced_state(key) != "failed",
                    ended_by_reboot=self._presence_log.ended_by_reboot(key),
                    is_only_trainer=worker.name in trainers and idle,
                    unit_stopped=self._unit_stops.was_stopped(key, ended_at, now),
                    was_interrupted=self._presence_log.was_interrupted(key),
                    has_failed=self._presence_log.has_failed(key),
                )
        # Without this, an exporter started later would report a worker that the operator stopped
        # as failed, and a failed one as perhaps finished.
        self._presence_log.record_ends({
            key: reason
            for key, reason in found.items()
            if self._histories[key].roots.unreplaced_statuses
            and reason is not AbsenceReason.PROGRESSING
        })  # fmt: skip
        return found

    def _announced_state(self, key: WorkerKey) -> str | None:
        """Returns the state that the run announces once it is over, else None."""
        found = self._announced.workers.get(key)
        if found is None or not found.announcement.has_ended:
            return None
        return found.announcement.state

    def _has_finished(
        self, key: WorkerKey, tree: ProcessTree, absence: AbsenceReason | None
    ) -> bool:
        if any(root.alive for root in tree.roots):
            return False
        if (state := self._announced_state(key)) is not None:
            return state == "finished"
        roots = self._histories[key].roots
        if roots.finished or (key in self._finished.value and roots.last_exit_timestamp is None):
            return True
        # An unknown exit status, and the run has reported its end.
        return absence is AbsenceReason.EXIT_UNKNOWN and self._run_signs(key.run).finished
