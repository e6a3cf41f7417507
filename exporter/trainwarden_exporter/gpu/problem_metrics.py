"""Samples of the metric `problem`, derived from the other samples of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from trainwarden_exporter.gpu import metrics
from trainwarden_exporter.gpu.nvml_device import COMPUTE_MODES, THROTTLE_REASONS
from trainwarden_exporter.scrape.collector import PROBLEM_HOLD_SECONDS, Metric

_NON_DEFAULT_MODES = frozenset(COMPUTE_MODES.values()) - {"default"}
_EXCLUSIVE_MODES = _NON_DEFAULT_MODES - {"prohibited"}
# They protect the GPU; a power cap or the driver's own limit is not a problem.
_HARDWARE_THROTTLES = tuple(reason for reason in THROTTLE_REASONS if reason.startswith("hw_"))

_PROBLEMS: Mapping[tuple[Metric, tuple[str, ...]], str] = {
    (metrics.ORPHANS, ()): "held_by_leftovers",
    (metrics.ECC, ("uncorrected", "volatile")): "memory_errors",
    (metrics.REMAP_FAILED, ()): "row_remap_failed",
    (metrics.REMAP_PENDING, ()): "row_remap_pending",
    (metrics.RETIRED_PENDING, ()): "retired_pages_pending",
    (metrics.UP, ()): "lost",
    **{(metrics.COMPUTE_MODE, (mode,)): mode for mode in _NON_DEFAULT_MODES},
    **{(metrics.THROTTLE, (reason,)): reason for reason in _HARDWARE_THROTTLES},
}
"""Problem by metric and by the labels after those of the GPU."""


class GpuProblems:
    """Derives problem samples from all samples, and remembers recent problems."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, ...], float] = {}

    def samples(self, facts: Iterable[metrics.Sample], *, shared: bool) -> Iterator[metrics.Sample]:
        """Yields the problems in `facts`, the samples of one collection, and recently ended ones.

        `shared` is whether processes may share a GPU. A problem whose metric is missing from
        `facts` is omitted, even if it was recent.
        """
        now = self._clock()
        self._last = {key: at for key, at in self._last.items() if now - at <= PROBLEM_HOLD_SECONDS}
        for metric, labels, fact in facts:
            problem = _PROBLEMS.get((metric, labels[2:]))
            if problem is None:
                continue
            value = _problem_value(problem, fact, shared=shared)
            key = (*labels[:2], problem)
            if value > 0:
                self._last[key] = now
            if key in self._last:
                yield metrics.PROBLEM, key, value


def _problem_value(problem: str, fact: float, *, shared: bool) -> float:
    if problem == "lost":
        return fact == 0
    return 0 if problem in _EXCLUSIVE_MODES and not shared else fact
