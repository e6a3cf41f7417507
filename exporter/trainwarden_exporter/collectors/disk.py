"""The disks that the runs write to: what is left, whether they may be written to, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.disk.mounts import Mount
from trainwarden_exporter.disk.probe import Probe, Probed
from trainwarden_exporter.disk.space import Space, default_floor, read_space
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.units import Bytes, LocalPath, Seconds
from trainwarden_exporter.watching import Seen, Watch, Watches
from trainwarden_exporter.yamlfile import MisplacedError, Section

INTERVAL = 5.0
"""Seconds between two looks at a disk."""
OVERDUE = 30.0
"""Seconds after which a look that has not come back says that the disk does not answer."""

Sample = tuple[Metric, tuple[str, ...], float | None]


class ProbeConfig(Section):
    """A small file that is written, flushed to the disk and removed, now and then."""

    interval: Annotated[Seconds, Field(ge=1)] = 300
    """Time between two of them."""

    size: Annotated[Bytes, Field(ge=1 << 20, le=1 << 30)] = 16 << 20
    """Bytes to write; nothing is written while twice as much, or 5 % of the disk, is not free."""

    speed_floor: Annotated[Bytes, Field(ge=0)] = 100_000_000
    """Bytes a second under which the disk is slow."""


class DiskConfig(Section):
    path: LocalPath
    """Label `path`: a folder on the disk."""

    free_floor: Annotated[Bytes, Field(ge=0)] | None = None
    """What should stay free; 5 % of the disk, at most 20 GiB, when not given."""

    probe: ProbeConfig | None = None
    """How its speed is measured; it is not when not given. `{}` takes the defaults."""


def check_paths(disks: Sequence[DiskConfig]) -> Sequence[DiskConfig]:
    """Raise MisplacedError where a path is named twice."""
    seen: set[Path] = set()
    for index, disk in enumerate(disks):
        if disk.path in seen:
            raise MisplacedError(f"another disk has the path {disk.path}", index, "path")
        seen.add(disk.path)
    return disks


Disks = Annotated[tuple[DiskConfig, ...], AfterValidator(check_paths)]


class Place(NamedTuple):
    """A path whose disk is watched. One that a run `implies` may not be there yet."""

    path: Path
    implied: bool


def _gauge(name: str, text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_disk_{name}", "gauge", text, ("path", *more))


UP = _gauge("up", "Whether the disk could be looked at, and answered within 30 s.")
SEEN = _gauge("seen_timestamp_seconds", "When the disk was last looked at with success.")
INFO = _gauge("info", "Always 1; its labels say what it is.", "mount_point", "device", "fstype")
SIZE = _gauge("size_bytes", "Size of the file system.")
FREE = _gauge("free_bytes", "What ordinary users may still write.")
FLOOR = _gauge("free_floor_bytes", "What should stay free.")
INODES = _gauge("inodes", "Files it can hold; absent where that has no limit.")
FREE_INODES = _gauge("free_inodes", "Files it can still hold; absent where that has no limit.")
READ_ONLY = _gauge("read_only", "Whether nothing can be written to it, by its mount's options.")
PROBE_SUCCESS = _gauge(
    "probe_success", "Whether the last file could be written; absent where too little was free."
)
PROBE_LATENCY = _gauge("probe_latency_seconds", "Time to have a new file of 4 KiB on the disk.")
PROBE_SPEED = _gauge("probe_bytes_per_second", "Speed of writing the rest, down to the disk.")
PROBE_FLOOR = _gauge("probe_floor_bytes_per_second", "Speed under which it is slow, as configured.")
PROBE_FAILURES = Metric(
    "trainwarden_disk_probe_failures_total",
    "counter",
    "Files that could not be written.",
    ("path",),
)
PROBE_TIME = _gauge("probe_timestamp_seconds", "When the writing of the last file began.")


@dataclass(frozen=True, slots=True)
class _Sight:
    """One disk at the moment of a scrape; `seen` is what the last good look found."""

    place: Place
    up: bool
    seen: Seen[Space] | None

    @property
    def mount_id(self) -> int | None:
        mount = None if self.seen is None else self.seen.value.mount
        return None if mount is None else mount.id

    @property
    def label(self) -> str:
        """The path as configured; of a disk that runs imply, where it is mounted."""
        mount = None if self.seen is None else self.seen.value.mount
        return str(self.place.path) if mount is None or not self.place.implied else mount.point


class DiskCollector(Collector):
    """Sees the disks that are configured, and those the runs lie on, each of these once.

    Each path has a thread of its own, and a probe another one, so that a dead network mount is
    waited for by nobody else.
    """

    name = "disk"
    metrics = (
        UP,
        SEEN,
        INFO,
        SIZE,
        FREE,
        FLOOR,
        INODES,
        FREE_INODES,
        READ_ONLY,
        PROBE_SUCCESS,
        PROBE_LATENCY,
        PROBE_SPEED,
        PROBE_FLOOR,
        PROBE_FAILURES,
        PROBE_TIME,
    )

    def __init__(
        self,
        disks: Sequence[DiskConfig],
        run_paths: Iterable[Path] = (),
        *,
        look: Callable[[Place], Space] = lambda place: read_space(
            place.path, or_above=place.implied
        ),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._disks = {disk.path: disk for disk in disks}
        self._now = now
        places = [Place(path, implied=False) for path in self._disks]
        places += [Place(path, implied=True) for path in run_paths if path not in self._disks]
        self._spaces = Watches(
            {
                place: Watch(f"disk {place.path}", partial(look, place), interval=INTERVAL, now=now)
                for place in places
            }
        )
        self._probes = Watches(
            {
                (disk.path, disk.probe): _probe(disk.path, disk.probe, now)
                for disk in disks
                if disk.probe is not None
            }
        )

    def adopt(self, predecessor: Self) -> None:
        """Go on with the looks of `predecessor`, and with what its probes have counted."""
        self._spaces.adopt(predecessor._spaces)
        self._probes.adopt(predecessor._probes)

    def label(self, mount: Mount) -> str:
        """What the disk is called that is mounted so: as configured, else by where it is mounted.

        Asks no disk and waits for nothing; for any thread.
        """
        for place, seen in self._spaces.last():
            sight = _Sight(place, up=True, seen=seen)
            if not place.implied and sight.mount_id == mount.id:
                return sight.label
        return mount.point

    def collect(self) -> Iterable[Family]:
        if not len(self._spaces):
            raise NoData("no disks are configured, nor runs with a path")
        families = {metric: metric.family() for metric in self.metrics}
        for metric, labels, value in (*self._space_samples(), *self._probe_samples()):
            if value is not None:
                families[metric].add_metric(labels, value)
        return families.values()

    def _space_samples(self) -> Iterator[Sample]:
        shown, mounts = set[str](), set[int | None]()
        for sight in self._sights():  # the configured come first
            known = sight.mount_id is not None and sight.mount_id in mounts
            if sight.label in shown or (known and sight.place.implied):
                continue
            shown.add(sight.label)
            mounts.add(sight.mount_id)
            yield UP, (sight.label,), sight.up
            if sight.seen is None:
                continue
            yield SEEN, (sight.label,), sight.seen.timestamp
            if sight.up:
                yield from self._space(sight.label, sight.place, sight.seen.value)

    def _sights(self) -> Iterator[_Sight]:
        for place, watch in self._spaces:
            seen = watch.seen()
            late = seen is None or self._now() - seen.timestamp > INTERVAL + OVERDUE
            yield _Sight(place, watch.failure is None and not late, seen)

    def _space(self, path: str, place: Place, space: Space) -> Iterator[Sample]:
        disk = self._disks.get(place.path)
        floor = None if disk is None else disk.free_floor
        if floor is None and space.size is not None:
            floor = default_floor(space.size)
        yield SIZE, (path,), space.size
        yield FREE, (path,), space.free
        yield FLOOR, (path,), floor
        yield INODES, (path,), space.inodes
        yield FREE_INODES, (path,), space.free_inodes
        yield READ_ONLY, (path,), space.read_only
        if (mount := space.mount) is not None:
            yield INFO, (path, mount.point, mount.device, mount.fstype), 1

    def _probe_samples(self) -> Iterator[Sample]:
        for (path, config), watch in self._probes:
            labels = (str(path),)
            yield PROBE_FLOOR, labels, config.speed_floor
            # a file of a slow disk takes its time: the scrape does not wait for the first one
            if (seen := watch.seen(patience=0)) is None:
                continue
            probed = seen.value
            yield PROBE_FAILURES, labels, probed.failures
            yield PROBE_SUCCESS, labels, probed.success
            if probed.success is not None:
                yield PROBE_TIME, labels, seen.timestamp
            if probed.measurement is not None:
                yield PROBE_LATENCY, labels, probed.measurement.latency
                yield PROBE_SPEED, labels, probed.measurement.bytes_per_second


def _probe(path: Path, config: ProbeConfig, now: Callable[[], float]) -> Watch[Probed]:
    probe = Probe(path, config.size, now=now)
    return Watch(f"probe {path}", probe, interval=config.interval, now=now)
