"""Status page: disks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from trainwarden_exporter.runtime.formatting import format_size
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page.fragments import UNKNOWN, state, table, usage
from trainwarden_exporter.status_page.series import Series, Tone
from trainwarden_exporter.webserver import html

FULL_SHARE = 0.1
"""Share of the minimum of free space below which a disk is full, as in the shipped rules."""


@dataclass(frozen=True, slots=True)
class DiskView:
    """One disk. Sizes in bytes, speed in bytes per second; None where unknown."""

    path: str
    up: bool
    size: float | None = None
    free: float | None = None
    floor: float | None = None
    read_only: bool = False
    speed: float | None = None
    speed_floor: float | None = None
    runs: frozenset[str] = frozenset()
    """The runs that save there."""

    @property
    def tone(self) -> Tone:
        if not self.up or self.read_only or self.full:
            return "bad"
        return "warn" if self.low or self._slow else "good"

    @property
    def state(self) -> str:
        if not self.up:
            return "does not answer"
        if self.read_only:
            return "read-only"
        if self.full:
            return "full"
        if self.low:
            return "nearly full"
        return "slow" if self._slow else "ok"

    @property
    def full(self) -> bool:
        """Whether hardly any space is free: a save would fail."""
        return self.free is not None and self.free < FULL_SHARE * (self.floor or 0)

    @property
    def low(self) -> bool:
        """Whether free space is below the configured minimum."""
        return self.free is not None and self.floor is not None and self.free < self.floor

    @property
    def _slow(self) -> bool:
        known = self.speed is not None and self.speed_floor is not None
        return known and (self.speed or 0) < (self.speed_floor or 0)


def build_disk_views(outcomes: Iterable[Outcome]) -> tuple[DiskView, ...]:
    """Returns the disks in `outcomes`."""
    series = Series(outcomes)
    return tuple(
        DiskView(
            path=key[0],
            up=up == 1,
            size=series.of("disk_size_bytes", *key),
            free=series.of("disk_free_bytes", *key),
            floor=series.of("disk_free_floor_bytes", *key),
            read_only=series.of("disk_read_only", *key) == 1,
            speed=series.of("disk_probe_bytes_per_second", *key),
            speed_floor=series.of("disk_probe_floor_bytes_per_second", *key),
            runs=frozenset(
                run for run, *_, path in series.all("disk_checkpoints_left") if path == key[0]
            ),
        )
        for key, up in series.all("disk_up").items()
    )


def disk_section(disks: Iterable[DiskView]) -> str:
    """Returns the HTML section; empty without disks."""
    rows = table(
        {"Disk": "name", "State": "text", "Free": "memory", "Writes": "number"}, map(_row, disks)
    )
    return html.section("Disks", rows) if rows else ""


def _row(disk: DiskView) -> tuple[str, ...]:
    used = None if disk.free is None or disk.size is None else disk.size - disk.free
    return (
        escape(disk.path),
        state(disk.tone, disk.state),
        usage(disk.free, disk.size, disk.tone if disk.low else "good", used=used),
        UNKNOWN if disk.speed is None else f"{format_size(disk.speed)}/s",
    )
