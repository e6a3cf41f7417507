"""The metrics of workers, and the samples that one look at them makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter import starts
from trainwarden_exporter.collector import TOLD_AFTERWARDS, Metric
from trainwarden_exporter.processes.alive import living_roots
from trainwarden_exporter.processes.config import WorkerConfig, WorkersOfRun
from trainwarden_exporter.processes.history import History
from trainwarden_exporter.processes.matching import Tree
from trainwarden_exporter.processes.usage import Usage, count_states

Sample = tuple[Metric, tuple[str, ...], float]


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

# What rules would else compare on every worker, every few seconds. A fleet that is well has none.
MISSING = _metric(
    "missing_processes",
    "gauge",
    "Processes that should run and do not; only while some are missing, and it has not finished.",
)
EXCESS = _metric(
    "memory_excess_bytes",
    "gauge",
    "Resident memory above the memory limit; only while there is more than that.",
)
RECENT_RESTARTS = _metric(
    "recent_restarts",
    "gauge",
    "Processes that were replaced within ten minutes, as remembered; only while there are any.",
)
SURPLUS_RESTARTS = _metric(
    "surplus_restarts",
    "gauge",
    "Of these, what is more than one for each process that should run; only while there are any.",
)
AGING = _metric(
    "aging_resident_bytes",
    "gauge",
    "Resident memory; only from half an hour before the age limit on.",
)
OVERAGED = _metric(
    "overaged_seconds",
    "gauge",
    "Age; only while it is above the age limit, and 0 for two minutes after.",
)
AGING_SECONDS = 1800.0
"""Over which growth is looked at."""


def _of_run(name: str, text: str) -> Metric:
    return Metric(f"trainwarden_run_{name}", "gauge", text, ("run",))


# Of a run as a whole, so that no rule need look at every worker for it.
NEWEST_START = _of_run(
    "newest_start_timestamp_seconds",
    "The latest start of its workers, those aside that only evaluate or launch.",
)
TRAINERS = _of_run("trainer_processes", "Living processes of what trains.")
TRAINERS_START = _of_run("trainer_start_timestamp_seconds", "The latest start of what trains.")
TRAINERS_FINISHED = _of_run("trainer_finished", "1 when all that trains has finished.")
ALL_FINISHED = _of_run("workers_finished", "1 when all workers of the run have finished.")

METRICS = (
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
    MISSING,
    EXCESS,
    RECENT_RESTARTS,
    SURPLUS_RESTARTS,
    AGING,
    OVERAGED,
    NEWEST_START,
    TRAINERS,
    TRAINERS_START,
    TRAINERS_FINISHED,
    ALL_FINISHED,
)

ASIDE = ("evaluation", "launcher")
"""Roles without which a run goes on."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of one worker at one look."""

    worker: WorkerConfig
    tree: Tree
    usage: Usage
    history: History
    began: float | None
    """Start of its oldest living process (unix seconds); None while none lives."""
    finished: bool
    started: Sequence[float]
    """Its recent starts (unix seconds)."""
    restarts: int
    """Its recent restarts."""
    trials: int | None
    overaged: float | None
    """When it was last older than its age limit (unix seconds), as far as that is remembered."""


_Numbers = Iterable[tuple[Metric, float | None]]
"""None for what is not known, or not there."""


def of_worker(run: str, seen: Sighting, now: float) -> Iterator[Sample]:
    """What there is of one worker at `now` (unix seconds)."""
    labels = (run, seen.worker.name, seen.worker.role)
    for numbers in (_now(seen), _so_far(seen), _as_configured(seen.worker), _trouble(seen, now)):
        for metric, value in numbers:
            if value is not None:
                yield metric, labels, value
    for state, count in count_states(seen.tree.members).items():
        yield STATES, (*labels, state), count
    for status, count in seen.history.lives.exits.items():
        yield EXITS, (*labels, status), count


def of_run(run: WorkersOfRun, seen: Mapping[str, Sighting]) -> Iterator[Sample]:
    """What there is of a run as a whole; `seen` are its workers by their names."""
    for metric, value in _of_the_whole(run, seen):
        if value is not None:
            yield metric, (run.name,), value


def _now(seen: Sighting) -> _Numbers:
    living = [member for member in seen.tree.members if member.alive]
    usage, files = seen.usage, seen.usage.open_files
    together = max(1, seen.worker.expected)
    return (
        (PROCESSES, living_roots(seen.tree)),
        (TREE, len(living)),
        (RESIDENT, usage.resident_bytes),
        (PSS, usage.pss_bytes),
        (THREADS, sum(member.threads for member in living)),
        (FILES, None if files is None else files.count),
        (FILES_LIMIT, None if files is None else files.limit),
        (START, seen.began),
        (FINISHED, seen.finished),
        (TRIALS, seen.trials),
        (RECENT, len(seen.started)),
        (PERIOD, starts.period(seen.started, together=together)),
    )


def _so_far(seen: Sighting) -> _Numbers:
    lives, transfers = seen.history.lives, seen.history.transfers
    return (
        (CPU, round(seen.history.cpu.seconds, 2)),
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


def _trouble(seen: Sighting, now: float) -> _Numbers:
    worker, resident = seen.worker, seen.usage.resident_bytes
    missing = 0 if seen.finished else worker.expected - living_roots(seen.tree)
    yield MISSING, _positive(missing)
    yield RECENT_RESTARTS, _positive(seen.restarts)
    yield SURPLUS_RESTARTS, _positive(seen.restarts - worker.expected)
    if worker.memory_limit is not None:
        yield EXCESS, _positive(resident - worker.memory_limit)
    age = None if seen.began is None else now - seen.began
    if worker.age_limit is not None and age is not None:
        yield AGING, resident if age > worker.age_limit - AGING_SECONDS else None
    if seen.overaged is not None and now - seen.overaged <= TOLD_AFTERWARDS:
        yield OVERAGED, age if seen.overaged == now else 0


def _of_the_whole(run: WorkersOfRun, seen: Mapping[str, Sighting]) -> _Numbers:
    if not run.workers:
        return
    yield NEWEST_START, _latest(seen[one.name] for one in run.workers if one.role not in ASIDE)
    yield ALL_FINISHED, all(one.finished for one in seen.values())
    trainers = [seen[worker.name] for worker in run.trainers]
    if trainers:
        yield TRAINERS, sum(living_roots(one.tree) for one in trainers)
        yield TRAINERS_START, _latest(trainers)
        yield TRAINERS_FINISHED, all(one.finished for one in trainers)


def _latest(seen: Iterable[Sighting]) -> float | None:
    return max((one.began for one in seen if one.began is not None), default=None)


def _positive(value: float) -> float | None:
    return value if value > 0 else None
