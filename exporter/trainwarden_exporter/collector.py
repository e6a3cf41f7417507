"""What a collector is, and how it declares the metrics it exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Family = GaugeMetricFamily | CounterMetricFamily
"""The samples of one metric in one collection; filled with `add_metric(label_values, value)`."""


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
        make = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return make(self.name, self.help, labels=self.labels)


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
