"""Each worker of a run: what runs, what it uses, how often it started anew and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.collector import Collector, Family
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.alive import WorkerLife, oldest_start
from trainwarden_exporter.processes.config import WorkersOfRun
from trainwarden_exporter.processes.exits import ExitWatch
from trainwarden_exporter.processes.history import History
from trainwarden_exporter.processes.matching import Matcher, Tree, WorkerKey
from trainwarden_exporter.processes.metrics import METRICS, Sighting, of_run, of_worker
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.processes.restartlog import RestartLog
from trainwarden_exporter.processes.startlog import StartLog, start_log_path
from trainwarden_exporter.processes.table import ProcessTable
from trainwarden_exporter.processes.trials import Trials
from trainwarden_exporter.processes.usage import read_usage
from trainwarden_exporter.statefile import StateFile


class WorkersCollector(Collector):
    """Sees the workers of all runs in one walk through /proc."""

    name = "workers"
    metrics = METRICS

    def __init__(
        self,
        runs: Sequence[WorkersOfRun],
        *,
        state_folder: Path | None = None,
        trials_told: Callable[[WorkerKey], int | None] = lambda _: None,
        root: Path = PROC,
        clock: Callable[[], float] = time.time,
        table: ProcessTable | None = None,
    ) -> None:
        """Watch `runs`; which workers have finished or started is remembered in `state_folder`.

        `table`: of the processes at `root`, where it is shared with others.
        `trials_told`: how many trials the logs of a worker have told of; None while not known.
        """
        self._workers = {
            WorkerKey(run.name, worker.name): worker for run in runs for worker in run.workers
        }
        self._runs = runs
        self._matcher = Matcher(
            {key: worker.match for key, worker in self._workers.items()}, root=root, table=table
        )
        self._histories = {key: History() for key in self._workers}
        path = None if state_folder is None else state_folder / "finished-workers.json"
        # Without this file, an exporter that starts after a run has ended would call it gone.
        self._finished = StateFile[frozenset[WorkerKey]](
            path, frozenset[WorkerKey], empty=frozenset()
        )
        self._starts = StartLog(start_log_path(state_folder))
        path = None if state_folder is None else state_folder / "worker-restarts.json"
        self._restarts = RestartLog(path)
        self._overaged: dict[WorkerKey, float] = {}
        self._trials = Trials(None if state_folder is None else state_folder / "worker-trials.json")
        self._trials_told = trials_told
        self._watch = ExitWatch(root)
        self._root = root
        self._clock = clock
        self.lives: tuple[WorkerLife, ...] = ()
        """All workers at the last collection."""

    def adopt(self, predecessor: Self) -> None:
        """Go on counting where `predecessor` is, for the workers known to both.

        The eyes on their ends pass over too; `predecessor`, should it still be collecting, goes on
        with none.
        """
        known = self._histories.keys() & predecessor._histories.keys()
        self._histories |= {key: predecessor._histories[key] for key in known}
        self._watch, predecessor._watch = predecessor._watch, self._watch
        self._starts.adopt(predecessor._starts)
        self._restarts.adopt(predecessor._restarts)
        self._overaged |= {
            key: predecessor._overaged[key] for key in known & predecessor._overaged.keys()
        }
        self._trials.adopt(predecessor._trials)

    def collect(self) -> Iterable[Family]:
        if not self._workers:
            raise NoData("no workers are configured")
        trees, now = self._matcher.find(), self._clock()
        seen = self._look(trees, now)
        families = {metric: metric.family() for metric in self.metrics}
        for key, one in seen.items():
            for metric, labels, value in of_worker(key.run, one, now):
                families[metric].add_metric(labels, value)
        for run in self._runs:
            its_own = {
                worker.name: seen[WorkerKey(run.name, worker.name)] for worker in run.workers
            }
            for metric, labels, value in of_run(run, its_own):
                families[metric].add_metric(labels, value)
        self.lives = tuple(WorkerLife(key, one.began, one.finished) for key, one in seen.items())
        self._finished.save(frozenset(key for key, one in seen.items() if one.finished))
        self._watch.keep_only(
            identity for history in self._histories.values() for identity in history.lives.watched
        )
        return families.values()

    def _look(self, trees: Mapping[WorkerKey, Tree], now: float) -> dict[WorkerKey, Sighting]:
        """All workers as they are, with what came of them since the last time."""
        usages = {
            key: read_usage(trees[key], self._root, pss=worker.pss)
            for key, worker in self._workers.items()
        }
        self._histories = {
            key: history.after(trees[key], usages[key].transfers, self._watch, now)
            for key, history in self._histories.items()
        }
        self._starts.note(trees, now)
        self._restarts.note({key: one.lives.restarts for key, one in self._histories.items()}, now)
        limited = (key for key, worker in self._workers.items() if worker.trials_limit is not None)
        trials = self._trials.since_start(trees, {key: self._trials_told(key) for key in limited})
        began = {key: oldest_start(trees[key]) for key in self._workers}
        for key, worker in self._workers.items():
            start, limit = began[key], worker.age_limit
            if start is not None and limit is not None and now - start > limit:
                self._overaged[key] = now
        return {
            key: Sighting(
                worker=worker,
                tree=trees[key],
                usage=usages[key],
                history=self._histories[key],
                began=began[key],
                finished=worker.finishes
                and self._has_finished(key, trees[key], self._histories[key]),
                started=self._starts.recent(key),
                restarts=self._restarts.recent(key),
                trials=trials.get(key),
                overaged=self._overaged.get(key),
            )
            for key, worker in self._workers.items()
        }

    def _has_finished(self, key: WorkerKey, tree: Tree, history: History) -> bool:
        if any(root.alive for root in tree.roots):
            return False
        return history.lives.finished or (
            key in self._finished.value and history.lives.last_exit_timestamp is None
        )
