"""What was just collected of the disks, as a person thinks of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden_exporter.core import Outcome
from trainwarden_exporter.sightings import Tone, sample_values


@dataclass(frozen=True, slots=True)
class DiskSighting:
    """One disk. Sizes in bytes, speed in bytes a second; None where it is not known."""

    path: str
    up: bool
    size: float | None = None
    free: float | None = None
    floor: float | None = None
    read_only: bool = False
    speed: float | None = None
    speed_floor: float | None = None

    @property
    def tone(self) -> Tone:
        if not self.up or self.read_only:
            return "bad"
        return "warn" if self.low or self._slow else "good"

    @property
    def state(self) -> str:
        """How it is, in a word or two."""
        if not self.up:
            return "does not answer"
        if self.read_only:
            return "read-only"
        if self.low:
            return "nearly full"
        return "slow" if self._slow else "ok"

    @property
    def low(self) -> bool:
        """Whether less is free than should be."""
        return self.free is not None and self.floor is not None and self.free < self.floor

    @property
    def _slow(self) -> bool:
        known = self.speed is not None and self.speed_floor is not None
        return known and (self.speed or 0) < (self.speed_floor or 0)


def see_disks(outcomes: Iterable[Outcome]) -> tuple[DiskSighting, ...]:
    """The disks in `outcomes`."""
    values = sample_values(outcomes)

    def of(name: str, key: tuple[str, ...]) -> float | None:
        return values.get(f"trainwarden_disk_{name}", {}).get(key)

    return tuple(
        DiskSighting(
            path=key[0],
            up=up == 1,
            size=of("size_bytes", key),
            free=of("free_bytes", key),
            floor=of("free_floor_bytes", key),
            read_only=of("read_only", key) == 1,
            speed=of("probe_bytes_per_second", key),
            speed_floor=of("probe_floor_bytes_per_second", key),
        )
        for key, up in values.get("trainwarden_disk_up", {}).items()
    )
