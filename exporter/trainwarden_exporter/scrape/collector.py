"""Base class of collectors, and declaration of their metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.core import Sample as AnySample

PROBLEM_HOLD_SECONDS = 120.0
"""Seconds for which a series that exists only during a problem stays at 0 after it. Rules that
bridge lost scrapes use the last sample of a minute; a series that simply ended would keep them
firing for that minute."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """Declaration of one metric; rules and dashboards are validated against it.

    `name` is the name as scraped (a counter's ends in `_total`).
    """

    name: str
    type: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        """Returns an empty family of this metric for one collection."""
        return Family(self)


Sample = tuple[Metric, tuple[str, ...], float | None]
"""Metric, label values and value; None if there is no value."""


class MetricTable:
    """Declares metrics whose names start with `prefix` and whose labels start with `labels`."""

    def __init__(self, prefix: str, *labels: str) -> None:
        self._prefix = prefix
        self._labels = labels
        self._declared: list[Metric] = []

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Returns all declared metrics, in order."""
        return tuple(self._declared)

    def gauge(self, name: str, text: str, *more: str) -> Metric:
        """Declares a gauge by the rest of its name, its help text and its other labels."""
        return self._declare("gauge", name, text, more)

    def counter(self, name: str, text: str, *more: str) -> Metric:
        """Declares a counter, like `gauge`."""
        return self._declare("counter", name, text, more)

    def _declare(
        self, kind: Literal["gauge", "counter"], name: str, text: str, more: tuple[str, ...]
    ) -> Metric:
        metric = Metric(f"{self._prefix}{name}", kind, text, (*self._labels, *more))
        self._declared.append(metric)
        return metric


class Family(AnyFamily):
    """Samples of one metric in one collection.

    Compatible with the families of prometheus_client, but stores only label values, in the metric's
    order, and the value, because each scrape creates thousands of samples.
    """

    def __init__(self, metric: Metric) -> None:
        # Skips the base class, which would validate the declared name each time.
        self.metric = metric
        self.name = metric.name.removesuffix("_total") if metric.type == "counter" else metric.name
        self.documentation = metric.help
        self.type = metric.type
        self.unit = ""
        self.rows: list[tuple[tuple[str, ...], float]] = []

    def add_metric(self, labels: Iterable[str], value: float) -> None:
        """Adds a sample with these label values."""
        self.rows.append((tuple(labels), value))

    @property
    def samples(self) -> list[AnySample]:  # type: ignore[override] # made when asked for
        """Returns all samples in the form of prometheus_client."""
        name, labels = self.metric.name, self.metric.labels
        if self.type == "counter":
            name = f"{self.name}_total"
        return [
            AnySample(name, dict(zip(labels, values, strict=False)), value)
            for values, value in self.rows
        ]


def build_families(metrics: Iterable[Metric], samples: Iterable[Sample]) -> Collection[Family]:
    """Returns a family of each metric with its samples; drops samples without a value."""
    families = {metric: metric.family() for metric in metrics}
    for metric, labels, value in samples:
        if value is not None:
            families[metric].add_metric(labels, value)
    return families.values()


class Collector(ABC):
    """Observes one kind of subject.

    `collect` runs in a thread of its own, so it may block; calls never overlap. It raises `NoData`
    if there is nothing to observe; any other exception marks only this collector as failed for this
    scrape.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    artifacts: tuple[object, ...] = ()
    """Details of the last collection for the status page that do not fit into series."""

    @abstractmethod
    def collect(self) -> Iterable[Family]:
        """Returns fresh families of the declared metrics."""

    def families(self, samples: Iterable[Sample]) -> Collection[Family]:
        """Returns a family of each declared metric with its samples, as `build_families`."""
        return build_families(self.metrics, samples)

    def take_over_from(self, predecessor: Self) -> None:  # noqa: B027 - most collectors have no state
        """Takes over the state that must survive a reload (counters, known processes)."""
