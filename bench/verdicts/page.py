"""The exporter's page as the model writes it: held to what the two programs declare.

A metric nobody declares, or one given another number of labels, ends the bench: a model that speaks
of what is never exported would judge rules by a world that does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from trainwarden_exporter.app import declared_metrics
from trainwarden_remediator.telemetry.metrics import METRICS as REMEDIATOR_METRICS

SCRAPE = 5.0
"""Seconds between two scrapes and two evaluations, as shipped; tests hold it to prometheus.yml."""

BASE = 1_000_000.0
"""What the clocks of the model say at the first scrape; promtool's begins at nought."""

STALE = "stale"
GAP = "_"
Value = float | str
"""A sample, `STALE` where a scrape no longer had the series, `GAP` without a scrape."""

EXPORTER = "trainwarden-exporter"
REMEDIATOR = "trainwarden-remediator"
LABELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    EXPORTER: {metric.name: metric.labels for metric in declared_metrics()} | {"up": ()},
    REMEDIATOR: {metric.name: metric.labels for metric in REMEDIATOR_METRICS} | {"up": ()},
}


class UndeclaredError(Exception):
    """The model exports what the programs do not."""


class Page:
    """What one target answers, scrape by scrape."""

    def __init__(self, job: str, instance: str) -> None:
        self._labels = LABELS[job]
        self._target = f'instance="{instance}",job="{job}"'
        self._names: dict[tuple[str, ...], str] = {}
        self._values: dict[str, float] = {}
        self.series: dict[str, list[Value]] = {}
        self.length = 0

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """Adds a sample to the current scrape; a `value` of None adds none.

        `labels` are the values of the declared labels, in their order. Raises UndeclaredError.
        """
        if value is None:
            return
        series = self._names.get((name, *labels)) or self._name(name, labels)
        if name.endswith("_timestamp_seconds") or name == "process_start_time_seconds":
            value -= BASE
        self._values[series] = value

    def _name(self, name: str, labels: tuple[str, ...]) -> str:
        declared = self._labels.get(name)
        if declared is None or len(declared) != len(labels):
            raise UndeclaredError(f"{name}{labels} is not declared, its labels are {declared}")
        own = "".join(
            f',{label}="{value}"' for label, value in zip(declared, labels, strict=True) if value
        )
        series = self._names[(name, *labels)] = f"{name}{{{self._target}{own}}}"
        return series

    def answer(self) -> None:
        """The scrape went well: all that was put is what there is."""
        self._names.setdefault(("up",), f"up{{{self._target}}}")
        self._take(self._values | {self._names["up",]: 1.0})

    def fail(self) -> None:
        """The scrape failed: `up` says so, and all else is gone."""
        self._names.setdefault(("up",), f"up{{{self._target}}}")
        self._take({self._names["up",]: 0.0})

    def hold(self, times: int) -> None:
        """The last scrape, so many times again."""
        for samples in self.series.values():
            samples.extend(samples[-1:] * times)
        self.length += times

    def skip(self) -> None:
        """Records a missed scrape."""
        self._values = {}
        for samples in self.series.values():
            samples.append(GAP)
        self.length += 1

    def _take(self, values: Mapping[str, float]) -> None:
        for series in values.keys() - self.series.keys():
            self.series[series] = [GAP] * self.length
        for series, samples in self.series.items():
            samples.append(values.get(series, STALE))
        self._values = {}
        self.length += 1


def packed(samples: Sequence[Value]) -> str:
    """`samples` in promtool's words, with what repeats or goes on evenly in short."""
    return " ".join(_words(samples))


def _is_finite(value: Value) -> TypeGuard[float]:
    return not isinstance(value, str) and math.isfinite(value)


def _words(samples: Sequence[Value]) -> Iterator[str]:
    at, before = 0, GAP
    while at < len(samples):
        first = samples[at]
        end = at + 1
        if isinstance(first, str):
            while end < len(samples) and samples[end] == first:
                end += 1
            blank = end - at
            if first == STALE and before != STALE:
                yield STALE
                blank -= 1
            if blank:
                yield f"_x{blank}"
            before = first if first == STALE else before
            at = end
            continue
        before = ""
        if not math.isfinite(first):  # promtool has no notation for several of them
            yield f"{first:+}".replace("+inf", "Inf").replace("-inf", "-Inf")
            at = end
            continue
        following = samples[end] if end < len(samples) else STALE
        step = following - first if _is_finite(following) else 0.0
        value = first
        while end < len(samples):
            following = samples[end]
            if not _is_finite(following) or abs(following - value - step) > 1e-6:  # noqa: PLR2004 - rounding
                break
            value, end = following, end + 1
        repeats = end - at - 1
        if repeats == 0:
            yield f"{first:.12g}"
        else:
            yield f"{first:.12g}{'-' if step < 0 else '+'}{abs(step):.12g}x{repeats}"
        at = end
