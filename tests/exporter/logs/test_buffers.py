from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import pytest

from trainwarden_exporter.logs.line_blocks import KEPT_BUFFERS, BufferPool


def test_the_same_few_buffers_are_lent_again_and_again() -> None:
    buffers = BufferPool(100)
    seen = set()
    for _ in range(10):
        with buffers.lend(50) as buffer:
            assert len(buffer) == 100
            seen.add(id(buffer))
    assert len(seen) <= KEPT_BUFFERS


def test_one_thread_alone_fills_one_buffer_only() -> None:
    buffers = BufferPool(100)
    seen = set()
    for _ in range(10):
        with buffers.lend(50) as buffer:
            seen.add(id(buffer))
    assert len(seen) == 1


def test_a_buffer_that_is_too_small_is_not_lent() -> None:
    buffers = BufferPool(100)
    with buffers.lend(1000) as buffer:
        assert len(buffer) == 1000
    for _ in range(KEPT_BUFFERS):
        with buffers.lend(100) as buffer:
            assert len(buffer) == 100, "a large one is not kept"


def test_buffers_that_do_not_come_back_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = BufferPool(100, timeout=0.01)
    with ExitStack() as hung:
        for _ in range(KEPT_BUFFERS + 3):
            hung.enter_context(buffers.lend(100))
        with buffers.lend(100):
            pass
        # the returned buffer is lent at once
        monkeypatch.setattr(buffers._spare, "get", partial(buffers._spare.get, block=False))
        made: list[int] = []
        for _ in range(100):
            with buffers.lend(100) as buffer:
                made.append(id(buffer))
        assert len(set(made)) == 1
    assert buffers._spare.qsize() == KEPT_BUFFERS
