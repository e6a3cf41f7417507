from __future__ import annotations

from collections.abc import Iterable

import pytest

from trainwarden_exporter.logs.block_buffering import BlockBuffering

PYTHON = (8162, 16346, 24530, 32714, 40898, 49065)
"""Sizes of a file into which Python 3.11 printed lines of 45 bytes without PYTHONUNBUFFERED."""


def detected(sizes: Iterable[int], *, seconds: float = 3) -> bool:
    buffering = BlockBuffering()
    for number, size in enumerate((0, *sizes)):
        buffering.observe(size, number * seconds)
        buffering.observe(size, number * seconds + seconds / 2)
    return buffering.detected


def test_blocks_of_python_are_detected() -> None:
    assert detected(PYTHON)


def test_blocks_of_c_are_detected() -> None:
    assert detected(4096 * number for number in range(1, 8))


@pytest.mark.parametrize(
    "sizes",
    [
        PYTHON[:4],  # too few
        range(100, 3000, 450),  # a line each time
        (8162, 16346, 24530, 32714, 32800),  # a line in between
        (8162, 16346, 24530, 32714, 100),  # rotated
        (9000, 18200, 27100, 36300, 45500),  # a table with each step
    ],
)
def test_other_growth_is_not(sizes: Iterable[int]) -> None:
    assert not detected(sizes)


def test_a_log_that_grows_all_the_time_is_not_late() -> None:
    assert not detected(PYTHON, seconds=1)
