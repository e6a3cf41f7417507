from __future__ import annotations

import datetime as dt
import math
import time

import pytest

from trainwarden_exporter.logs.line_parser import (
    number_of_key,
    parse_number,
    parse_timestamp,
    shorten_line,
    strip_ansi,
    strip_prefixes,
)

NOON = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "bare_text"),
    [
        (b"plain", b"plain"),
        (b"\x1b[32mINFO\x1b[0m done", b"INFO done"),
        (b"\x1b[38;5;196;1mred\x1b[m", b"red"),
        (b"\x1b[2K\x1b[1A50%", b"50%"),
        (b"\x1b]0;title\x07text", b"text"),
        (b"\x1b]8;;file\x1b\\link\x1b]8;;\x1b\\", b"link"),
        (b"\r 2%|# | 1/50 [00:00]\x1b[A", b"\r 2%|# | 1/50 [00:00]\x0b"),
        (b"one\x1b[\ntwo\x1b", b"one\ntwo"),
        (b"\x1b]never ended\nnext", b"\nnext"),
    ],
)
def test_escape_sequences_are_taken_out_and_line_ends_never(text: bytes, bare_text: bytes) -> None:
    assert strip_ansi(text) == bare_text


@pytest.mark.parametrize(
    "line",
    [
        "CUDA out of memory",
        "(TaskRunner pid=12) CUDA out of memory",
        "\t(WorkerDict pid=7, ip=10.0.0.1) [rank0]: CUDA out of memory ",
        "[actor] CUDA out of memory",
        "[default3]:  CUDA out of memory",
        "(W pid=7) CUDA out of memory [repeated 3x across cluster] (Ray deduplicates logs …)",
    ],
)
def test_what_passes_a_line_on_leaves_no_trace_in_it(line: str) -> None:
    assert strip_prefixes(line) == "CUDA out of memory"


@pytest.mark.parametrize(
    "line", ["[2026-11-21 12:00:00] x", "(AReaL) 20261121 x", "(1) x", "[0] x"]
)
def test_what_the_writer_itself_puts_first_stays(line: str) -> None:
    assert strip_prefixes(line) == line


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5", 0.5),
        ("-1e-05", -1e-5),
        ("+3", 3),
        ("1,234,567", 1234567),
        ("87%", 87),
        ("12.5GiB", 12.5),
        ("'0.25'", 0.25),
        ("np.float64(1.5)", 1.5),
        ("tensor(2.)", 2),
        ("nan", math.nan),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("NaN,", math.nan),
    ],
)
def test_numbers_as_programs_print_them(text: str, number: float) -> None:
    assert parse_number(text) == pytest.approx(number, nan_ok=True)


@pytest.mark.parametrize("text", ["", "none", "info", "nancy", "infinite", "v2", "127.0.0.1", "-"])
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("step:12 - actor/loss:0.5 - other", 0.5),
        ("{'actor/loss': np.float64(0.25), 'x': 1}", 0.25),
        ('{"actor/loss": "nan"}', math.nan),
        ("actor/loss = 3", 3),
        ("critic/actor/loss: 9, actor/loss: 4", 4),
    ],
)
def test_a_number_is_found_by_its_key(line: str, number: float) -> None:
    assert number_of_key("actor/loss", line) == pytest.approx(number, nan_ok=True)


@pytest.mark.parametrize(
    ("line", "number"),
    [("step 10 loss 0.5", 0.5), ("loss nan", math.nan), ("loss 3 of 5, loss: 0.2", 0.2)],
)
def test_a_number_after_a_space_counts_where_none_follows_a_colon(line: str, number: float) -> None:
    assert number_of_key("loss", line) == pytest.approx(number, nan_ok=True)


@pytest.mark.parametrize("line", ["actor/loss", "my_actor/loss: 1", "actor/loss: high", "loss: 1"])
def test_no_number_is_found_where_the_key_has_none(line: str) -> None:
    assert number_of_key("actor/loss", line) is None


@pytest.mark.parametrize(
    ("line", "seconds_before"),
    [
        (b"(AReaL) 20261121-11:59:59.250 Logger INFO: x", 0.75),
        (b"2026-11-21 11:59:58,500 - INFO - x", 1.5),
        (b"[2026-11-21 11:59:00 TP0] x", 60),
        (b"[titan] 2026/11/21 11:59:59 x", 1),
        (b"11:59:30    INFO Step 5", 30),
        (b"INFO 11-21 11:59:30 [core.py:1] x", 30),
        (b"12:00:01 a clock a little ahead", 0),
    ],
)
def test_a_line_tells_its_own_time(line: bytes, seconds_before: float) -> None:
    assert parse_timestamp(line, latest=NOON, fresh=True) == pytest.approx(NOON - seconds_before)


def test_a_zone_is_obeyed() -> None:
    moment = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC).timestamp()
    for line in (
        b"2026-11-21T12:00:00Z x",
        b"2026-11-21T13:30:00.0+01:30 x",
        b"2026-11-21T07:00:00-0500",
    ):
        assert parse_timestamp(line, latest=moment + 5, fresh=True) == moment


@pytest.mark.parametrize(
    "line",
    [
        b"no time at all",
        b"2026-11-21 09:00:00 three hours ago: another zone",
        b"2026-11-21 14:00:00 in two hours",
        b"2026-13-41 12:00:00 never",
        b"loss at 2026",
        b"elapsed 11:59:59",
        b"11:59:59:12 x",
    ],
)
def test_a_time_that_cannot_be_right_is_none(line: bytes) -> None:
    assert parse_timestamp(line, latest=NOON, fresh=True) is None


def test_what_was_there_before_may_be_old_but_not_of_the_future() -> None:
    assert parse_timestamp(b"2026-11-20 12:00:00 x", latest=NOON, fresh=False) == NOON - 86400
    assert parse_timestamp(b"2026-11-22 12:00:00 x", latest=NOON, fresh=False) is None
    assert parse_timestamp(b"12:30:00 INFO yesterday", latest=NOON, fresh=False) == NOON - 84600


def test_a_line_is_shown_cut_and_without_control_characters() -> None:
    assert shorten_line("a\tb\x00\x07c\x9b\n") == "a b c"
    assert len(shorten_line("x" * 1000)) == 300
