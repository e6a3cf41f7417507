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
            "20 s is TrainingWorkerGone, and the worker is started; finished is a normal end."
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
        title="Excess worker restarts, in 10 minutes",
        about=(
            "Good: 0, also after healing or a deploy. At the line TrainingWorkerRestartLoop fires "
            "and all restarts of the worker are held."
        ),
        queries=[
            Query(
                f"trainwarden_worker_excess_restarts{braces}"
                f" or 0 * trainwarden_worker_expected_processes{braces}",
                f"{of}{{{{worker}}}}",
                why.NO_WORKERS,
            ),
            Query(
                f"min(2 + 0 * trainwarden_worker_expected_processes{braces})",
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
