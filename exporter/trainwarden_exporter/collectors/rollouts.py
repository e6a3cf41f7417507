"""What passes between trainer and rollout side of each run: what is there, what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.entries.disk import Disk
from trainwarden_exporter.entries.place import Finder
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.rollouts.eye import INTERVAL, RolloutEye, RolloutsSeen
from trainwarden_exporter.rollouts.producers import Producers
from trainwarden_exporter.rollouts.progress import Progress
from trainwarden_exporter.rollouts.specs import FLOW, RolloutSpec, rollout_specs
from trainwarden_exporter.rollouts.versions import VersionBook
from trainwarden_exporter.runs import RunConfig
from trainwarden_exporter.watching import Watch, Watches

BUSY = (Phase.SAVING, Phase.EVALUATING, Phase.UPDATING_WEIGHTS, Phase.FINISHED)
"""While a run does this, it needs no batch yet."""

Doing = tuple[Phase, float]
Values = Mapping[Metric, float | None]
Sample = tuple[Metric, tuple[str, ...], float | None]


def _metric(name: str, text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_rollout_{name}", "gauge", text, ("run", "rollout", *more))


SEEN = _metric(
    "seen_timestamp_seconds",
    "When the folders were last looked at; while they never could be, since when that is tried.",
)
FOLDERS = _metric("folders", "Folders that were found where rollouts should lie.")
STEP = _metric("step", "Step of the newest complete entry, in the trainer's counting.")
TIME = _metric("timestamp_seconds", "When the newest complete entry became so.")
RANKS = _metric("ranks", "Ranks whose share of the newest entry is there, complete or not.")
EXPECTED = _metric("expected_ranks", "Ranks that a complete entry has, as configured or learned.")
BEGUN_STEP = _metric(
    "incomplete_step", "Step of the incomplete one newer than the newest complete."
)
BEGUN_TIME = _metric("incomplete_timestamp_seconds", "When that one was begun.")
USUAL = _metric(
    "interval_seconds", "How often one is to be expected, as configured, else the median seen."
)
LAG = _metric("lag_steps", "Steps that the newest complete entry is behind what is needed next.")
LAG_LIMIT = _metric("lag_limit_steps", "Steps that it may be behind.")
BEHIND = _metric(
    "behind_timestamp_seconds", "Since when the batch that the trainer needs next is not there."
)
STALENESS = _metric("staleness_steps", "Steps that the policy of the rollouts is behind.")
STALENESS_LIMIT = _metric("staleness_limit_steps", "Steps that it may be behind.")
VERSION = _metric("policy_version", "Version of the policy, by the log.", "side")
VERSION_TIME = _metric("policy_version_timestamp_seconds", "When the log told so last.", "side")
WAITING = _metric("waiting_timestamp_seconds", "Since when the trainer waits, as it says itself.")
WRITABLE = _metric(
    "folder_writable", "Whether modes and mount let the account that writes there do so."
)


class RolloutsCollector(Collector):
    """Shows what one watch for each kind of rollout has seen last; it never asks a disk."""

    name = "rollouts"
    metrics = (
        SEEN,
        FOLDERS,
        STEP,
        TIME,
        RANKS,
        EXPECTED,
        BEGUN_STEP,
        BEGUN_TIME,
        USUAL,
        LAG,
        LAG_LIMIT,
        BEHIND,
        STALENESS,
        STALENESS_LIMIT,
        VERSION,
        VERSION_TIME,
        WAITING,
        WRITABLE,
    )

    def __init__(
        self,
        runs: Sequence[RunConfig],
        progress: Progress,
        *,
        disk: Disk | None = None,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`progress` knows how far the runs are."""
        self._progress = progress
        self._now = now
        self._specs = {run.name: rollout_specs(run) for run in runs}
        on_disk = [
            (spec, spec.layout)
            for specs in self._specs.values()
            for spec in specs
            if spec.layout is not None
        ]
        finders = {spec.place: Finder(spec.place) for spec, _ in on_disk}
        self._watches = Watches(
            {
                spec: _watch(
                    spec,
                    RolloutEye(finders[spec.place], layout, ranks=spec.ranks, disk=disk, now=now),
                    now,
                )
                for spec, layout in on_disk
            }
        )
        self._versions = VersionBook()
        self._producers = Producers(runs, root=root)
        self._missing: dict[tuple[str, str], tuple[int, float]] = {}

    def note_line(self, event: LineEvent) -> None:
        """Take into account what a log line tells of versions; quick, and for any thread."""
        self._versions.note_line(event)

    def adopt(self, predecessor: Self) -> None:
        """Go on with the watches of `predecessor`, and with what it was told and still is."""
        self._watches.adopt(predecessor._watches)
        predecessor._versions.learn(self._versions)
        self._versions = predecessor._versions
        self._missing = predecessor._missing

    def collect(self) -> Iterable[Family]:
        families = {metric: metric.family() for metric in self.metrics}
        empty = not len(self._watches)
        for metric, labels, value in self._samples():
            if value is not None:
                families[metric].add_metric(labels, value)
                empty = False
        if empty:
            raise NoData("no rollouts are configured, and no log speaks of any")
        return families.values()

    def _samples(self) -> Iterator[Sample]:
        sights = {}
        for spec, watch in self._watches:
            if (sight := watch.seen()) is not None:
                sights[spec] = sight.value
            yield SEEN, spec.labels, watch.known
        for run, specs in self._specs.items():
            done, phase = self._progress.step(run), self._progress.phase(run)
            for spec in specs:
                if (seen := sights.get(spec)) is None:
                    continue
                for metric, value in self._by_files(spec, seen, done, phase).items():
                    yield metric, spec.labels, value
            yield from self._by_log(run, _flow(specs, sights), phase)

    def _by_files(
        self, spec: RolloutSpec, seen: RolloutsSeen, done: int | None, phase: Doing | None
    ) -> Values:
        """What the files of one kind tell, where the trainer has `done` so many steps."""
        offset = spec.layout.step_offset if spec.layout else 0
        needed = None if done is None else done + (spec.carries == "batches")
        values: dict[Metric, float | None] = {
            FOLDERS: seen.folders,
            RANKS: seen.ranks,
            EXPECTED: seen.expected_ranks,
            USUAL: spec.interval or seen.interval,
        }
        if (newest := seen.newest(needed, offset)) is not None:
            values |= {STEP: newest.step(offset), TIME: newest.completed}
        if (begun := seen.reading.begun) is not None:
            since = begun.began(after=0.0 if newest is None else newest.completed)
            values |= {BEGUN_STEP: begun.step(offset), BEGUN_TIME: since}
        if seen.folder is not None:
            account = self._producers.account(spec.run, spec.carries)
            values[WRITABLE] = seen.folder.admits(account)
        if seen.folders:
            values[LAG_LIMIT] = spec.lag_limit
            if needed is not None:
                step = values.get(STEP)
                values[LAG] = None if step is None else max(0, needed - step)
                there = newest is not None and (step is None or step >= needed)
                values[BEHIND] = None if there else self._since(spec, needed, phase)
        return values

    def _since(self, spec: RolloutSpec, needed: int, phase: Doing | None) -> float | None:
        """Since when the trainer is free to use the batch of step `needed`, which is missing."""
        if spec.carries == "weights":
            return None
        step, since = self._missing.get(spec.labels, (None, 0.0))
        if step != needed or (phase is not None and phase[0] in BUSY):
            since = self._now()
            self._missing[spec.labels] = (needed, since)
        return since

    def _by_log(self, run: str, flow: RolloutSpec | None, phase: Doing | None) -> Iterator[Sample]:
        """What the logs of `run` tell of its batches, whichever way they come."""
        labels = (run, FLOW if flow is None else flow.name)
        if phase is not None and phase[0] is Phase.WAITING_FOR_ROLLOUTS:
            yield WAITING, labels, phase[1]
        versions = self._versions.of(run)
        for side, said in (("trainer", versions.trainer), ("rollout", versions.rollout)):
            if said is not None:
                yield VERSION, (*labels, side), said.value
                yield VERSION_TIME, (*labels, side), said.timestamp
        if versions.apart is not None and (phase is None or phase[0] is not Phase.FINISHED):
            yield STALENESS, labels, versions.apart
            yield STALENESS_LIMIT, labels, None if flow is None else flow.staleness_limit


def _flow(
    specs: Sequence[RolloutSpec], sights: Mapping[RolloutSpec, RolloutsSeen]
) -> RolloutSpec | None:
    """The kind by which batches come: the first of which there are files, else the first."""
    batches = [spec for spec in specs if spec.carries == "batches"]
    there = (spec for spec in batches if spec in sights and sights[spec].folders)
    return next(there, next(iter(batches), None))


def _watch(spec: RolloutSpec, eye: RolloutEye, now: Callable[[], float]) -> Watch[RolloutsSeen]:
    return Watch(f"rollouts {'/'.join(spec.labels)}", eye, interval=INTERVAL, now=now)
