"""What is wrong with a GPU, apart from all that is well: a healthy box costs a rule nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from trainwarden_exporter.collector import TOLD_AFTERWARDS, Metric
from trainwarden_exporter.gpu import metrics
from trainwarden_exporter.gpu.metrics import Sample
from trainwarden_exporter.gpu.nvmldevice import COMPUTE_MODES, THROTTLE_REASONS

_MODES = frozenset(COMPUTE_MODES.values()) - {"default"}
_HARDWARE = tuple(reason for reason in THROTTLE_REASONS if reason.startswith("hw_"))
"""What slows a GPU down to save it; a power cap and the driver's own limit are no faults."""
_WELL_UNSHARED = _MODES - {"prohibited"}
_TROUBLES: Mapping[tuple[Metric, tuple[str, ...]], str] = {
    (metrics.ORPHANS, ()): "held_by_leftovers",
    (metrics.ECC, ("uncorrected", "volatile")): "memory_errors",
    (metrics.REMAP_FAILED, ()): "row_remap_failed",
    (metrics.REMAP_PENDING, ()): "row_remap_pending",
    (metrics.RETIRED_PENDING, ()): "retired_pages_pending",
    (metrics.UP, ()): "lost",
    **{(metrics.COMPUTE_MODE, (mode,)): mode for mode in _MODES},
    **{(metrics.THROTTLE, (reason,)): reason for reason in _HARDWARE},
}
"""By metric and by the labels that come after those of the GPU."""


class Troubles:
    """Picks the troubles out of all samples, and remembers which there were of late.

    `clock` tells seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[tuple[str, ...], float] = {}

    def samples(self, facts: Iterable[Sample], *, shared: bool) -> Iterator[Sample]:
        """What of `facts`, all samples of one look, is wrong, or was until a short while ago.

        `shared`: whether processes are meant to share a GPU. What was not looked at this time is
        not told, whatever it was before.
        """
        now = self._clock()
        self._last = {key: at for key, at in self._last.items() if now - at <= TOLD_AFTERWARDS}
        for metric, labels, fact in facts:
            trouble = _TROUBLES.get((metric, labels[2:]))
            if trouble is None:
                continue
            value = _wrong(trouble, fact, shared=shared)
            key = (*labels[:2], trouble)
            if value > 0:
                self._last[key] = now
            if key in self._last:
                yield metrics.TROUBLE, key, value


def _wrong(trouble: str, fact: float, *, shared: bool) -> float:
    if trouble == "lost":
        return fact == 0
    return 0 if trouble in _WELL_UNSHARED and not shared else fact
