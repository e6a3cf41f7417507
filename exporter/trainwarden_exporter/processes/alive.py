"""Whether workers live, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden_exporter.processes.matching import Tree, WorkerKey
from trainwarden_exporter.processes.procfs import start_timestamp


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """Whether a worker lives, for those who judge by that."""

    key: WorkerKey
    started: float | None
    """Start of its oldest living process (unix seconds); None while none lives."""
    finished: bool


def living_roots(tree: Tree) -> int:
    """How many processes of a worker live, children not counted."""
    return sum(root.alive for root in tree.roots)


def oldest_start(tree: Tree) -> float | None:
    """When the oldest living process of a worker started (unix seconds); None where none lives."""
    living = (root.identity for root in tree.roots if root.alive)
    return min(map(start_timestamp, living), default=None)
