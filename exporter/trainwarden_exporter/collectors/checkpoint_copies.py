"""Collects the copies of checkpoints in a second place: their newest, its proof, what lacks one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.checkpoints.copies import Uncopied, copied_step
from trainwarden_exporter.checkpoints.pollers import make_pollers
from trainwarden_exporter.checkpoints.proofs import ProofSnapshot
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import copy_specs
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

_table = MetricTable("trainwarden_checkpoint_", "run", "checkpoint")
_gauge = _table.gauge

LAST_SCAN = _gauge(
    "copies_seen_timestamp_seconds",
    "Last successful scan of the second place; until the first, the time of the first attempt.",
)
COPIES = _gauge("copies", "Complete checkpoints in the second place.")
DAMAGED = _gauge("copies_damaged", "Damaged checkpoints among the newest in the second place.")
STEP = _gauge("copy_proved_step", "Step of the newest proved copy.")
UNCOPIED = _gauge(
    "uncopied_timestamp_seconds",
    "Time at which the first proved checkpoint without a copy, also of a later one, was completed;"
    " absent if the newest one has a copy.",
)

ProofSource = Callable[[], Iterable[tuple[tuple[str, str], ProofSnapshot]]]
"""Run and kind of checkpoints, and the proofs of the checkpoints themselves."""


class CheckpointCopiesCollector(Collector):
    """Exports the latest scan of each second place; never accesses a disk itself."""

    name = "checkpoint_copies"
    metrics = _table.metrics

    def __init__(
        self,
        runs: Sequence[RunConfig],
        *,
        originals: ProofSource,
        state_folder: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        specs = [spec for run in runs for spec in copy_specs(run)]
        self._originals = originals
        self._uncopied = {spec: Uncopied() for spec in specs}
        self._pollers, self._provers = make_pollers(specs, state_folder, now)

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the scanners of `predecessor` and their state."""
        self._pollers.take_over_from(predecessor._pollers)
        self._provers.take_over_from(predecessor._provers)
        self._uncopied |= {
            spec: one for spec, one in predecessor._uncopied.items() if spec in self._uncopied
        }

    def collect(self) -> Iterable[Family]:
        if not len(self._pollers):
            raise NoData("no copies are configured")
        return self.families(self._samples())

    def _samples(self) -> Iterator[Sample]:
        originals = dict(self._originals())
        scanned = set()
        for spec, poller in self._pollers:
            seen = poller.result()
            yield LAST_SCAN, spec.labels, poller.last_known_at
            if seen is not None:
                scanned.add(spec)
                yield COPIES, spec.labels, seen.value.result.complete_count
        self._provers.start()
        for spec, proofs in self._provers.last_results():
            if spec in scanned:
                yield from self._proof_samples(spec, proofs.value, originals.get(spec.labels))

    def _proof_samples(
        self, spec: CheckpointSpec, copies: ProofSnapshot, originals: ProofSnapshot | None
    ) -> Iterator[Sample]:
        yield DAMAGED, spec.labels, copies.count("damaged")
        if (newest := copies.newest_proved) is not None:
            yield STEP, spec.labels, newest.step
        if originals is not None:
            points = originals.resume_points
            yield UNCOPIED, spec.labels, self._uncopied[spec].update(points, copied_step(copies))
