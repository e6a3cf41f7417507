"""Renders metric families as the body of a response in the format that the client accepts."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from trainwarden_exporter.scrape.collector import Family, Metric

_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Suffixes of samples that the text format renders as separate families.
_SPLIT_SUFFIXES = ("_created", "_gsum", "_gcount")
_DIGITS = 6
"""Digits before the decimal point up to which Go formats a number as Python does; above, Go
uses an exponent.
"""
_EXPONENT = 10**_DIGITS

_END = b"# EOF\n"
_COMPRESSION = 1
"""Fastest level: pages are so repetitive that higher levels save little."""

# The version that prometheus_client writes; it would echo any other requested version too.
_VERSIONS = {
    "application/openmetrics-text": ("", "1.0.0"),
    "text/plain": ("", "0.0.4", "1.0.0"),
    "text/*": ("",),
    "*/*": ("",),
}


class RenderedPage(NamedTuple):
    """A rendered page of metrics with its headers."""

    body: bytes
    headers: dict[str, str]


class _Registry:
    """Minimal registry for the encoders of prometheus_client."""

    def __init__(self, *families: AnyFamily) -> None:
        self._families = families

    def collect(self) -> Iterable[AnyFamily]:
        return self._families


def render(
    families: Iterable[AnyFamily], *, accept: str = "", accept_encoding: str = ""
) -> RenderedPage:
    """Renders `families` in the text format or as OpenMetrics, by the client's preference."""
    _, content_type = choose_encoder(best_format(accept))
    body = _encoded(families, content_type)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(accept_encoding):
        body = gzip.compress(body, compresslevel=_COMPRESSION, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return RenderedPage(body, headers)


def _encoded(families: Iterable[AnyFamily], content_type: str) -> bytes:
    """Returns the same bytes as prometheus_client, but renders most of them here.

    prometheus_client validates every name and label of every sample each time, which would dominate
    the cost of a scrape with many workers. Here the format of our own families is computed once per
    metric; other families go through prometheus_client.
    """
    encode, _ = choose_encoder(content_type)
    end = _END if content_type.startswith("application/openmetrics-text") else b""
    parts = list[bytes]()
    known = dict[tuple[str, ...], _Labels]()
    for family in families:
        if (
            isinstance(family, Family)
            and (head := _family_header(content_type, family.metric)) is not None
        ):
            parts += (head, _sample_lines(family, known))
        else:
            parts.append(encode(_Registry(family)).removesuffix(end))
    return b"".join((*parts, end))


@lru_cache(maxsize=1024)
def _family_header(content_type: str, metric: Metric) -> bytes | None:
    """Returns the header lines of a family, cached; None for unusual names."""
    renames = content_type.endswith(("escaping=dots", "escaping=values"))  # plain names only
    names = (metric.name, *metric.labels)
    if (
        renames
        or not all(map(_PLAIN_NAME.fullmatch, names))
        or metric.name.endswith(_SPLIT_SUFFIXES)
    ):
        return None
    encode, _ = choose_encoder(content_type)
    return encode(_Registry(metric.family())).removesuffix(_END)


class _Labels(dict[tuple[str, ...], str]):
    """Rendered labels by their values, cached because most values repeat on a page."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._template, self._in_order = _label_template(names)
        self._quotes = 2 * len(names)

    def __missing__(self, values: tuple[str, ...]) -> str:
        text = self._template % self._in_order(values)
        if "\\" in text or "\n" in text or text.count('"') != self._quotes:
            text = self._template % self._in_order([*map(_escape, values)])
        self[values] = text
        return text


@lru_cache(maxsize=256)
def _label_template(names: tuple[str, ...]) -> tuple[str, Callable[[Sequence[str]], object]]:
    """Returns the template for labels of these names, and a function that orders the values."""
    if not names:
        return "", tuple
    places = sorted(range(len(names)), key=names.__getitem__)
    pairs = ",".join(f'{names[place]}="%s"' for place in places)
    return f"{{{pairs}}}", itemgetter(*places)


def _sample_lines(family: Family, known: dict[tuple[str, ...], _Labels]) -> bytes:
    if not family.rows:
        return b""
    name, names = family.metric.name, family.metric.labels
    labels = known.get(names)
    if labels is None:
        labels = known[names] = _Labels(names)
    lines = [f"{name}{labels[values]} {_number(value)}\n" for values, value in family.rows]
    return "".join(lines).encode()


def _number(value: float) -> str:
    if type(value) is int and -_EXPONENT < value < _EXPONENT:
        return f"{value}.0"
    text = repr(float(value))
    if 0 < text.find(".") <= _DIGITS:
        return text
    written: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return written


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def best_format(accept: str) -> str:
    """Returns the supported item of an Accept header with the highest weight; "" if none."""
    best, best_weight = "", 0.0
    for item in accept.split(","):
        kind, parameters = _parse_item(item)
        weight = _weight(parameters)
        if parameters.get("version", "") in _VERSIONS.get(kind, ()) and weight > best_weight:
            best, best_weight = item.strip(), weight
    return best


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header accepts gzip (RFC 9110, 12.5.3)."""
    weights = {
        coding: _weight(parameters)
        for coding, parameters in map(_parse_item, accept_encoding.lower().split(","))
    }
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _parse_item(item: str) -> tuple[str, dict[str, str]]:
    word, *parameters = (part.strip() for part in item.split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    return word, {key.strip(): value.strip() for key, _, value in pairs}


def _weight(parameters: dict[str, str]) -> float:
    """Returns `q` as defined in RFC 9110; 0 if it is not a number."""
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
