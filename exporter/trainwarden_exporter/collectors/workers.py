"""Each worker of a run: what runs, what it uses, how often it started anew and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainwarden_exporter import starts
from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.exits import ExitWatch
from trainwarden_exporter.processes.history import History
from trainwarden_exporter.processes.matching import Matcher, Selector, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, start_timestamp
from trainwarden_exporter.processes.startlog import StartLog, start_log_path
from trainwarden_exporter.processes.table import ProcessTable
from trainwarden_exporter.processes.trials import Trials
from trainwarden_exporter.processes.usage import Usage, count_states, read_usage
from trainwarden_exporter.statefile import StateFile
from trainwarden_exporter.units import Bytes, Name, Seconds
from trainwarden_exporter.yamlfile import MisplacedError, Section


class WorkerConfig(Section):
    name: Name
    """Label `worker`."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=100)] = "worker"
    """Label `role`: what the worker is for, in a word of your own."""

    match: Selector
    """Which processes are this worker."""

    expected: Annotated[int, Field(ge=0)] = 1
    """How many processes should run, children not counted."""

    memory_limit: Annotated[Bytes, Field(gt=0)] | None = None
    """Memory that the worker, children counted, should not pass."""

    age_limit: Annotated[Seconds, Field(gt=0)] | None = None
    """Age at which a worker that also grows should be started anew."""

    trials_limit: Annotated[int, Field(gt=0)] | None = None
    """Trials after which it should be started anew, as its log tells them: one that names it as its
    `worker`, by the lines of patterns named `trial_…`."""

    finishes: bool = False
    """Whether a process that ends with status 0 has finished, and is not missed."""

    pss: bool = False
    """Whether to measure PSS too: exact where memory is shared, about 1 ms a process."""


class WorkersOfRun(Section):
    """What this collector knows of a run."""

    name: Name
    """Label `run`."""

    workers: tuple[WorkerConfig, ...] = ()

    @model_validator(mode="after")
    def _names_are_sound(self) -> Self:
        check_names(self.workers)
        check_references(self.workers)
        return self


def check_names(workers: Sequence[WorkerConfig]) -> None:
    """Raise MisplacedError (from the run) where two workers share a name."""
    seen: set[str] = set()
    for index, worker in enumerate(workers):
        if worker.name in seen:
            raise MisplacedError(f"another worker is named {worker.name}", "workers", index, "name")
        seen.add(worker.name)


def check_references(workers: Sequence[WorkerConfig]) -> None:
    """Raise MisplacedError (from the run) where a `descendant_of` names nobody or goes round."""
    above = {worker.name: worker.match.descendant_of for worker in workers}
    for index, worker in enumerate(workers):
        line = [worker.name]
        while (name := above[line[-1]]) is not None:
            place = ("workers", index, "match", "descendant_of")
            if name not in above:
                raise MisplacedError(f"no worker of this run is named {name}", *place)
            if name in line:
                circle = " → ".join([*line, name])
                raise MisplacedError(f"leads in a circle: {circle}", *place)
            line.append(name)


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """Whether a worker lives, for those who judge by that."""

    key: WorkerKey
    started: float | None
    """Start of its oldest living process (unix seconds); None while none lives."""
    finished: bool


def _metric(name: str, kind: Literal["gauge", "counter"], text: str, *more: str) -> Metric:
    labels = ("run", "worker", "role", *more)
    return Metric(f"trainwarden_worker_{name}", kind, text, labels)


PROCESSES = _metric("processes", "gauge", "Living processes that match the worker's selector.")
EXPECTED = _metric("expected_processes", "gauge", "Processes that should run, as configured.")
TREE = _metric("tree_processes", "gauge", "Living processes of the worker, children counted.")
RESIDENT = _metric("resident_bytes", "gauge", "Resident memory of the worker, children counted.")
PSS = _metric("pss_bytes", "gauge", "Memory of the worker, shared pages divided by their users.")
CPU = _metric("cpu_seconds_total", "counter", "CPU time of the worker, children counted.")
THREADS = _metric("threads", "gauge", "Threads of the worker, children counted.")
FILES = _metric("open_files", "gauge", "Open files of the process nearest its limit.")
FILES_LIMIT = _metric("open_files_limit", "gauge", "Limit of open files of that process.")
START = _metric("start_timestamp_seconds", "gauge", "Start of the oldest living process.")
STATES = _metric("process_states", "gauge", "Processes of the worker by state.", "state")
RESTARTS = _metric("restarts_total", "counter", "Processes that ended and were replaced, as seen.")
READ = _metric("read_bytes_total", "counter", "Bytes read from storage, children counted.")
WRITTEN = _metric("written_bytes_total", "counter", "Bytes written to storage, children counted.")
MEMORY_LIMIT = _metric("memory_limit_bytes", "gauge", "Memory limit, as configured.")
AGE_LIMIT = _metric("age_limit_seconds", "gauge", "Age limit, as configured.")
TRIALS = _metric(
    "trials", "gauge", "Trials that ended since the oldest living process was first seen."
)
TRIALS_LIMIT = _metric("trials_limit", "gauge", "Trials that it may end, as configured.")
EXITS = _metric("exits_total", "counter", "Processes that ended, by exit code or signal.", "status")
LAST_EXIT = _metric("last_exit_code", "gauge", "Exit code of the last end seen, 128+n by signal n.")
LAST_EXIT_TIME = _metric("last_exit_timestamp_seconds", "gauge", "When the last end was noticed.")
RECENT = _metric("recent_starts", "gauge", "Processes started within ten minutes, as remembered.")
PERIOD = _metric(
    "restart_period_seconds", "gauge", "Median distance of these starts, of three or more."
)
FINISHED = _metric("finished", "gauge", "1 when a worker that may finish ended with status 0.")


