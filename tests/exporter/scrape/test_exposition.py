"""Metrics in the format and the coding that the client asks for."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
)
from prometheus_client.core import Metric as AnyFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from trainwarden_exporter.scrape.collector import Metric
from trainwarden_exporter.scrape.exposition import accepts_gzip, best_format, render

PEARS = CounterMetricFamily("pears", "Pears seen.", labels=["colour"])
PEARS.add_metric(['"gr\\ün"\n'], 3)

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def test_without_a_wish_it_is_the_text_format_and_not_compressed() -> None:
    rendered = render([PEARS])
    assert rendered.headers == {"Content-Type": TEXT, "Vary": "Accept, Accept-Encoding"}
    (family,) = parse_text(rendered.body.decode())
    assert family.samples[0].labels == {"colour": '"gr\\ün"\n'}


def test_openmetrics_is_written_on_request() -> None:
    rendered = render([PEARS], accept="application/openmetrics-text;version=1.0.0")
    assert rendered.headers["Content-Type"].startswith(
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    )
    (family,) = parse_openmetrics(rendered.body.decode())  # type: ignore[no-untyped-call]
    assert family.samples[0].value == 3


def test_gzip_is_used_on_request() -> None:
    rendered = render([PEARS], accept_encoding="gzip")
    assert rendered.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(rendered.body) == render([PEARS]).body


OPENMETRICS = "application/openmetrics-text"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "best"),
    [
        ("", ""),
        ("*/*", "*/*"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "*/*;q=0.8"),
        (OPENMETRICS, OPENMETRICS),
        (
            f"text/plain;q=0.5, {OPENMETRICS};version=1.0.0;q=0.6",
            f"{OPENMETRICS};version=1.0.0;q=0.6",
        ),
        (f"{OPENMETRICS};q=0.5, text/plain;version=0.0.4", "text/plain;version=0.0.4"),
        (f"{OPENMETRICS};version=1.0.0;q=0", ""),
        (f"{OPENMETRICS};version=2.0.0, text/plain;q=0.1", "text/plain;q=0.1"),
        (f"{OPENMETRICS};version=abc", ""),
        (f"{OPENMETRICS};q=nonsense", ""),
        (f"{OPENMETRICS};q=nan", ""),
        (";;;,,=", ""),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", ""),
        (PROMETHEUS_3, f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6"),
    ],
)
def test_the_best_format_is_the_heaviest_that_can_be_served(accept: str, best: str) -> None:
    assert best_format(accept) == best
    assert render([PEARS], accept=accept).body


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("gzip;q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("identity, br", False),
        ("gzipped", False),
        ("gzip;q=nonsense", False),
        (",;,", False),
    ],
)
def test_gzip_is_accepted_only_where_the_header_says_so(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


class Fixed:
    """What prometheus_client itself writes a page of."""

    def __init__(self, families: list[AnyFamily]) -> None:
        self.families = families

    def collect(self) -> list[AnyFamily]:
        return self.families


FORMATS = [
    "",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    OPENMETRICS,
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8",
    f"{OPENMETRICS};version=1.0.0;escaping=dots",
    f"{OPENMETRICS};version=1.0.0;escaping=values",
]


def as_the_library_does(families: list[AnyFamily], accept: str) -> bytes:
    encode, _ = choose_encoder(accept)
    return encode(Fixed(families))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ['"', "\\n", "\n", "%s"]
)
NUMBERS = st.floats() | st.integers(-(2**63), 2**63) | st.booleans()
OURS = [
    Metric("pears", "gauge", 'Pears\n"seen" \\ %s.', ("zone", "colour")),
    Metric("plums_total", "counter", "Plums.", ("colour", "zone")),
    Metric("figs:sum", "gauge", "Figs.", ("zone", "colour")),
    Metric("pears_created", "gauge", "When.", ("zone", "colour")),
]


@pytest.mark.parametrize("accept", FORMATS)
@settings(max_examples=50)
@given(samples=st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=4))
def test_a_page_of_our_families_is_to_the_byte_that_of_the_library(
    accept: str, samples: list[tuple[str, str, float]]
) -> None:
    ours = [Metric("bare", "gauge", "Without labels.").family()]
    theirs: list[GaugeMetricFamily | CounterMetricFamily] = [
        GaugeMetricFamily("bare", "Without labels.", labels=[])
    ]
    for metric in OURS:
        made = GaugeMetricFamily if metric.type == "gauge" else CounterMetricFamily
        ours.append(metric.family())
        theirs.append(made(metric.name, metric.help, labels=metric.labels))
    for one, other, value in samples:
        for mine, its in zip(ours, theirs, strict=True):
            labels = [one, other] if mine.metric.labels else []
            mine.add_metric(labels, value)
            its.add_metric(labels, value)
    assert render(ours, accept=accept).body == as_the_library_does([*theirs], accept)
