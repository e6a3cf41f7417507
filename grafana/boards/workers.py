"""The processes of runs, and the memory, processors and disks that they share."""

from __future__ import annotations

from boards import limits, style, why, workers_life, working
from boards.board import Board
from boards.layout import Row
from boards.panels import BYTES, COUNT, SECONDS, SHARE, Graph
from boards.queries import Query, gained
from boards.style import rising
from boards.tables import Column, Table
from boards.variables import HOST, INSTANCE, RUN, WORKER
from boards.verdict import ALERT_MARKS, START_MARKS


def worker_memory_and_limit() -> Graph:
    return Graph(
        title="Memory by worker",
        about=(
            "Memory with all children, without mapped files, and the limit where one is "
            "configured. Good: flat. Over its line a worker is restarted: "
            "TrainingWorkerMemoryOverLimit, which warns from 90 % on."
        ),
        queries=[
            Query(
                "trainwarden_worker_memory_bytes{WORKER}",
                "{{run}} {{worker}}",
                why.NO_WORKERS,
            ),
            Query(
                "trainwarden_worker_memory_limit_bytes{WORKER}",
                "{{run}} {{worker}} limit",
                why.NO_MEMORY_LIMIT,
                limit=True,
            ),
        ],
        unit=BYTES,
        width=12,
    )


def box_memory() -> Graph:
    return Graph(
        title="Available host memory",
        about=(
            "The smaller of what the machine and the cgroup still have: in a pod the cgroup "
            "kills. Good: above the line, where TrainingMemoryFloor fires and a worker is "
            "restarted to relieve the host."
        ),
        queries=[
            Query("trainwarden_memory_effective_available_bytes{BOX}", "{{instance}} available"),
            Query(
                "trainwarden_memory_available_floor_bytes{BOX}", "{{instance}} floor", limit=True
            ),
        ],
        unit=BYTES,
        width=8,
    )


def oom_kills() -> Graph:
    return Graph(
        title="OOM kills, in 10 minutes",
        about=(
            "By the kernel, in the machine or the cgroup, and those of a container by the engine's "
            "word. Good: 0; each is a TrainingOomKill, or a TrainingContainerOom."
        ),
        queries=[
            Query(
                "sum by (scope) (increase(trainwarden_memory_oom_kills_total{BOX}[10m]))",
                "{{scope}}",
            ),
            Query(
                "sum by (container) (increase(trainwarden_container_oom_kills_total{BOX}[10m]))",
                "container {{container}}",
                why.NO_CONTAINERS,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=8,
        stepped=True,
        scale=rising(None, 1),
    )


ONE = "{{run}} {{worker}}"
_BY = "max by (run, worker, role, instance)"


def _column(text: str, name: str, empty_when: str = why.NO_WORKERS) -> Query:
    return Query(f"{_BY} ({text})", name, empty_when)


PROCESSES = Row(
    "Workers",
    [
        working.worker_states(),
        Table(
            title="Workers now",
            about=(
                "Good: as many processes as expected, well under the memory limit, and no exit "
                "that you did not ask for. 128 + n is an end by signal n: 137 is SIGKILL."
            ),
            queries=[
                _column("trainwarden_worker_processes{WORKER}", "processes"),
                _column("trainwarden_worker_expected_processes{WORKER}", "of"),
                _column("trainwarden_worker_memory_bytes{WORKER}", "memory"),
                _column(
                    "trainwarden_worker_memory_bytes{WORKER}"
                    " / trainwarden_worker_memory_limit_bytes{WORKER}",
                    "of limit",
                    why.NO_MEMORY_LIMIT,
                ),
                _column("time() - trainwarden_worker_start_timestamp_seconds{WORKER}", "age"),
                _column(
                    "trainwarden_worker_age_limit_seconds{WORKER}",
                    "age limit",
                    why.NO_AGE_LIMIT,
                ),
                _column("trainwarden_worker_trials{WORKER}", "trials", why.NO_TRIALS_LIMIT),
                _column(
                    "trainwarden_worker_trials_limit{WORKER}", "trials limit", why.NO_TRIALS_LIMIT
                ),
                _column(gained("trainwarden_worker_restarts_total{WORKER}"), "restarts"),
                _column(
                    "trainwarden_worker_last_exit_code{WORKER}",
                    "last exit",
                    why.NO_END_YET,
                ),
                _column(
                    "1000 * trainwarden_worker_last_exit_timestamp_seconds{WORKER}",
                    "ended",
                    why.NO_END_YET,
                ),
            ],
            width=24,
            columns=[
                Column(name="run"),
                Column(name="worker"),
                Column(name="role"),
                Column(name="processes"),
                Column(name="of", title="expected"),
                Column(name="memory", unit=BYTES, decimals=1),
                Column(
                    name="of limit",
                    unit=SHARE,
                    decimals=0,
                    scale=rising(limits.NEAR_MEMORY.value, limits.OVER_MEMORY.value),
                ),
                Column(name="age", unit=SECONDS, decimals=0),
                Column(name="age limit", unit=SECONDS),
                Column(name="trials", decimals=0),
                Column(name="trials limit", decimals=0),
                Column(name="restarts", decimals=0),
                Column(name="last exit", scale=style.Scale(style.GOOD, ((1, style.CRITICAL),))),
                Column(name="ended", unit="dateTimeFromNow"),
                Column(name="instance"),
            ],
        ),
    ],
)

MEMORY = Row(
    "Memory",
    [
        worker_memory_and_limit(),
        Graph(
            title="Growth, in bytes per hour",
            about=(
                "By the slope of ten minutes, of a worker near its age limit or past it by that of "
                "half an hour. Good: around 0. Steady growth is a leak: "
                "TrainingWorkerLeak looks at an hour of it, TrainingWorkerOldAndGrowing at the "
                "last half hour of a worker past its age limit."
            ),
            queries=[
                Query(
                    "3600 * (deriv(trainwarden_worker_aging_memory_bytes{WORKER}[30m])"
                    " or deriv(trainwarden_worker_memory_bytes{WORKER}[10m]))",
                    ONE,
                    why.NO_WORKERS,
                )
            ],
            unit=BYTES,
            width=12,
        ),
        box_memory(),
        Graph(
            title="Memory pressure",
            about=(
                "Share of the time in which some, or all, tasks waited for memory. Good: 0. It "
                "rises before the kernel kills."
            ),
            queries=[
                Query(
                    "rate(trainwarden_memory_pressure_stalled_seconds_total{BOX}[$__rate_interval])",
                    "{{instance}} {{scope}} {{kind}}",
                    why.NO_PRESSURE,
                )
            ],
            unit=SHARE,
        ),
        oom_kills(),
    ],
)

BOARD = Board(
    uid="trainwarden-workers",
    title="Workers and memory",
    about="Do all workers run, and who takes the memory, the processors and the disks?",
    variables=[INSTANCE, HOST, RUN, WORKER],
    marks=[ALERT_MARKS, START_MARKS],
    rows=[PROCESSES, MEMORY, workers_life.LIFE, workers_life.CONTAINERS],
)
