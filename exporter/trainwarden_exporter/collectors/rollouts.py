"""Collects the exchange between trainer and rollout side of each run: availability and lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.rollouts.policy_versions import PolicyVersionRegistry
from trainwarden_exporter.rollouts.scanner import INTERVAL, RolloutScanner, RolloutSnapshot
from trainwarden_exporter.rollouts.specs import DEFAULT_ROLLOUT, ProgressSource, RolloutSpec
from trainwarden_exporter.rollouts.writer_processes import WriterAccounts
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import rollout_specs
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.scrape.collector import Collector, Family, Metric, MetricTable, Sample
from trainwarden_exporter.step_dirs.filesystem import FileSystem
from trainwarden_exporter.step_dirs.locations import InstanceFinder

BUSY_PHASES = (Phase.SAVING, Phase.EVALUATING, Phase.UPDATING_WEIGHTS, Phase.FINISHED)
"""Phases in which the run does not need a batch yet."""

PhaseSince = tuple[Phase, float]
Values = Mapping[Metric, float | None]

_table = MetricTable("trainwarden_rollout_", "run", "rollout")
_gauge = _table.gauge

LAST_SCAN = _gauge(
    "seen_timestamp_seconds",
    "Last successful scan of the folders; until the first, the time of the first attempt.",
)
FOLDERS = _gauge("folders", "Existing rollout folders.")
STEP = _gauge("step", "Step of the newest complete entry, in the trainer's numbering.")
TIME = _gauge("timestamp_seconds", "Time at which the newest complete entry was completed.")
RANKS = _gauge("ranks", "Ranks whose part of the newest entry exists, complete or not.")
EXPECTED = _gauge("expected_ranks", "Ranks of a complete entry, as configured or learned.")
LAG = _gauge(
    "lag_steps", "Steps by which the newest complete entry is behind the next required one."
)
LAG_LIMIT = _gauge("lag_limit_steps", "Maximum lag, as configured.")
BEHIND = _gauge(
    "behind_since_timestamp_seconds",
    "Time since which the batch that the trainer needs next is missing.",
)
STALENESS = _gauge(
    "staleness_steps", "Steps by which the policy of the rollouts is behind the trainer."
)
STALENESS_LIMIT = _gauge("staleness_limit_steps", "Maximum lag, as configured.")
VERSION = _gauge("policy_version", "Policy version reported by the log.", "side")
WAITING = _gauge(
    "waiting_since_timestamp_seconds",
    "Time since which the trainer reports that it waits for rollouts.",
)
WRITABLE = _gauge(
    "folder_writable",
    "Whether file modes and mount options permit the writing account to write to the folder.",
)


class RolloutsCollector(Collector):
    """Exports the latest scan of each kind of rollout; never accesses a disk itself."""

    name = "rollouts"
    metrics = _table.metrics

    def __init__(
        self,
        runs: Sequence[RunConfig],
        progress: ProgressSource,
        *,
        filesystem: FileSystem | None = None,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._progress = progress
        self._now = now
        self._specs = {run.name: rollout_specs(run) for run in runs}
        on_disk = [
            (spec, spec.layout)
            for specs in self._specs.values()
            for spec in specs
            if spec.layout is not None
        ]
        finders = {spec.location: InstanceFinder(spec.location) for spec, _ in on_disk}
        scanners = {
            spec: RolloutScanner(
                finders[spec.location], layout, ranks=spec.ranks, filesystem=filesystem, now=now
            )
            for spec, layout in on_disk
        }
        self._pollers = BackgroundPollers(
            {spec: _poller(spec, scanner, now) for spec, scanner in scanners.items()}
        )
        self._versions = PolicyVersionRegistry()
        self._writer_accounts = WriterAccounts(runs, root=root)
        self._missing: dict[tuple[str, str], tuple[int, float]] = {}

    def record_line(self, event: LineEvent) -> None:
        """Records policy versions from a log line. Fast and thread-safe."""
        self._versions.record_line(event)

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the scanners of `predecessor` and its recorded versions."""
        self._pollers.take_over_from(predecessor._pollers)
        predecessor._versions.take_over_from(self._versions)
        self._versions = predecessor._versions
        self._missing = predecessor._missing

    def collect(self) -> Iterable[Family]:
        families = self.families(self._samples())
        if not any(family.rows for family in families):
            raise NoData("no rollouts are configured or logged")
        return families

    def _samples(self) -> Iterator[Sample]:
        results = {}
        for spec, poller in self._pollers:
            if (result := poller.result()) is not None:
                results[spec] = result.value
            yield LAST_SCAN, spec.labels, poller.last_known_at
        for run, specs in self._specs.items():
            done, phase = self._progress.step(run), self._progress.phase(run)
            for spec in specs:
                if (seen := results.get(spec)) is None:
                    continue
                for metric, value in self._file_samples(spec, seen, done, phase).items():
                    yield metric, spec.labels, value
            yield from self._log_samples(run, _batch_spec(specs, results), phase)

    def _file_samples(
        self, spec: RolloutSpec, seen: RolloutSnapshot, done: int | None, phase: PhaseSince | None
    ) -> Values:
        """Yields the samples of one kind from its files; the trainer has completed `done` steps."""
        offset = spec.layout.step_offset if spec.layout else 0
        needed = None if done is None else done + (spec.carries == "batches")
        values: dict[Metric, float | None] = {
            FOLDERS: seen.folders,
            RANKS: seen.ranks,
            EXPECTED: seen.expected_ranks,
        }
        if (newest := seen.newest(needed, offset)) is not None:
            values |= {STEP: newest.step(offset), TIME: newest.completed_at}
        if seen.write_target is not None:
            account = self._writer_accounts.account(spec.run, spec.carries)
            values[WRITABLE] = seen.write_target.is_writable_by(account)
        if seen.folders:
            values[LAG_LIMIT] = spec.lag_limit
            if needed is not None:
                step = values.get(STEP)
                values[LAG] = None if step is None else max(0, needed - step)
                there = newest is not None and (step is None or step >= needed)
                values[BEHIND] = None if there else self._missing_since(spec, needed, phase)
        return values

    def _missing_since(
        self, spec: RolloutSpec, needed: int, phase: PhaseSince | None
    ) -> float | None:
        """Returns since when the trainer could use the missing batch of step `needed`."""
        if spec.carries == "weights":
            return None
        step, since = self._missing.get(spec.labels, (None, 0.0))
        if step != needed or (phase is not None and phase[0] in BUSY_PHASES):
            since = self._now()
            self._missing[spec.labels] = (needed, since)
        return since

    def _log_samples(
        self, run: str, batch_spec: RolloutSpec | None, phase: PhaseSince | None
    ) -> Iterator[Sample]:
        """Yields the samples from the logs of `run`, for batches of any transport."""
        labels = (run, DEFAULT_ROLLOUT if batch_spec is None else batch_spec.name)
        if phase is not None and phase[0] is Phase.WAITING_FOR_ROLLOUTS:
            yield WAITING, labels, phase[1]
        versions = self._versions.get(run)
        for side, version in (("trainer", versions.trainer), ("rollout", versions.rollout)):
            if version is not None:
                yield VERSION, (*labels, side), version.value
        if versions.lag is not None and (phase is None or phase[0] is not Phase.FINISHED):
            yield STALENESS, labels, versions.lag
            limit = None if batch_spec is None else batch_spec.staleness_limit
            yield STALENESS_LIMIT, labels, limit


def _batch_spec(
    specs: Sequence[RolloutSpec], results: Mapping[RolloutSpec, RolloutSnapshot]
) -> RolloutSpec | None:
    """Returns the kind that carries batches: the first with files, else the first."""
    batches = [spec for spec in specs if spec.carries == "batches"]
    there = (spec for spec in batches if spec in results and results[spec].folders)
    return next(there, next(iter(batches), None))


def _poller(
    spec: RolloutSpec, scanner: RolloutScanner, now: Callable[[], float]
) -> BackgroundPoller[RolloutSnapshot]:
    return BackgroundPoller(
        f"rollouts {'/'.join(spec.labels)}", scanner, interval=INTERVAL, now=now
    )
