"""Prometheus is asked what Grafana would ask it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from boards import BOARDS
from previewing.asking import Prometheus, RefusedError, Window, answer, choose_all, filled, parts

WINDOW = Window(1000, 4600)


class Fake(ThreadingHTTPServer):
    """A Prometheus that says what it was asked, and answers always the same."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.data: Any = []
        self.status = 200


class _Handler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self._reply(parts.path, parts.query)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._reply(self.path, self.rfile.read(length).decode())

    def _reply(self, path: str, query: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        self.server.asked.append((path.removeprefix("/api/v1/"), asked))
        body = json.dumps({"status": "success", "data": self.server.data}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        pass


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def prometheus(fake: Fake) -> Prometheus:
    return Prometheus(f"http://127.0.0.1:{fake.server_port}/")


def test_variables_are_replaced_in_both_spellings() -> None:
    assert filled('a{b=~"$x",c=~"(${x}):1"}[$__range]', {"x": "y", "__range": "1h"}) == (
        'a{b=~"y",c=~"(y):1"}[1h]'
    )
    assert filled('"GPU $1"', {"x": "y"}) == '"GPU $1"'  # a group of label_replace
    with pytest.raises(KeyError, match="other"):
        filled("$other", {"x": "y"})


def test_label_values_is_taken_apart() -> None:
    assert parts('label_values(up{a="b",c="d"}, instance)') == ('up{a="b",c="d"}', "instance")
    with pytest.raises(ValueError, match="not label_values"):
        parts("query_result(up)")


def test_a_rate_is_over_four_scrapes_at_least() -> None:
    assert Window(0, 600).words["__rate_interval"] == "20s"
    assert Window(0, 40000).words == {
        "__range": "40000s",
        "__interval": "100s",
        "__interval_ms": "100000",
        "__rate_interval": "105s",
    }


def test_a_panel_may_show_days_of_its_own() -> None:
    assert WINDOW.of({}) == WINDOW
    week = WINDOW.of({"timeFrom": "7d", "maxDataPoints": 10080})
    assert (week.end, week.words["__range"], week.words["__interval"]) == (
        *(WINDOW.end, "604800s", "60s"),
    )


def test_all_of_a_variable_is_what_it_says_or_every_option(
    fake: Fake, prometheus: Prometheus
) -> None:
    fake.data = ["box-1:10977", "box-2:10977"]
    chosen = choose_all(BOARDS[0].model(BOARDS), prometheus, WINDOW)
    assert chosen.values["instance"] == ".+"
    assert chosen.options["instance"] == ["box-1:10977", "box-2:10977"]
    assert chosen.values["host"] == "(box\\\\-1|box\\\\-2)"
    path, asked = fake.asked[1]
    assert path == "label/instance/values"
    assert asked["match[]"] == 'up{instance=~".+",job="trainwarden-exporter"}'
    assert asked["start"] == "1000.000"


def test_one_option_is_no_choice(fake: Fake, prometheus: Prometheus) -> None:
    fake.data = ["box:10977"]
    chosen = choose_all(BOARDS[0].model(BOARDS), prometheus, WINDOW, first=["instance"])
    assert chosen.values["instance"] == "box:10977"
    assert chosen.values["host"] == "box"


def test_what_is_asked_at_once_is_asked_for_the_end(fake: Fake, prometheus: Prometheus) -> None:
    fake.data = {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2.5"]}]}
    (series,) = answer({"expr": "x[$y]", "instant": True}, prometheus, WINDOW, {"y": "5m"})
    assert (series.labels, series.points) == ({"a": "b"}, [(1, 2.5)])
    assert fake.asked == [("query", {"query": "x[5m]", "time": "4600.000"})]


def test_what_is_drawn_is_asked_for_the_whole_time(fake: Fake, prometheus: Prometheus) -> None:
    values = [[1000, "1"], [1009, "NaN"]]
    fake.data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    (series,) = answer({"expr": "x"}, prometheus, WINDOW, {})
    assert [when for when, _ in series.points] == [1000, 1009]
    (path, asked) = fake.asked[0]
    assert path == "query_range"
    assert (asked["start"], asked["end"], asked["step"]) == ("1000.000", "4600.000", "9.000")


def test_a_number_is_a_series_without_labels(fake: Fake, prometheus: Prometheus) -> None:
    fake.data = {"resultType": "scalar", "result": [7, "3"]}
    (series,) = prometheus.at("scalar(x)", 7)
    assert (dict(series.labels), series.points) == ({}, [(7, 3)])


def test_a_refusal_says_what_was_asked(fake: Fake, prometheus: Prometheus) -> None:
    fake.status = 400
    with pytest.raises(RefusedError, match=r"rate\(x\)"):
        prometheus.at("rate(x)", 0)
    with pytest.raises(RefusedError, match="refused"):
        Prometheus("http://127.0.0.1:1").at("x", 0)
