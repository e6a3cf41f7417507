"""Turns metric families into the bytes of an answer, in the format the client asks for."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from trainwarden_exporter.collector import Family

_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_APART = ("_created", "_gsum", "_gcount")  # samples that the text format shows as other families
_SHORT = 8
"""Characters up to which Go writes a number as Python does: from a million on with an exponent."""

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
    settled once for each family; all others are left to it.
    """
    encode, _ = choose_encoder(content_type)
    end = _END if content_type.startswith("application/openmetrics-text") else b""
    renames = content_type.endswith(("escaping=dots", "escaping=values"))  # plain names too
    parts = []
    labels = dict[tuple[str, ...], _Labels]()
    for family in families:
        lines = None
        if isinstance(family, Family) and not renames:
            lines = _lines(family, labels)
        if lines is None:
            parts.append(encode(_Page(family)).removesuffix(end))
        else:
            about = (family.name, family.documentation, family.type, family.unit)
            parts += (_head(content_type, *about), lines)
    return b"".join((*parts, end))


@lru_cache(maxsize=1024)
def _head(content_type: str, *about: str) -> bytes:
    """The lines above the samples of a family, which are the same at each scrape."""
    encode, _ = choose_encoder(content_type)
    return encode(_Page(AnyFamily(*about))).removesuffix(_END)


class _Labels(dict[tuple[str, ...], str]):
    """Labels as they stand in a line, by their values; most come many times on one page."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._places = sorted(range(len(names)), key=names.__getitem__)
        pairs = ",".join(f'{names[place]}="%s"' for place in self._places)
        self._template = f"{{{pairs}}}" if names else ""

    def __missing__(self, values: tuple[str, ...]) -> str:
        in_order = [values[place] for place in self._places]
        text = self._template % (*in_order,)
        if "\\" in text or "\n" in text or text.count('"') != 2 * len(in_order):
            text = self._template % (*map(_escaped, in_order),)
        self[values] = text
        return text


def _lines(family: Family, known: dict[tuple[str, ...], _Labels]) -> bytes | None:
    """The samples of `family`, a line each; None for no samples, or names that are not plain."""
    name, names = family.metric.name, family.metric.labels
    plain = all(map(_PLAIN_NAME.fullmatch, (name, *names))) and not name.endswith(_APART)
    if not plain or not family.rows:
        return None
    labels = known.setdefault(names, _Labels(names))
    lines = [f"{name}{labels[values]} {_number(value)}\n" for values, value in family.rows]
    return "".join(lines).encode()


def _number(value: float) -> str:
    text = repr(float(value))
    if len(text) <= _SHORT and text[-1].isdecimal():
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
