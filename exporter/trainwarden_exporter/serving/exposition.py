"""Turns metric families into the bytes of an answer, in the format the client asks for."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.exposition import choose_encoder

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

    def __init__(self, families: Iterable[AnyFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[AnyFamily]:
        return self._families


def render(
    families: Iterable[AnyFamily], *, accept: str = "", accept_encoding: str = ""
) -> Rendered:
    """`families` in the text format or as OpenMetrics, whichever the client likes better."""
    encode, content_type = choose_encoder(best_format(accept))
    body = encode(_Page(families))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(accept_encoding):
        body = gzip.compress(body, compresslevel=6, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Rendered(body, headers)


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
