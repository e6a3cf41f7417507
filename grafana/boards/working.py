"""Panels about the processes of workers that several boards have."""

from __future__ import annotations

from boards import style, why
from boards.panels import COUNT, Graph, Timeline
from boards.queries import Query
from boards.style import words


def worker_states(braces: str, width: int, height: int = 6, of: str = "") -> Timeline:
    return Timeline(
        title="Workers",
        about=(
            "Whether all processes of each worker run. Good: running, without gaps. Missing for "
            "20 s is TrainingWorkerGone, and the worker is started; finished is over by itself."
        ),
        queries=[
            Query(
                f"""
                2 * (trainwarden_worker_finished{braces} == 1)
                or (
                  trainwarden_worker_processes{braces}
                    < bool trainwarden_worker_expected_processes{braces}
                )
                """,
                f"{of}{{{{worker}}}}",
                why.NO_WORKERS,
            )
        ],
        width=width,
        height=height,
        meanings=words(
            ("running", style.GOOD), ("missing", style.CRITICAL), ("finished", style.UNKNOWN)
        ),
    )


def restarts(braces: str, width: int = 8, of: str = "") -> Graph:
    return Graph(
        title="Restarts of workers, in 10 minutes",
        about=(
            "Good: 0; one is healing or a deploy. At the line, two more than it has processes, "
            "TrainingWorkerRestartLoop fires and all restarts of the worker are held."
        ),
        queries=[
            Query(
                f"round(increase(trainwarden_worker_restarts_total{braces}[10m]))",
                f"{of}{{{{worker}}}}",
                why.NO_WORKERS,
            ),
            Query(
                f"min(2 + trainwarden_worker_expected_processes{braces})",
                "loop",
                why.NO_WORKERS,
                limit=True,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=width,
        stepped=True,
    )
