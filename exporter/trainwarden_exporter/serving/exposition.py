"""Turns metric families into the bytes of an answer, in the format the client asks for."""

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

from trainwarden_exporter.collector import Family, Metric

_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_APART = ("_created", "_gsum", "_gcount")  # samples that the text format shows as other families
_DIGITS = 6
"""Before the point, up to which Go writes a number as Python does: from then on by an exponent."""
_EXPONENT = 10**_DIGITS

_END = b"# EOF\n"
_COMPRESSION = 1
"""The highest speed: a page is so repetitive that more work makes it little smaller."""

# What prometheus_client writes. It would promise any other version that it is asked for, too.
_VERSIONS = {
    "application/openmetrics-text": ("", "1.0.0"),
    "text/plain": ("", "0.0.4", "1.0.0"),
    "text/*": ("",),
    "*/*": ("",),
}


class Rendered(NamedTuple):
    """A page of metrics as it goes over the wire."""

    body: bytes
    headers: dict[str, str]


class _Page:
    """What an encoder of prometheus_client takes for a registry."""

    def __init__(self, *families: AnyFamily) -> None:
        self._families = families

    def collect(self) -> Iterable[AnyFamily]:
        return self._families


def render(
    families: Iterable[AnyFamily], *, accept: str = "", accept_encoding: str = ""
) -> Rendered:
    """`families` in the text format or as OpenMetrics, whichever the client likes better."""
    _, content_type = choose_encoder(best_format(accept))
    body = _encoded(families, content_type)
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(accept_encoding):
        body = gzip.compress(body, compresslevel=_COMPRESSION, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Rendered(body, headers)


def _encoded(families: Iterable[AnyFamily], content_type: str) -> bytes:
    """What prometheus_client makes of `families`, to the byte, but most of it written here.

    It examines every name and label of every sample anew, letter by letter for OpenMetrics: most of
    what a scrape of many workers would cost. What the samples of families of ours look like is
    settled once for each metric; all others are left to it.
    """
    encode, _ = choose_encoder(content_type)
    end = _END if content_type.startswith("application/openmetrics-text") else b""
    parts = list[bytes]()
    known = dict[tuple[str, ...], _Labels]()
    for family in families:
        if isinstance(family, Family) and (head := _head(content_type, family.metric)) is not None:
            parts += (head, _lines(family, known))
        else:
            parts.append(encode(_Page(family)).removesuffix(end))
    return b"".join((*parts, end))


@lru_cache(maxsize=1024)
def _head(content_type: str, metric: Metric) -> bytes | None:
    """The lines above the samples of a family, the same at each scrape; None for odd names."""
    renames = content_type.endswith(("escaping=dots", "escaping=values"))  # plain names too
    names = (metric.name, *metric.labels)
    if renames or not all(map(_PLAIN_NAME.fullmatch, names)) or metric.name.endswith(_APART):
        return None
    encode, _ = choose_encoder(content_type)
    return encode(_Page(metric.family())).removesuffix(_END)


class _Labels(dict[tuple[str, ...], str]):
    """Labels as they stand in a line, by their values; most come many times on one page."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._template, self._in_order = _shape(names)
        self._quotes = 2 * len(names)

    def __missing__(self, values: tuple[str, ...]) -> str:
        text = self._template % self._in_order(values)
        if "\\" in text or "\n" in text or text.count('"') != self._quotes:
            text = self._template % self._in_order([*map(_escaped, values)])
        self[values] = text
        return text


@lru_cache(maxsize=256)
def _shape(names: tuple[str, ...]) -> tuple[str, Callable[[Sequence[str]], object]]:
    """The template of labels of these names, and what puts their values into its order."""
    if not names:
        return "", tuple
    places = sorted(range(len(names)), key=names.__getitem__)
    pairs = ",".join(f'{names[place]}="%s"' for place in places)
    return f"{{{pairs}}}", itemgetter(*places)


def _lines(family: Family, known: dict[tuple[str, ...], _Labels]) -> bytes:
    """The samples of `family`, a line each."""
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


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def best_format(accept: str) -> str:
    """The item of an Accept header of greatest weight that can be served; "" for no such item."""
    best, best_weight = "", 0.0
    for item in accept.split(","):
        kind, parameters = _split(item)
        weight = _weight(parameters)
        if parameters.get("version", "") in _VERSIONS.get(kind, ()) and weight > best_weight:
            best, best_weight = item.strip(), weight
    return best


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header lets the answer be gzip (RFC 9110, 12.5.3)."""
    weights = {
        coding: _weight(parameters)
        for coding, parameters in map(_split, accept_encoding.lower().split(","))
    }
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _split(item: str) -> tuple[str, dict[str, str]]:
    word, *parameters = (part.strip() for part in item.split(";"))
    pairs = (parameter.partition("=") for parameter in parameters)
    return word, {key.strip(): value.strip() for key, _, value in pairs}


def _weight(parameters: dict[str, str]) -> float:
    """`q` as RFC 9110 has it, 0 where it is not a number."""
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
