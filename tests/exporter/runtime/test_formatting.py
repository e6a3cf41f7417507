"""Numbers in words."""

from __future__ import annotations

import pytest

from trainwarden_exporter.runtime import formatting


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (1024**3 - 1, "1.0 GiB"),
        (128 * 1024**3, "128 GiB"),
        (2**63, "8192 PiB"),
    ],
)
def test_a_size_has_a_fitting_unit(count: float, words: str) -> None:
    assert formatting.format_size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (5, "5 s"),
        (0.00123, "1.23 ms"),
        (0.25, "250 ms"),
        (1.234, "1.23 s"),
        (59.7, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (11520, "3 h 12 min"),
        (360_000, "4 d 4 h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert formatting.format_duration(seconds) == words


def test_a_moment_is_in_utc() -> None:
    assert formatting.format_time(1_700_000_000.9) == "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0.0, "not even one file"),
        (0.99, "not even one file"),
        (9.9, "9.9 files"),
        (120.4, "120 files"),
        (1000, "1,000 files"),
        (5_636_218_250, "over 1,000 files"),
    ],
)
def test_how_many_more_fit_is_no_news_beyond_a_thousand(count: float, words: str) -> None:
    assert formatting.format_room(count, "file") == words


def test_one_is_singular() -> None:
    assert [formatting.plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


@pytest.mark.parametrize(
    ("step", "total", "text"),
    [
        (None, None, "has finished"),
        (59, None, "has finished"),
        (999, 1000, "has finished"),
        (59, 1000, "has ended early"),
    ],
)
def test_a_run_with_steps_left_has_ended_early(
    step: float | None, total: float | None, text: str
) -> None:
    assert formatting.describe_finish(step, total) == text
