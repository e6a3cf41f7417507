"""Metrics of workers, and their samples from one observation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.processes.absence import AbsenceReason
from trainwarden_exporter.processes.config import RunWorkers, WorkerConfig
from trainwarden_exporter.processes.matching import ProcessTree, count_live_roots
from trainwarden_exporter.processes.near_match import describe_selector
from trainwarden_exporter.processes.resource_usage import Usage, count_states
from trainwarden_exporter.processes.worker_history import WorkerHistory
from trainwarden_exporter.scrape.collector import PROBLEM_HOLD_SECONDS, Metric, MetricTable, Sample

_worker_table = MetricTable("trainwarden_worker_", "run", "worker", "role")
_gauge, _counter = _worker_table.gauge, _worker_table.counter

PROCESSES = _gauge("processes", "Running processes that match the worker's selector.")
EXPECTED = _gauge("expected_processes", "Expected processes, as configured.")
TREE = _gauge("tree_processes", "Running processes of the worker, including descendants.")
RESIDENT = _gauge("resident_bytes", "Resident memory of the worker, including descendants.")
PSS = _gauge(
    "pss_bytes",
    "Proportional memory (PSS) of the worker: shared pages divided among their users. Only present "
    "with `pss: true`, while the resident memory is above the limit, and every 30 s while it is "
    "above 90 % of it.",
)
MEMORY = _gauge(
    "memory_bytes",
    "Memory that counts towards the limit: the resident memory without the files that the worker "
    "maps, which the kernel can drop. Once PSS is read, shared pages count once.",
)
CPU = _counter("cpu_seconds_total", "CPU time of the worker, including descendants.")
FILES = _gauge("open_files", "Open files of the process closest to its limit.")
FILES_LIMIT = _gauge("open_files_limit", "Open file limit of that process.")
START = _gauge("start_timestamp_seconds", "Start of the oldest running process.")
STATES = _gauge("process_states", "Processes of the worker by state.", "state")
RESTARTS = _counter("restarts_total", "Observed processes that ended and were replaced.")
READ = _counter("read_bytes_total", "Bytes read from storage, including descendants.")
WRITTEN = _counter("written_bytes_total", "Bytes written to storage, including descendants.")
MEMORY_LIMIT = _gauge("memory_limit_bytes", "Memory limit, as configured.")
AGE_LIMIT = _gauge("age_limit_seconds", "Age limit, as configured.")
TRIALS = _gauge("trials", "Trials that ended since the oldest running process was first observed.")
TRIALS_LIMIT = _gauge("trials_limit", "Maximum number of trials, as configured.")
EXITS = _counter("exits_total", "Processes that ended, by exit code or signal.", "status")
LAST_EXIT = _gauge("last_exit_code", "Exit code of the last observed exit; 128+n for signal n.")
LAST_EXIT_TIME = _gauge("last_exit_timestamp_seconds", "Time at which the last exit was observed.")
RECENT = _gauge("recent_starts", "Processes started within the last ten minutes.")
PERIOD = _gauge(
    "restart_period_seconds", "Median time between the recent starts; absent for fewer than three."
)
FINISHED = _gauge(
    "finished",
    "1 when a worker that is allowed to finish has ended with status 0, or with an unknown status"
    " after its run reported its end.",
)

# Precomputed so that rules do not compare these values for every worker at each evaluation. Healthy
# workers have none of these series.
MISSING = _gauge(
    "missing_processes",
    "Expected processes that do not run; absent if none is missing, if the worker has finished, and"
    " if nothing shows that they failed.",
)
UNCONFIRMED = _gauge(
    "unconfirmed_missing_processes",
    "Expected processes that do not run, without a sign of a failure: never_seen, exit_unknown,"
    " interrupted (by SIGINT) or progressing (the run makes progress); absent if none.",
    "reason",
)
UNMATCHED = _gauge(
    "unmatched_selector_info",
    "1 while the selector of a worker matches no process, and nothing shows that the worker failed."
    " Label nearest: the most similar program that runs.",
    "selector",
    "nearest",
)
MEMORY_EXCESS = _gauge(
    "memory_excess_bytes",
    "Memory above the memory limit, with shared pages counted once, and without mapped files; only"
    " present while above.",
)
RECENT_RESTARTS = _gauge(
    "recent_restarts",
    "Processes replaced within the last ten minutes; absent if none. A process that ended"
    " successfully or by SIGINT does not count.",
)
EXCESS_RESTARTS = _gauge(
    "excess_restarts", "Recent restarts beyond one for each expected process; absent if none."
)
AGING = _gauge(
    "aging_memory_bytes",
    "Memory as in `trainwarden_worker_memory_bytes`; only present from half an hour before the age"
    " limit.",
)
AGE_EXCESS = _gauge(
    "age_excess_seconds", "Age while it is above the age limit, and 0 for two minutes after."
)
AGING_SECONDS = 1800.0
"""Time before the age limit during which memory growth is observed."""


# One series per run, so that no rule must aggregate over all workers.
_run_table = MetricTable("trainwarden_run_", "run")
NEWEST_START = _run_table.gauge(
    "newest_start_timestamp_seconds",
    "Latest start of its workers, except for evaluation and launcher workers, and for the first"
    " start of a command that `trainwarden run` adds to a run.",
)
TRAINERS = _run_table.gauge("trainer_processes", "Running processes of the trainers.")
TRAINERS_START = _run_table.gauge(
    "trainer_start_timestamp_seconds", "Latest start of the trainers."
)
TRAINERS_FINISHED = _run_table.gauge("trainer_finished", "1 when all trainers have finished.")
ALL_FINISHED = _run_table.gauge("workers_finished", "1 when all workers of the run have finished.")

METRICS = (*_worker_table.metrics, *_run_table.metrics)

AUXILIARY_ROLES = ("evaluation", "launcher")
"""Roles without which a run continues."""


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """State of one worker at one observation."""

    worker: WorkerConfig
    tree: ProcessTree
    usage: Usage
    history: WorkerHistory
    started_at: float | None
    """Start of the oldest running process (Unix seconds); None if none is running."""
    finished: bool
    absence: AbsenceReason | None
    """Why the absence of processes, if any is absent, is no failure."""
    recent_starts: Sequence[float]
    """Recent starts (Unix seconds)."""
    recent_restarts: int
    """Number of recent restarts."""
    trials: int | None
    last_over_age_at: float | None
    """Last time above the age limit (Unix seconds), if remembered."""
    is_added: bool = False
    """Whether it is a command of `trainwarden run` that was started once."""
    near_match: str | None = None
    """The program most similar to the selector, if that may be wrong; "" without a similar one."""

    @property
    def absent(self) -> int:
        """Number of expected processes that do not run; 0 once the worker has finished."""
        lacking = self.worker.expected - count_live_roots(self.tree)
        return 0 if self.finished else max(0, lacking)


_Values = Iterable[tuple[Metric, float | None]]
"""None for unknown or absent values."""


def worker_samples(run: str, seen: WorkerObservation, now: float) -> Iterator[Sample]:
    """Yields the samples of one worker at `now` (Unix seconds)."""
    labels = (run, seen.worker.name, seen.worker.role)
    for values in (
        _current_values(seen),
        _total_values(seen),
        _configured_values(seen.worker),
        _problem_values(seen, now),
    ):
        yield from ((metric, labels, value) for metric, value in values)
    for state, count in count_states(seen.tree.members).items():
        yield STATES, (*labels, state), count
    if seen.absence is not None and seen.absent > 0:
        yield UNCONFIRMED, (*labels, seen.absence.value), seen.absent
    if seen.near_match is not None:
        yield UNMATCHED, (*labels, describe_selector(seen.worker.match), seen.near_match), 1
    for status, count in seen.history.roots.exits.items():
        yield EXITS, (*labels, status), count


def run_samples(run: RunWorkers, seen: Mapping[str, WorkerObservation]) -> Iterator[Sample]:
    """Yields the samples of a whole run; `seen` maps names to workers."""
    yield from ((metric, (run.name,), value) for metric, value in _run_values(run, seen))


def _current_values(seen: WorkerObservation) -> _Values:
    living = [member for member in seen.tree.members if member.alive]
    usage, files = seen.usage, seen.usage.open_files
    per_launch = max(1, seen.worker.expected)
    return (
        (PROCESSES, count_live_roots(seen.tree)),
        (TREE, len(living)),
        (RESIDENT, usage.resident_bytes),
        (PSS, None if usage.pss is None else usage.pss.total),
        (MEMORY, usage.memory_bytes),
        (FILES, None if files is None else files.count),
        (FILES_LIMIT, None if files is None else files.limit),
        (START, seen.started_at),
        (FINISHED, seen.finished),
        (TRIALS, seen.trials),
        (RECENT, len(seen.recent_starts)),
        (PERIOD, restart_loop.median_interval(seen.recent_starts, per_launch=per_launch)),
    )


def _total_values(seen: WorkerObservation) -> _Values:
    roots, transfers = seen.history.roots, seen.history.transfers
    return (
        (CPU, round(seen.history.cpu.seconds, 2)),
        (READ, transfers.moved.read_bytes if transfers.readable else None),
        (WRITTEN, transfers.moved.written_bytes if transfers.readable else None),
        (RESTARTS, roots.restarts),
        (LAST_EXIT, roots.last_exit_code),
        (LAST_EXIT_TIME, roots.last_exit_timestamp),
    )


def _configured_values(worker: WorkerConfig) -> _Values:
    return (
        (EXPECTED, worker.expected),
        (MEMORY_LIMIT, worker.memory_limit),
        (AGE_LIMIT, worker.age_limit),
        (TRIALS_LIMIT, worker.trials_limit),
    )


def _problem_values(seen: WorkerObservation, now: float) -> _Values:
    worker, memory = seen.worker, seen.usage.memory_bytes
    yield MISSING, None if seen.absence is not None else _positive(seen.absent)
    yield RECENT_RESTARTS, _positive(seen.recent_restarts)
    yield EXCESS_RESTARTS, _positive(seen.recent_restarts - worker.expected)
    if worker.memory_limit is not None:
        yield MEMORY_EXCESS, _positive(memory - worker.memory_limit)
    age = None if seen.started_at is None else now - seen.started_at
    if worker.age_limit is not None and age is not None:
        yield AGING, memory if age > worker.age_limit - AGING_SECONDS else None
    if seen.last_over_age_at is not None and now - seen.last_over_age_at <= PROBLEM_HOLD_SECONDS:
        yield AGE_EXCESS, age if seen.last_over_age_at == now else 0


def _run_values(run: RunWorkers, seen: Mapping[str, WorkerObservation]) -> _Values:
    if not run.workers:
        return
    yield (
        NEWEST_START,
        _latest_start(
            seen[one.name]
            for one in run.workers
            # to add a command is no sign of trouble, and a start of the trainer begins the run
            if one.role not in AUXILIARY_ROLES
            and (one in run.trainers or not seen[one.name].is_added)
        ),
    )
    yield ALL_FINISHED, all(one.finished for one in seen.values())
    trainers = [seen[worker.name] for worker in run.trainers]
    if trainers:
        yield TRAINERS, sum(count_live_roots(one.tree) for one in trainers)
        yield TRAINERS_START, _latest_start(trainers)
        yield TRAINERS_FINISHED, all(one.finished for one in trainers)


def _latest_start(seen: Iterable[WorkerObservation]) -> float | None:
    return max((one.started_at for one in seen if one.started_at is not None), default=None)


def _positive(value: float) -> float | None:
    return value if value > 0 else None
