"""Metrics in the format and the coding that the client asks for."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Timestamp,
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
FAMILIES: list[Callable[[], GaugeMetricFamily | CounterMetricFamily]] = [
    lambda: GaugeMetricFamily("pears", 'Pears\n"seen" \\ %s.', labels=["zone", "colour"]),
    lambda: CounterMetricFamily("plums_total", "Plums.", labels=["zone", "colour"]),
    lambda: GaugeMetricFamily("figs:sum", "Figs.", labels=["zone", "colour"]),
    lambda: GaugeMetricFamily("näme.created", "Of an odd name.", labels=["zone", "cölour"]),
    lambda: GaugeMetricFamily("pears_created", "When.", labels=["zone", "colour"]),
    lambda: GaugeMetricFamily("nuts_bytes", "In a unit.", labels=["a", "b"], unit="bytes"),
]


@pytest.mark.parametrize("accept", FORMATS)
@pytest.mark.parametrize("make", FAMILIES)
@settings(max_examples=25)  # of each format and family
@given(samples=st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=4))
def test_a_page_is_to_the_byte_what_the_library_writes(
    make: Callable[[], GaugeMetricFamily | CounterMetricFamily],
    accept: str,
    samples: list[tuple[str, str, float]],
) -> None:
    family = make()
    for zone, colour, value in samples:
        family.add_metric([zone, colour], value)
    families: list[AnyFamily] = [PEARS, family, PEARS]
    assert render(families, accept=accept).body == as_the_library_does(families, accept)


OURS = [
    Metric("pears", "gauge", 'Pears\n"seen" \\ %s.', ("zone", "colour")),
    Metric("plums_total", "counter", "Plums.", ("colour", "zone")),
    Metric("figs:sum", "gauge", "Figs.", ("zone", "colour")),
    Metric("pears_created", "gauge", "When.", ("zone", "colour")),
]


@pytest.mark.parametrize("accept", FORMATS)
@settings(max_examples=50)
@given(samples=st.lists(st.tuples(TEXTS, TEXTS, NUMBERS), max_size=4))
def test_so_it_is_of_families_of_ours_which_share_what_their_labels_look_like(
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
    assert as_the_library_does([*ours], accept) == as_the_library_does([*theirs], accept)


@pytest.mark.parametrize(
    "number", [0, -0.0, 99_999.5, 999_999, 10**6, 1e6, 1234567.8, -1e7, 1e-5, True]
)
def test_a_number_is_written_as_the_library_writes_it(number: float) -> None:
    ours = Metric("bare", "gauge", "Without labels.").family()
    ours.add_metric([], number)
    theirs = GaugeMetricFamily("bare", "Without labels.", value=number)
    assert render([ours]).body == render([theirs]).body


@pytest.mark.parametrize("accept", FORMATS)
def test_what_is_more_than_plain_numbers_is_the_librarys_to_write(accept: str) -> None:
    bare = GaugeMetricFamily("bare", "Without labels.", value=1e16)
    late = GaugeMetricFamily("late", "With a time.", labels=["a"])
    late.add_metric(["x"], 1, timestamp=Timestamp(5, 0))
    mixed = GaugeMetricFamily("mixed", "With labels of all sorts.", labels=["a", "b"])
    mixed.add_metric(["x", "y"], 1)
    mixed.add_metric(["x"], 2)
    born = CounterMetricFamily("born", "With its birth.", labels=["a"])
    born.add_metric(["x"], 1, created=3)
    long = HistogramMetricFamily("long", "In buckets.", labels=["a"])
    long.add_metric(["x"], [("1.0", 2), ("+Inf", 3)], 4)
    registry = CollectorRegistry()
    Counter("clicks", "Counted.", registry=registry).inc(exemplar={"trace": "1"})
    Histogram("waits", "Waited.", registry=registry).observe(2)
    families = [bare, late, mixed, born, long, *registry.collect()]
    assert render(families, accept=accept).body == as_the_library_does(families, accept)
