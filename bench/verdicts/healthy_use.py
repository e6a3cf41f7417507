"""Shapes of runs, and happenings, that are usual in real use and were not thought of at first."""

from __future__ import annotations

from collections.abc import Mapping

from verdicts.box import Happening
from verdicts.faults_parts import leaves
from verdicts.parts import GIB
from verdicts.run import Run

SILENT: Mapping[str, object] = {
    "logged": False,
    "saves": True,
    "save": 90.0,
    "save_every": 3600.0,
    "step": 20.0,
    "inference": False,
    "producer": False,
    "rollout_folder": False,
    "share_of_rollouts": 0.0,
    "update": 0.0,
}
"""It shows nothing but its checkpoints, one an hour."""
LONG_EVALUATION: Mapping[str, object] = {
    "evaluation": 2400.0,
    "evaluate_every": 3300.0,
    "step": 20.0,
    "silence_limit": None,
}


def a_notebook_takes_a_gpu(run: Run) -> Happening:
    """Somebody works beside the run, on one of its GPUs, and leaves again."""
    gpu = run.box.gpus.devices[0]
    gpu.in_use = 1
    yield run.box.rng.uniform(300, 3000)
    gpu.in_use = 0


def ctrl_c(run: Run) -> Happening:
    """Somebody ends the trainer in its terminal, and looks at what it has made."""
    leaves(run, "interrupted")
    yield 0.0


def memory_breathes(run: Run) -> Happening:
    """A sawtooth: what is read ahead grows, and is let go."""
    for worker in run.box.workers:
        worker.resident = 0.5 * (worker.limit or 48 * GIB)
    while True:
        for worker in run.box.workers:
            limit = worker.limit or 48 * GIB
            worker.growth = 0.2 * limit / 400
        yield 400.0
        for worker in run.box.workers:
            worker.growth = 0.0
            worker.resident = min(worker.resident, 0.5 * (worker.limit or 48 * GIB))
