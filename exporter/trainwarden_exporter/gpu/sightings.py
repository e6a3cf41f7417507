"""What was just collected of the GPUs, as a person thinks of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwarden_exporter.core import Outcome
from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.sightings import Tone, sample_values


@dataclass(frozen=True, slots=True)
class GpuSighting:
    """One GPU. Sizes in bytes; None where it is not known."""

    gpu: str
    uuid: str
    up: bool
    name: str = ""
    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    temperature: float | None = None
    power: float | None = None
    processes: float | None = None
    orphans: float = 0

    @property
    def tone(self) -> Tone:
        return "good" if self.up and not self.orphans else "bad"

    @property
    def state(self) -> str:
        """How it is, in a word or two."""
        if not self.up:
            return "lost"
        return "held by orphans" if self.orphans else "up"


@dataclass(frozen=True, slots=True)
class XidSighting:
    """An error of the driver: its code, how often it came, and when last (unix seconds)."""

    gpu: str
    code: int
    severity: str
    count: float
    last: float


@dataclass(frozen=True, slots=True)
class GpusSighting:
    """The driver and all GPUs; `state` is None where nothing is known of it."""

    state: str | None = None
    expected: float = 0
    gpus: tuple[GpuSighting, ...] = ()
    orphans: tuple[Holder, ...] = ()
    observers: tuple[Holder, ...] = ()
    xids: tuple[XidSighting, ...] = ()

    @property
    def present(self) -> bool:
        """Whether this machine has to do with GPUs at all."""
        return self.state not in (None, "absent") or self.expected > 0 or bool(self.xids)

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong, each in a few words."""
        said = []
        if self.present and self.state in ("failed", "absent"):
            said.append("the GPU driver cannot be used")
        missing = self.expected - sum(1 for gpu in self.gpus if gpu.up)
        if self.state in ("ok", "no_devices") and missing > 0:
            said.append(f"{missing:.0f} of {self.expected:.0f} GPUs missing")
        if self.orphans:
            said.append("GPUs are held by processes of no worker")
        return tuple(said)


def see_gpus(outcomes: Iterable[Outcome]) -> GpusSighting:
    """The GPUs in `outcomes`."""
    outcomes = tuple(outcomes)
    values = sample_values(outcomes)

    def series(name: str) -> Mapping[tuple[str, ...], float]:
        return values.get(f"trainwarden_gpu_{name}", {})

    states = [state for (state,), is_it in series("driver_state").items() if is_it]
    names = {key[:2]: key[2] for key in series("info")}
    gpus = tuple(
        GpuSighting(
            gpu=key[0],
            uuid=key[1],
            up=bool(up),
            name=names.get(key, ""),
            utilization=series("utilization_ratio").get(key),
            memory_used=series("memory_used_bytes").get(key),
            memory_total=series("memory_total_bytes").get(key),
            temperature=series("temperature_celsius").get((*key, "core")),
            power=series("power_watts").get(key),
            processes=series("processes").get(key),
            orphans=series("orphan_holders").get(key, 0),
        )
        for key, up in sorted(series("up").items())
    )
    holders = [note for outcome in outcomes for note in outcome.notes if isinstance(note, Holder)]
    last = series("xid_last_timestamp_seconds")
    return GpusSighting(
        state=states[0] if states else None,
        expected=series("devices_expected").get((), 0),
        gpus=gpus,
        orphans=tuple(holder for holder in holders if not holder.looks_only),
        observers=tuple(holder for holder in holders if holder.looks_only),
        xids=tuple(
            XidSighting(key[0], int(key[2]), key[3], count, last[key])
            for key, count in series("xid_errors_total").items()
            if key in last
        ),
    )
