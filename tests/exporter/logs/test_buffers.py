from __future__ import annotations

import time
from contextlib import ExitStack

from trainwarden_exporter.logs.buffers import KEPT, Buffers


def test_the_same_few_buffers_are_lent_again_and_again() -> None:
    buffers = Buffers(100)
    seen = set()
    for _ in range(10):
        with buffers.lend(50) as buffer:
            assert len(buffer) == 100
            seen.add(id(buffer))
    assert len(seen) <= KEPT


def test_one_thread_alone_fills_one_buffer_only() -> None:
    buffers = Buffers(100)
    seen = set()
    for _ in range(10):
        with buffers.lend(50) as buffer:
            seen.add(id(buffer))
    assert len(seen) == 1


def test_one_that_is_too_small_is_not_lent() -> None:
    buffers = Buffers(100)
    with buffers.lend(1000) as buffer:
        assert len(buffer) == 1000
    for _ in range(KEPT):
        with buffers.lend(100) as buffer:
            assert len(buffer) == 100, "a large one is not kept"


def test_buffers_that_do_not_come_back_are_replaced() -> None:
    buffers = Buffers(100, patience=0.01)
    with ExitStack() as hung:
        for _ in range(KEPT + 3):
            hung.enter_context(buffers.lend(100))
        with buffers.lend(100):
            pass
        began = time.monotonic()
        for _ in range(100):
            with buffers.lend(100):
                pass
        assert time.monotonic() - began < 0.5, "the one that came back is lent at once"
    assert buffers._spare.qsize() == KEPT
