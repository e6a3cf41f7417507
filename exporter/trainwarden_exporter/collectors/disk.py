"""Collects the disks of the runs: free space, write access and speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from trainwarden_exporter.disk.config import DiskConfig, ProbeConfig
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.disk.usage import DiskUsage, free_floor, read_disk_usage
from trainwarden_exporter.disk.write_probe import ProbeResults, WriteProbe
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.runtime.background_poller import (
    BackgroundPoller,
    BackgroundPollers,
    TimedResult,
)
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

INTERVAL = 5.0
"""Seconds between two inspections of a disk."""

OVERDUE = 30.0
"""Seconds after which an unfinished inspection means that the disk does not answer."""


class WatchedPath(NamedTuple):
    """A path whose disk is observed. A path `implied` by a run may not exist yet."""

    path: Path
    from_run: bool
    announced: bool = False
    """Whether it is where a command of `trainwarden run` works: it may write nothing there."""


_table = MetricTable("trainwarden_disk_", "path")
_gauge = _table.gauge

UP = _gauge("up", "Whether the disk could be inspected within 30 s.")
SEEN = _gauge("seen_timestamp_seconds", "Last successful inspection of the disk.")
INFO = _gauge("info", "Always 1; labels describe the disk.", "mount_point", "device", "fstype")
SIZE = _gauge("size_bytes", "Size of the file system.")
FREE = _gauge("free_bytes", "Space available to unprivileged users.")
FLOOR = _gauge("free_floor_bytes", "Minimum free space, as configured or derived from the size.")
INODES = _gauge("inodes", "Total inodes; absent for a file system without an inode limit.")
FREE_INODES = _gauge("free_inodes", "Free inodes; absent for a file system without an inode limit.")
READ_ONLY = _gauge("read_only", "Whether the file system is mounted read-only.")
PROBE_SUCCESS = _gauge(
    "probe_success",
    "Whether the last write probe succeeded; absent if the disk has too little free space.",
)
PROBE_LATENCY = _gauge("probe_latency_seconds", "Time to write and sync a new file of 4 KiB.")
PROBE_SPEED = _gauge(
    "probe_bytes_per_second", "Sequential write speed of the last probe, including sync."
)
PROBE_FLOOR = _gauge("probe_floor_bytes_per_second", "Minimum write speed, as configured.")
PROBE_FAILURES = _table.counter("probe_failures_total", "Failed write probes.")
PROBE_TIME = _gauge("probe_timestamp_seconds", "Start of the last write probe.")


@dataclass(frozen=True, slots=True)
class _DiskState:
    """A disk at the time of a scrape; `seen` is the result of the last successful inspection."""

    watched_path: WatchedPath
    up: bool
    seen: TimedResult[DiskUsage] | None

    @property
    def mount_id(self) -> int | None:
        return self._mount.id if self._mount else None

    @property
    def label(self) -> str:
        """The path as configured; the mount point for a disk implied by runs."""
        watched = self.watched_path
        return self._mount.point if self._mount and watched.from_run else str(watched.path)

    @property
    def _mount(self) -> Mount | None:
        return self.seen.value.mount if self.seen else None


class DiskCollector(Collector):
    """Observes each configured disk, and each disk that runs use or work on, once.

    Each path has a thread of its own, and its probe another, so that a dead network mount blocks no
    other disk.
    """

    name = "disk"
    metrics = _table.metrics

    def __init__(
        self,
        disks: Sequence[DiskConfig],
        run_paths: Iterable[Path] = (),
        announced_paths: Iterable[Path] = (),
        *,
        read_usage: Callable[[WatchedPath], DiskUsage] = lambda watched_path: read_disk_usage(
            watched_path.path, or_above=watched_path.from_run
        ),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._disks = {disk.path: disk for disk in disks}
        self._now = now
        watched_paths = [WatchedPath(path, from_run=False) for path in self._disks]
        watched_paths += [
            WatchedPath(path, from_run=True) for path in run_paths if path not in self._disks
        ]
        known = {watched_path.path for watched_path in watched_paths}
        watched_paths += [
            WatchedPath(path, from_run=True, announced=True)
            for path in dict.fromkeys(announced_paths)
            if path not in known
        ]
        self._usage_pollers = BackgroundPollers(
            {
                watched_path: BackgroundPoller(
                    f"disk {watched_path.path}",
                    partial(read_usage, watched_path),
                    interval=INTERVAL,
                    now=now,
                )
                for watched_path in watched_paths
            }
        )
        self._probe_pollers = BackgroundPollers(
            {
                (disk.path, disk.probe): _probe_poller(disk.path, disk.probe, now)
                for disk in disks
                if disk.probe is not None
            }
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the pollers of `predecessor` and its probe counters."""
        self._usage_pollers.take_over_from(predecessor._usage_pollers)
        self._probe_pollers.take_over_from(predecessor._probe_pollers)

    def label(self, mount: Mount) -> str:
        """Returns the label of a mounted disk: its configured path, else its mount point.

        Does not block; thread-safe.
        """
        for watched_path, seen in self._usage_pollers.last_results():
            state = _DiskState(watched_path, up=True, seen=seen)
            if not watched_path.from_run and state.mount_id == mount.id:
                return state.label
        return mount.point

    def collect(self) -> Iterable[Family]:
        if not len(self._usage_pollers):
            raise NoData("no disks are configured, and no run has a path")
        return self.families((*self._usage_samples(), *self._probe_samples()))

    def _usage_samples(self) -> Iterator[Sample]:
        shown, mounts = set[str](), set[int | None]()
        for state in self._disk_states():  # configured disks first
            known = state.mount_id is not None and state.mount_id in mounts
            if state.label in shown or (known and state.watched_path.from_run):
                continue
            if state.watched_path.announced and (not state.seen or state.seen.value.read_only):
                continue  # as an image that is mounted, which is always full
            shown.add(state.label)
            mounts.add(state.mount_id)
            yield UP, (state.label,), state.up
            if state.seen is None:
                continue
            yield SEEN, (state.label,), state.seen.timestamp
            if state.up:
                yield from self._usage_samples_of(state.label, state.watched_path, state.seen.value)

    def _disk_states(self) -> Iterator[_DiskState]:
        for watched_path, poller in self._usage_pollers:
            seen = poller.result()
            late = seen is None or self._now() - seen.timestamp > INTERVAL + OVERDUE
            yield _DiskState(watched_path, poller.failure is None and not late, seen)

    def _usage_samples_of(
        self, path: str, watched_path: WatchedPath, usage: DiskUsage
    ) -> Iterator[Sample]:
        yield SIZE, (path,), usage.size
        yield FREE, (path,), usage.free
        yield FLOOR, (path,), free_floor(self._disks.get(watched_path.path), usage)
        yield INODES, (path,), usage.inodes
        yield FREE_INODES, (path,), usage.free_inodes
        yield READ_ONLY, (path,), usage.read_only
        if (mount := usage.mount) is not None:
            yield INFO, (path, mount.point, mount.device, mount.fstype), 1

    def _probe_samples(self) -> Iterator[Sample]:
        for (path, config), poller in self._probe_pollers:
            labels = (str(path),)
            yield PROBE_FLOOR, labels, config.speed_floor
            # A probe of a slow disk takes long: the scrape does not wait for the first one.
            if (seen := poller.result(timeout=0)) is None:
                continue
            probed = seen.value
            yield PROBE_FAILURES, labels, probed.failures
            yield PROBE_SUCCESS, labels, probed.success
            if probed.success is not None:
                yield PROBE_TIME, labels, seen.timestamp
            if probed.measurement is not None:
                yield PROBE_LATENCY, labels, probed.measurement.latency
                yield PROBE_SPEED, labels, probed.measurement.bytes_per_second


def _probe_poller(
    path: Path, config: ProbeConfig, now: Callable[[], float]
) -> BackgroundPoller[ProbeResults]:
    probe = WriteProbe(path, config.size, now=now)
    return BackgroundPoller(f"probe {path}", probe, interval=config.interval, now=now)
