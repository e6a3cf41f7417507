"""What a collector is, and how it declares the metrics it exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.core import Sample

TOLD_AFTERWARDS = 120.0
"""Seconds for which what is told only while it is wrong is told as 0 once it is over. Rules that
bridge lost scrapes go by the last sample of a minute; were the series just to end, they would not
know before that is over."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The declaration of one metric: the contract that rules and dashboards are checked against.

    `name` is the name as scraped (a counter's ends in `_total`).
    """

    name: str
    type: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        """An empty family of this metric, for one collection."""
        return Family(self)


class Family(AnyFamily):
    """The samples of one metric in one collection.

    To prometheus_client it is a family like any other, but it keeps no more of a sample than the
    values of its labels, in the order of the metric's, and its own: thousands are made each scrape.
    """

    def __init__(self, metric: Metric) -> None:
        # without the base, which would examine the declared name each time
        self.metric = metric
        self.name = metric.name.removesuffix("_total") if metric.type == "counter" else metric.name
        self.documentation = metric.help
        self.type = metric.type
        self.unit = ""
        self.rows: list[tuple[tuple[str, ...], float]] = []

    def add_metric(self, labels: Iterable[str], value: float) -> None:
        """Add a sample with these values of the labels."""
        self.rows.append((tuple(labels), value))

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override] # made when asked for
        """All of it as prometheus_client has it."""
        name, labels = self.metric.name, self.metric.labels
        if self.type == "counter":
            name = f"{self.name}_total"
        return [
            Sample(name, dict(zip(labels, values, strict=False)), value)
            for values, value in self.rows
        ]


class Collector(ABC):
    """Observes one kind of thing.

    `collect` runs in a thread that belongs to this collector alone, so it may block; it is never
    entered twice at once. It raises `NoData` where there is healthily nothing to see; any other
    exception marks the collector failed for this scrape, and no other collector notices.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    notes: tuple[object, ...] = ()
    """What the last collection saw that a person should, and that is too particular for a series;
    the status page shows those it knows."""

    @abstractmethod
    def collect(self) -> Iterable[Family]:
        """Look once and return fresh families of the declared metrics."""

    def adopt(self, predecessor: Self) -> None:  # noqa: B027 - most collectors have nothing to keep
        """Take over what must outlive a reload (counters, known processes) from `predecessor`."""
