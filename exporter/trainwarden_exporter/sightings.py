"""What was just collected, as a person thinks of it: workers and a host, not metric families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trainwarden_exporter.core import Outcome

Tone = Literal["good", "warn", "bad", "quiet"]
Values = Mapping[str, Mapping[tuple[str, ...], float]]
"""By the name of a sample, by its label values in declared order."""

NEAR = 0.9
"""Share of a limit from which on it is near; the shipped rules warn there, too."""


@dataclass(frozen=True, slots=True)
class WorkerSighting:
    """One worker. Sizes in bytes, times in seconds; None where it is not known or not set."""

    run: str
    name: str
    role: str
    processes: float
    expected: float
    finished: bool = False
    resident: float | None = None
    memory_limit: float | None = None
    age: float | None = None
    age_limit: float | None = None
    cpu: float | None = None
    restarts: float | None = None

    @property
    def memory_tone(self) -> Tone:
        if self.resident is None or not self.memory_limit:
            return "good"
        share = self.resident / self.memory_limit
        return "bad" if share > 1 else "warn" if share > NEAR else "good"

    @property
    def state(self) -> str:
        """How it is, in a word or two."""
        if self.finished:
            return "finished"
        if self.processes < self.expected:
            return (
                f"{self.expected - self.processes:.0f} missing" if self.processes else "not running"
            )
        if self.memory_tone != "good":
            return "over its limit" if self.memory_tone == "bad" else "near its limit"
        return "old" if self._old else "up"

    @property
    def tone(self) -> Tone:
        if self.finished:
            return "quiet"
        if self.processes < self.expected:
            return "bad"
        return "warn" if self.memory_tone == "good" and self._old else self.memory_tone

    @property
    def _old(self) -> bool:
        return self.age is not None and self.age_limit is not None and self.age > self.age_limit


@dataclass(frozen=True, slots=True)
class HostSighting:
    """The machine, or the container that stands for it. Sizes in bytes; None where not known."""

    total: float | None = None
    available: float | None = None
    floor: float | None = None
    swap_total: float | None = None
    swap_free: float | None = None
    load: float | None = None
    cpus: float | None = None
    oom_kills: float | None = None
    booted: float | None = None

    @property
    def tone(self) -> Tone:
        if self.available is None or self.floor is None:
            return "good"
        return "bad" if self.available < self.floor else "good"


def see_workers(outcomes: Iterable[Outcome], *, now: float) -> tuple[WorkerSighting, ...]:
    """The workers in `outcomes`, in the order of the configuration; `now` is a Unix time."""
    values = sample_values(outcomes)

    def of(name: str, key: tuple[str, ...]) -> float | None:
        return values.get(f"trainwarden_worker_{name}", {}).get(key)

    found = []
    for key, expected in values.get("trainwarden_worker_expected_processes", {}).items():
        start = of("start_timestamp_seconds", key)
        run, worker, role = key
        found.append(
            WorkerSighting(
                run,
                worker,
                role,
                processes=of("processes", key) or 0,
                expected=expected,
                finished=of("finished", key) == 1,
                resident=of("resident_bytes", key),
                memory_limit=of("memory_limit_bytes", key),
                age=None if start is None else max(0, now - start),
                age_limit=of("age_limit_seconds", key),
                cpu=of("cpu_seconds_total", key),
                restarts=of("restarts_total", key),
            )
        )
    return tuple(found)


def see_host(outcomes: Iterable[Outcome]) -> HostSighting:
    """The host in `outcomes`."""
    values = sample_values(outcomes)

    def of(name: str, *key: str) -> float | None:
        return values.get(f"trainwarden_{name}", {}).get(key)

    kills = values.get("trainwarden_memory_oom_kills_total", {})
    return HostSighting(
        total=of("memory_effective_total_bytes"),
        available=of("memory_effective_available_bytes"),
        floor=of("memory_available_floor_bytes"),
        swap_total=of("memory_swap_total_bytes"),
        swap_free=of("memory_swap_free_bytes"),
        load=of("host_load_average", "1m"),
        cpus=of("host_cpus"),
        # A kill in the cgroup is counted by the host as well.
        oom_kills=max(kills.values(), default=None),
        booted=of("host_boot_timestamp_seconds"),
    )


def sample_values(outcomes: Iterable[Outcome]) -> Values:
    """Every sample of `outcomes`."""
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for outcome in outcomes:
        for family in outcome.families:
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return values
