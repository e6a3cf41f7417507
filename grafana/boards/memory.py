"""Panels about memory that several boards have."""

from __future__ import annotations

from boards import why
from boards.panels import BYTES, COUNT, Graph
from boards.queries import Query
from boards.style import rising


def worker_memory_and_limit(braces: str, width: int, of: str = "") -> Graph:
    return Graph(
        title="Memory by worker",
        about=(
            "Memory with all children, without mapped files, and the limit where one is "
            "configured. Good: flat. Over its line a worker is restarted: "
            "TrainingWorkerMemoryOverLimit, which warns from 90 % on."
        ),
        queries=[
            Query(
                f"trainwarden_worker_memory_bytes{braces}",
                f"{of}{{{{worker}}}}",
                why.NO_WORKERS,
            ),
            Query(
                f"trainwarden_worker_memory_limit_bytes{braces}",
                f"{of}{{{{worker}}}} limit",
                why.NO_MEMORY_LIMIT,
                limit=True,
            ),
        ],
        unit=BYTES,
        width=width,
    )


def box_memory(width: int, of: str = "") -> Graph:
    return Graph(
        title="Available host memory",
        about=(
            "The smaller of what the machine and the cgroup still have: in a pod the cgroup "
            "kills. Good: above the line, where TrainingMemoryFloor fires and a worker is "
            "restarted to relieve the host."
        ),
        queries=[
            Query("trainwarden_memory_effective_available_bytes{BOX}", f"{of}available"),
            Query("trainwarden_memory_available_floor_bytes{BOX}", f"{of}floor", limit=True),
        ],
        unit=BYTES,
        width=width,
    )


def oom_kills(width: int) -> Graph:
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
        width=width,
        stepped=True,
        scale=rising(None, 1),
    )