class WorkersCollector(Collector):
    """Sees the workers of all runs in one walk through /proc."""

    name = "workers"
    metrics = (
        PROCESSES,
        EXPECTED,
        TREE,
        RESIDENT,
        PSS,
        CPU,
        THREADS,
        FILES,
        FILES_LIMIT,
        START,
        STATES,
        RESTARTS,
        READ,
        WRITTEN,
        MEMORY_LIMIT,
        AGE_LIMIT,
        TRIALS,
        TRIALS_LIMIT,
        EXITS,
        LAST_EXIT,
        LAST_EXIT_TIME,
        RECENT,
        PERIOD,
        FINISHED,
    )

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
        self._trials.adopt(predecessor._trials)

    def collect(self) -> Iterable[Family]:
        if not self._workers:
            raise NoData("no workers are configured")
        trees, now = self._matcher.find(), self._clock()
        self._starts.note(trees, now)
        limited = (key for key, worker in self._workers.items() if worker.trials_limit is not None)
        trials = self._trials.since_start(trees, {key: self._trials_told(key) for key in limited})
        finished = set[WorkerKey]()
        families = {metric: metric.family() for metric in self.metrics}
        for key, worker in self._workers.items():
            tree = trees[key]
            usage = read_usage(tree, self._root, pss=worker.pss)
            history = self._histories[key].after(tree, usage.transfers, self._watch, now)
            self._histories[key] = history
            if worker.finishes and self._has_finished(key, tree, history):
                finished.add(key)
            labels = (key.run, key.worker, worker.role)
            started = self._starts.recent(key)
            for metric, value in (
                *_now(tree, usage),
                *_so_far(history),
                *_as_configured(worker),
                (FINISHED, key in finished),
                (TRIALS, trials.get(key)),
                (RECENT, len(started)),
                (PERIOD, starts.period(started, together=max(1, worker.expected))),
            ):
                if value is not None:
                    families[metric].add_metric(labels, value)
            for state, count in count_states(tree.members).items():
                families[STATES].add_metric((*labels, state), count)
            for status, count in history.lives.exits.items():
                families[EXITS].add_metric((*labels, status), count)
        self.lives = tuple(
            WorkerLife(key, oldest_start(trees[key]), key in finished) for key in self._workers
        )
        self._finished.save(frozenset(finished))
        self._watch.keep_only(
            identity for history in self._histories.values() for identity in history.lives.watched
        )
        return families.values()

    def _has_finished(self, key: WorkerKey, tree: Tree, history: History) -> bool:
        if any(root.alive for root in tree.roots):
            return False
        return history.lives.finished or (
            key in self._finished.value and history.lives.last_exit_timestamp is None
        )


_Numbers = tuple[tuple[Metric, float | None], ...]
"""Of one worker; None for what is not known."""


def _now(tree: Tree, usage: Usage) -> _Numbers:
    living = [member for member in tree.members if member.alive]
    files = usage.open_files
    return (
        (PROCESSES, sum(root.alive for root in tree.roots)),
        (TREE, len(living)),
        (RESIDENT, usage.resident_bytes),
        (PSS, usage.pss_bytes),
        (THREADS, sum(member.threads for member in living)),
        (FILES, None if files is None else files.count),
        (FILES_LIMIT, None if files is None else files.limit),
        (START, oldest_start(tree)),
    )


def _so_far(history: History) -> _Numbers:
    lives, transfers = history.lives, history.transfers
    return (
        (CPU, round(history.cpu.seconds, 2)),
        (READ, transfers.moved.read_bytes if transfers.readable else None),
        (WRITTEN, transfers.moved.written_bytes if transfers.readable else None),
        (RESTARTS, lives.restarts),
        (LAST_EXIT, lives.last_exit_code),
        (LAST_EXIT_TIME, lives.last_exit_timestamp),
    )


def _as_configured(worker: WorkerConfig) -> _Numbers:
    return (
        (EXPECTED, worker.expected),
        (MEMORY_LIMIT, worker.memory_limit),
        (AGE_LIMIT, worker.age_limit),
        (TRIALS_LIMIT, worker.trials_limit),
    )


def oldest_start(tree: Tree) -> float | None:
    """When the oldest living process of a worker started (unix seconds); None where none lives."""
    living = (root.identity for root in tree.roots if root.alive)
    return min(map(start_timestamp, living), default=None)
