"""Extracts a few series from an untrusted page of metrics.

The official parser takes 11 ms for a page of vLLM and stops at the first invalid line. This one
parses only the required lines, in 0.2 ms, and skips invalid ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_LINE_BYTES = 8192
"""Maximum length of a line in bytes; longer lines are skipped."""

MAX_LINES = 2000
"""Maximum number of lines with one name; others are skipped."""

_LABEL = re.compile(rb'([A-Za-z_]\w*+)\s*+=\s*+"((?:[^"\\]++|\\.)*+)"')
_SAMPLE = re.compile(rb'(?:\{((?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+)\})?+[ \t]++([^\s]++)')
_ESCAPES = {b'\\"': b'"', b"\\\\": b"\\", b"\\n": b"\n"}


class ParsedSample(NamedTuple):
    """A finite value with its labels."""

    labels: Mapping[str, str]
    value: float


class ParsedMetrics:
    """Samples of the required names."""

    def __init__(self, samples: Mapping[str, tuple[ParsedSample, ...]]) -> None:
        self._samples = samples

    def __bool__(self) -> bool:
        return any(self._samples.values())

    def samples(self, *names: str) -> tuple[ParsedSample, ...]:
        """Returns the samples of the first existing name, for a renamed series."""
        return next((found for name in names if (found := self._samples.get(name))), ())

    def sum(self, *names: str, **labels: str) -> float | None:
        """Returns the sum of the samples with `labels`; None without samples."""
        values = [one.value for one in self.samples(*names) if _has_labels(one, labels)]
        return sum(values) if values else None

    def total(self, *names: str) -> float | None:
        """Returns the sum of all samples of all `names`; None without samples."""
        sums = [value for name in names if (value := self.sum(name)) is not None]
        return sum(sums) if sums else None

    def max(self, *names: str, **labels: str) -> float | None:
        """Returns the maximum of the samples with `labels`; None without samples."""
        values = (one.value for one in self.samples(*names) if _has_labels(one, labels))
        return max(values, default=None)

    def sums_by(self, label: str, *names: str) -> dict[str, float]:
        """Returns the sums by the value of `label`; the empty value stands for a missing label."""
        sums: dict[str, float] = {}
        for one in self.samples(*names):
            key = one.labels.get(label, "")
            sums[key] = sums.get(key, 0.0) + one.value
        return sums


def parse_metrics(page: bytes, names: Iterable[str]) -> ParsedMetrics:
    """Returns the samples of `names` in a `page` in the Prometheus text format.

    The last of duplicate series counts; values that are not finite are skipped.
    """
    page = b"\n" + page
    return ParsedMetrics({name: tuple(_samples(page, name)) for name in names})


def _samples(page: bytes, name: str) -> Iterable[ParsedSample]:
    start = b"\n" + name.encode()
    found: dict[bytes, float] = {}
    at, lines = page.find(start), 0
    while at >= 0 and lines < MAX_LINES:
        lines += 1
        begin = at + len(start)
        end = page.find(b"\n", begin)
        end = len(page) if end < 0 else end
        if end - begin <= MAX_LINE_BYTES and page[begin : begin + 1] in (b"{", b" ", b"\t"):
            sample = _SAMPLE.match(page, begin, end)
            value = None if sample is None else _number(sample[2])
            if sample is not None and value is not None:
                found[sample[1] or b""] = value
        at = page.find(start, end)
    return (ParsedSample(_labels(raw), value) for raw, value in found.items())


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _labels(raw: bytes) -> dict[str, str]:
    return {name.decode(): _unescape(value) for name, value in _LABEL.findall(raw)}


def _unescape(value: bytes) -> str:
    if b"\\" in value:
        value = re.sub(rb"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), value)
    return value.decode("utf-8", "replace")


def _has_labels(sample: ParsedSample, labels: Mapping[str, str]) -> bool:
    return all(sample.labels.get(name) == value for name, value in labels.items())
