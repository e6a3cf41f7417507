"""Real series of containers through the shipped rules: GPU, memory and queue.

Each container is a host of its own. Its limits are set as a user would set them after the first
hours; what the record does not hold (the sizes of GPU and host, the number of running requests) is
assumed, and the page names it.
"""

from __future__ import annotations

import csv
import gzip
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bounds import rate_at_most
from results import Result
from verdicts.alertmanager import Alertmanager
from verdicts.box import COLLECTORS
from verdicts.engine import Firing, Group, evaluate, rules_hash, shipped_groups
from verdicts.gpus import Gpu, Gpus
from verdicts.judging import ON_CALL, REMEDIATOR
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
"""Share of the record from which a user sets the limits."""
SPARED, FLOOR = 0.5, 0.25
"""Of the memory that was never used in that time, what a worker may take, and the floor."""
LONGEST_HOLE = 600.0
"""Seconds without a sample after which the record has a hole, which is not replayed."""
CARDS = tuple(size * GIB for size in (16, 24, 32, 40, 48, 80, 96, 141, 192))
HOST = 256 * GIB
BUSY = 5.0
"""Duty cycle, in %, above which a GPU is certainly used."""
TOGETHER = 60
"""Hosts in one Prometheus: rules cost more than hosts."""
_METRIC = re.compile(r"\btrainwarden_\w+|\b\w+:trainwarden_[\w:]+|\binstance:\w+|\bup\b")
Samples = Sequence[tuple[float, float]]


@dataclass
class Container:
    """Its series, each of (seconds since the first sample of all, value), ascending."""

    name: str = ""
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def span(self) -> tuple[float, float]:
        ends = [(one[0][0], one[-1][0]) for one in self.series.values()]
        return min(start for start, _ in ends), max(end for _, end in ends)

    def cut(self, hours: float) -> None:
        """Keeps that much from the beginning of its record."""
        end = self.span[0] + 3600 * hours
        for samples in self.series.values():
            samples[:] = [one for one in samples if one[0] <= end] or samples[:1]

    def idle_until(self, moment: float, seconds: float = 1800.0) -> bool:
        """Whether its GPU was at no time above 5 % in the half hour before `moment`."""
        duty = [v for at, v in self.series.get("duty", ()) if moment - seconds <= at <= moment]
        return bool(duty) and max(duty) <= BUSY

    def shift(self, seconds: float) -> None:
        for samples in self.series.values():
            samples[:] = [(moment + seconds, value) for moment, value in samples]

    @property
    def hours(self) -> float:
        """Of record, without holes."""
        most = max(self.series.values(), key=len)
        steps = (later - one for (one, _), (later, _) in pairwise(most))
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


class Host:
    """What the exporter would show of a container, scrape by scrape."""

    def __init__(self, container: Container) -> None:
        self.container, self.instance = container, container.name
        self.page = Page(EXPORTER, f"{self.instance}:10977")
        self.start, self.end = container.span
        known = {kind: self._learned(samples) for kind, samples in container.series.items()}
        memory = known.get("memory")
        most = 0.0 if memory is None else max(memory)
        limit = None if memory is None else (most + SPARED * (1 - most)) * HOST
        self.floor = None if memory is None else FLOOR * (1 - most) * HOST
        self.worker = Worker(RUN, "worker", "trainer", BASE + self.start - 86_400, limit=limit)
        used = [value for _, value in container.series.get("gpu", ())]
        card = next((card for card in CARDS if card >= max(used)), max(used)) if used else 0.0
        self.gpus = Gpus([Gpu("0", self.worker, total=card)] if used else [])
        self.server = Server(RUN, "gateway", "vllm", None)
        self._at = dict.fromkeys(container.series, 0)

    def _learned(self, samples: Samples) -> list[float]:
        until = self.start + LEARNED * (self.end - self.start)
        return [value for moment, value in samples if moment <= until] or [samples[0][1]]

    def scrape(self, moment: float) -> None:
        values = {kind: self._value(kind, moment) for kind in self.container.series}
        if not self.start <= moment <= self.end or None in values.values():
            self.page.skip()
            return
        now = BASE + moment
        self.page.put("process_start_time_seconds", BASE + self.start - 86_400)
        self.page.put("trainwarden_config_last_reload_successful", 1)
        for collector in COLLECTORS:
            self.page.put("trainwarden_collector_success", 1, collector)
        self._put(values, now, moment)
        self.page.answer()

    def _put(self, values: Mapping[str, float | None], now: float, moment: float) -> None:
        share = values.get("memory")
        if share is not None and self.floor is not None:
            available = (1 - share) * HOST
            self.worker.resident = share * HOST
            self.page.put("trainwarden_memory_effective_available_bytes", available)
            self.page.put("trainwarden_memory_available_floor_bytes", self.floor)
            if available < self.floor:
                self.page.put("trainwarden_memory_shortfall_bytes", self.floor - available)
        queue = values.get("queue")
        if queue is not None:
            self.server.waiting, self.server.running = queue, min(queue, 8.0)
            self.server.tokens += 100
            self.server.probe(moment, now)
            self.server.put(self.page)
            return
        for gpu in self.gpus.devices:
            gpu.utilization = (values.get("duty") or 0.0) / 100
            gpu.used = gpu.held = values.get("gpu") or 0.0
        self.gpus.put(self.page)
        self.worker.put(self.page, now)
        put_run(self.page, [self.worker])

    def _value(self, kind: str, moment: float) -> float | None:
        """The newest sample; None in a hole, and where the series has not begun or is over."""
        samples, at = self.container.series[kind], self._at[kind]
        while at + 1 < len(samples) and samples[at + 1][0] <= moment:
            at += 1
        self._at[kind] = at
        age = moment - samples[at][0]
        return samples[at][1] if 0 <= age <= LONGEST_HOLE else None


