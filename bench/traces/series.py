"""Real series of containers through the shipped rules: GPU, memory and queue.

Each container is a host of its own. Its memory limit is set as a user would set it after the first
hours; what the record does not hold (the size of the card, the number of running requests) is
assumed, and the page names it.
"""

from __future__ import annotations

import csv
import gzip
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path

from traces.series_rules import Alarm, alarms, passes, that_may_fire
from trainwarden_exporter.host.memory import default_floor
from verdicts.box import COLLECTORS
from verdicts.engine import Firing, evaluate, shipped_groups
from verdicts.gpus import Gpu, Gpus
from verdicts.page import BASE, EXPORTER, SCRAPE, Page, Value
from verdicts.parts import GIB, Worker, put_run
from verdicts.server import Server
from verdicts.shapes import RUN

KINDS: Mapping[str, str] = {
    "duty": "series/*gpu_duty_cycle*",
    "gpu": "series/*gpu_memory_used*",
    "memory": "series/*memory_util*",
    "queue": "series/*queue*",
}
LEARNED = 0.25
"""Share of the record after which a user sets limits,"""
SPARED = 0.5
"""and how much of the memory that was free at all times they leave."""
LONGEST_HOLE = 600.0
"""Seconds without a sample after which the record has a hole, which is not replayed."""
CARDS = tuple(size * GIB for size in (16, 24, 32, 40, 48, 80, 96, 141, 192))
SIZE = 64 * GIB
"""Memory of a container; the record has shares of it, and so have the rules."""
WARM = 86_400.0
"""Age of what runs when the record begins, in seconds."""
TOGETHER = 14
"""Hosts in one Prometheus."""


@dataclass
class Container:
    """Its series, each of (seconds since the first sample of all, value), ascending."""

    name: str = ""
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def span(self) -> tuple[float, float]:
        ends = [(one[0][0], one[-1][0]) for one in self.series.values()]
        return min(start for start, _ in ends), max(end for _, end in ends)

    @property
    def set_up(self) -> float:
        """When its user has seen enough to set limits."""
        start, end = self.span
        return start + LEARNED * (end - start)

    @property
    def limit(self) -> float | None:
        """The memory limit that is then set, as a share of all memory."""
        memory = self.between("memory", self.span[0], self.set_up)
        return min(1.0, max(memory)) * (1 - SPARED) + SPARED if memory else None

    def shift(self, seconds: float) -> None:
        for samples in self.series.values():
            samples[:] = [(moment + seconds, value) for moment, value in samples]

    def at(self, kind: str, moment: float) -> float | None:
        """The newest sample; None in a hole, and where the series has not begun or is over."""
        samples = self.series.get(kind, ())
        before = bisect_right(samples, moment, key=lambda one: one[0]) - 1
        if before < 0 or moment - samples[before][0] > LONGEST_HOLE:
            return None
        return samples[before][1]

    def between(self, kind: str, start: float, end: float) -> list[float]:
        """The values of a series from `start` to `end`."""
        return [value for moment, value in self.series.get(kind, ()) if start <= moment <= end]

    def hours(self, kind: str, since: float = 0.0) -> float:
        """Of record of one kind, without holes."""
        moments = [moment for moment, _ in self.series.get(kind, ()) if moment >= since]
        steps = (later - one for one, later in pairwise(moments))
        return sum(step for step in steps if step <= LONGEST_HOLE) / 3600


def read(folder: Path) -> tuple[Container, ...]:
    """The containers by name; a series without a container is that of a gateway."""
    found: dict[str, Container] = {}
    for kind, pattern in KINDS.items():
        for path in sorted(folder.glob(pattern)):
            with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
                for row in csv.DictReader(file):
                    one = found.setdefault(row.get("container_ip") or "", Container())
                    sample = float(row["timestamp_anon"]), float(row["value"])
                    one.series.setdefault(kind, []).append(sample)
    for one in found.values():
        one.series = {kind: sorted(set(samples)) for kind, samples in one.series.items()}
    first = min((one.span[0] for one in found.values()), default=0.0)
    for number, name in enumerate(sorted(found)):
        found[name].name = f"c{number}"
        found[name].shift(-first)
    return tuple(found[name] for name in sorted(found))


def card(containers: Sequence[Container]) -> float:
    """The memory of their GPUs: all have the smallest that is sold and holds what each used."""
    used = [value for one in containers for _, value in one.series.get("gpu", ())]
    return next((size for size in CARDS if size >= max(used)), max(used)) if used else CARDS[-1]


