"""Renders metric families as the body of a response in the format that the client accepts."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client.core import Metric as AnyFamily
from prometheus_client.exposition import choose_encoder

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

    def __init__(self, families: Iterable[AnyFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[AnyFamily]:
        return self._families


def render(
    families: Iterable[AnyFamily], *, accept: str = "", accept_encoding: str = ""
) -> RenderedPage:
    """Renders `families` in the text format or as OpenMetrics, by the client's preference."""
    encode, content_type = choose_encoder(best_format(accept))
    body = encode(_Registry(families))
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(accept_encoding):
        body = gzip.compress(body, compresslevel=_COMPRESSION, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return RenderedPage(body, headers)


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