def needed(groups: Iterable[Group], series: Iterable[str]) -> tuple[Group, ...]:
    """The groups, less the rules that select none of these series: they would find nothing."""
    known = {name.partition("{")[0] for name in series}
    rules = [(group, rule) for group in groups for rule in group.body["rules"]]
    while True:
        kept = [
            (group, rule) for group, rule in rules if known & set(_METRIC.findall(rule["expr"]))
        ]
        recorded = {rule["record"] for _, rule in kept if "record" in rule}
        if recorded <= known:
            break
        known |= recorded
    chosen: dict[str, tuple[Group, list[Any]]] = {}
    for group, rule in kept:
        chosen.setdefault(group.body["name"], (group, []))[1].append(rule)
    return tuple(
        replace(group, body={**group.body, "rules": rules}) for group, rules in chosen.values()
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What fired on one host, and who hears of it."""

    instance: str
    hours: float
    fired: tuple[Firing, ...]
    paged: tuple[str, ...]
    ordered: tuple[str, ...]
    idle: bool
    """Whether its GPU was in fact idle at the beginning of each TrainingGpuIdle."""


def play(containers: Sequence[Container], promtool: Path) -> tuple[Found, ...]:
    """Each is the only worker of a training; of a server TrainingGpuIdle says nothing."""
    hosts = [Host(one) for one in containers]
    end = max(host.end for host in hosts)
    moment = 0.0
    while moment <= end:
        for host in hosts:
            host.scrape(moment)
        moment += SCRAPE
    series: dict[str, Sequence[Value]] = {}
    for host in hosts:
        series |= host.page.series
    with tempfile.TemporaryDirectory(prefix="traces-") as folder:
        groups = needed(shipped_groups(), series)
        fired = evaluate(promtool, series, end, Path(folder), groups=groups)
    return tuple(_found(host, fired) for host in hosts)


def _found(host: Host, fired: Iterable[Firing]) -> Found:
    own = [
        Firing(one.labels, tuple(at for at in one.moments if host.start <= at <= host.end))
        for one in fired
        if one.labels.get("instance", "").startswith(f"{host.instance}:")
    ]
    own = [one for one in own if one.moments]
    notified = Alertmanager().notifications(own)
    return Found(
        host.instance,
        host.container.hours,
        tuple(own),
        tuple(one.labels["alertname"] for one in notified if one.receiver == ON_CALL),
        tuple(one.labels["remediation"] for one in notified if one.receiver == REMEDIATOR),
        all(
            host.container.idle_until(one.moments[0])
            for one in own
            if one.labels["alertname"] == "TrainingGpuIdle"
        ),
    )


def replay(containers: Sequence[Container], promtool: Path, workers: int) -> Iterator[Found]:
    """All of them, some at a time, as they are done."""
    ordered = sorted(containers, key=lambda one: one.span[1])
    batches = [ordered[at : at + TOGETHER] for at in range(0, len(ordered), TOGETHER)]
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(play, one, promtool) for one in batches]):
            yield from done.result()


def table(found: Sequence[Found]) -> Result:
    """What fired, by alert."""
    days = sum(one.hours for one in found) / 24
    orders = sum(len(one.ordered) for one in found)
    pages = sum(len(one.paged) for one in found)
    rows = []
    names = sorted({(f.labels["alertname"], f.labels["severity"]) for o in found for f in o.fired})
    for name, severity in names:
        hosts = [
            one
            for one in found
            if any(
                (f.labels["alertname"], f.labels["severity"]) == (name, severity) for f in one.fired
            )
        ]
        why = ""
        if name == "TrainingGpuIdle":
            true = sum(one.idle for one in hosts)
            why = f"of {true} the GPU was idle in every sample of the half hour before"
        rows.append((name, severity, str(len(hosts)), why))
    return Result(
        "GPU, memory and queue of containers",
        f"{len(found)} containers, {24 * days:,.0f} h of record: {orders} orders to the remediator "
        f"(with 95 % confidence at most {rate_at_most(orders, days):.2g} a host-day), "
        f"{pages} pages to the on-call, {pages / days:.2g} a host-day (at most "
        f"{rate_at_most(pages, days):.2g}). "
        "The containers serve images: that a GPU waits is normal for them, and true where it is "
        "reported. Assumed, because the record does not hold it: the size of the card (the next "
        "that is sold), a host of 256 GiB; memory limit and floor are set after the first quarter "
        "of the record, at a half and a quarter of what was then free. A queue counts as that of "
        f"one server with eight requests running. Rules, routes and inhibitions `{rules_hash()}`.",
        ("alert", "severity", "containers", ""),
        tuple(rows),
    )
