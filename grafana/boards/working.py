"""Panels about the processes of workers on the board of the workers."""

from __future__ import annotations

from boards import style, why
from boards.panels import COUNT, Graph, Timeline
from boards.queries import Query
from boards.style import words


def worker_states() -> Timeline:
    return Timeline(
        title="Workers",
        about=(
            "Whether all processes of each worker run. Good: running, without gaps. Missing for "
            "20 s is TrainingWorkerGone, and the worker is started; finished is a normal end."
        ),
        queries=[
            Query(
                """
                2 * (trainwarden_worker_finished{WORKER} == 1)
                or (
                  trainwarden_worker_processes{WORKER}
                    < bool trainwarden_worker_expected_processes{WORKER}
                )
                """,
                "{{run}} {{worker}}",
                why.NO_WORKERS,
            )
        ],
        width=24,
        height=6,
        meanings=words(
            ("running", style.GOOD), ("missing", style.CRITICAL), ("finished", style.UNKNOWN)
        ),
    )


def restarts() -> Graph:
    return Graph(
        title="Excess worker restarts, in 10 minutes",
        about=(
            "Good: 0, also after healing or a deploy. At the line TrainingWorkerRestartLoop fires "
            "and all restarts of the worker are held."
        ),
        queries=[
            Query(
                "trainwarden_worker_excess_restarts{WORKER}"
                " or 0 * trainwarden_worker_expected_processes{WORKER}",
                "{{run}} {{worker}}",
                why.NO_WORKERS,
            ),
            Query(
                "min(2 + 0 * trainwarden_worker_expected_processes{WORKER})",
                "loop",
                why.NO_WORKERS,
                limit=True,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=12,
        stepped=True,
    )