class Host:
    """What the exporter would show of a container, whose only worker trains."""

    def __init__(self, container: Container, card: float) -> None:
        self.container = container
        self.page = Page(EXPORTER, f"{container.name}:10977")
        self.start, self.end = container.span
        self.worker = Worker(RUN, "worker", "trainer", BASE + self.start)
        if self.start < LONGEST_HOLE:  # nobody saw it begin
            self.worker.started -= WARM
        limit = container.limit
        self.limit = None if limit is None else limit * SIZE
        self.floor = min(SIZE - (self.limit or 0.0), default_floor(int(SIZE)))
        self.gpus = Gpus([Gpu("0", self.worker, total=card)] if "gpu" in container.series else [])
        self.server = Server(RUN, "gateway", "vllm", None)

    def scrapes(self) -> Mapping[str, Sequence[Value]]:
        """Every `SCRAPE` from the first sample of all; what stands still is computed once."""
        moments = {at for samples in self.container.series.values() for at, _ in samples}
        moments |= {at + LONGEST_HOLE + SCRAPE for at in moments} | {self.container.set_up}
        # Of a container of one sample, the scrape after it.
        last = max(int(self.end // SCRAPE), ceil(self.start / SCRAPE))
        ticks = sorted(tick for tick in {ceil(at / SCRAPE) for at in moments} if tick <= last)
        self._rest(ticks[0])
        seen = True
        for tick, following in pairwise([*ticks, last + 1]):
            moment = tick * SCRAPE
            found = {kind: self.container.at(kind, moment) for kind in self.container.series}
            values = {kind: value for kind, value in found.items() if value is not None}
            if not values:
                self._rest(following - tick)
            elif "queue" in values:  # its counter goes on
                for later in range(tick, following):
                    self._put_server(values["queue"], later * SCRAPE)
            else:
                if not seen:
                    self.worker.started = BASE + moment
                self._put(values, moment)
                self.page.hold(following - tick - 1)
            seen = bool(values)
        return self.page.series

    def _rest(self, ticks: int) -> None:
        for _ in range(ticks):
            self.page.skip()

    def _begin(self, moment: float) -> None:
        self.page.put("process_start_time_seconds", BASE + self.start - WARM)
        for collector in COLLECTORS:
            self.page.put("trainwarden_collector_success", 1, collector)
        self.now = BASE + moment

    def _put(self, values: Mapping[str, float], moment: float) -> None:
        self._begin(moment)
        if "memory" in values:
            share = min(1.0, max(0.0, values["memory"]))
            self.worker.resident = share * SIZE
            available = SIZE - self.worker.resident
            self.page.put("trainwarden_memory_effective_available_bytes", available)
            if moment >= self.container.set_up:
                self.worker.limit = self.limit
                self.page.put("trainwarden_memory_available_floor_bytes", self.floor)
                if available < self.floor:
                    self.page.put("trainwarden_memory_shortfall_bytes", self.floor - available)
            self.worker.put(self.page, self.now)
            put_run(self.page, [self.worker])
        if "gpu" in values and "duty" in values:
            for gpu in self.gpus.devices:
                gpu.utilization = values["duty"] / 100
                gpu.used = gpu.held = values["gpu"]
            self.gpus.put(self.page)
        self.page.answer()

    def _put_server(self, queue: float, moment: float) -> None:
        self._begin(moment)
        self.server.waiting, self.server.running = queue, min(queue, 8.0)
        self.server.tokens += 100
        self.server.probe(moment, self.now)
        self.server.put(self.page)
        self.page.answer()


@dataclass(frozen=True, slots=True)
class Found:
    """What fired on one host."""

    container: Container
    alarms: tuple[Alarm, ...]


def play(containers: Sequence[Container], card: float, promtool: Path) -> tuple[Found, ...]:
    """Each alone on its host; of a server TrainingGpuIdle says nothing."""
    series: dict[str, Sequence[Value]] = {}
    for one in containers:
        series |= Host(one, card).scrapes()
    longest = max(map(len, series.values()))
    fired: list[Firing] = []
    with tempfile.TemporaryDirectory(prefix="traces-") as folder:
        for groups, read in passes(that_may_fire(shipped_groups(), series), series):
            fired += evaluate(promtool, read, longest * SCRAPE, Path(folder), groups=groups)
    ends = {one.name: one.span[1] for one in containers}
    by_host = alarms(fired, ends)
    return tuple(Found(one, by_host.get(one.name, ())) for one in containers)


def replay(containers: Sequence[Container], promtool: Path, workers: int) -> Iterator[Found]:
    """All of them, some at a time, as they are done."""
    size = card(containers)
    ordered = sorted(containers, key=lambda one: one.span[1])
    batches = [ordered[at : at + TOGETHER] for at in range(0, len(ordered), TOGETHER)]
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(play, one, size, promtool) for one in batches]):
            yield from done.result()
