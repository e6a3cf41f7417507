"""The processes of runs, and the memory, processors and disks that they share."""

from __future__ import annotations

from boards import limits, memory, style, why, workers_life, working
from boards.board import Board
from boards.layout import Row
from boards.panels import BYTES, SECONDS, SHARE, Graph
from boards.queries import Query, gained
from boards.style import rising
from boards.tables import Column, Table
from boards.variables import HOST, INSTANCE, RUN, WORKER
from boards.verdict import ALERT_MARKS, START_MARKS

ONE = "{{run}} {{worker}}"
OF = "{{run}} "
_BY = "max by (run, worker, role, instance)"


def _column(text: str, name: str, empty_when: str = why.NO_WORKERS) -> Query:
    return Query(f"{_BY} ({text})", name, empty_when)


PROCESSES = Row(
    "Workers",
    [
        working.worker_states("{WORKER}", 24, 6, OF),
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
        memory.worker_memory_and_limit("{WORKER}", 12, OF),
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
        memory.box_memory(8, "{{instance}} "),
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
        memory.oom_kills(8),
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
