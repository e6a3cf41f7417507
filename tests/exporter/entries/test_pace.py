from __future__ import annotations

from trainwarden_exporter.entries import pace
from trainwarden_exporter.entries.pace import Pace


class Thread:
    """CPU time that passes as it is told, and rests that are counted."""

    def __init__(self) -> None:
        self.used = 0.0
        self.rests: list[float] = []
        self.pace = Pace(used=lambda: self.used, sleep=self.rests.append)

    def work(self, seconds: float, steps: int) -> None:
        for _ in range(steps):
            self.used += seconds / steps
            self.pace.keep()


def test_it_rests_for_a_multiple_of_its_work_after_each_slice() -> None:
    thread = Thread()
    thread.work(1.0, 10_000)
    assert sum(thread.rests) >= 0.99 * pace.REST
    assert max(thread.rests) < 1.1 * pace.REST * pace.SLICE


def test_what_is_asked_seldom_rests_no_longer_than_that() -> None:
    thread = Thread()
    thread.work(60.0, 1)
    assert thread.rests == [pace.REST * pace.LONGEST]


def test_it_does_not_rest_while_somebody_waits() -> None:
    thread = Thread()
    thread.pace.hurried = True
    thread.work(1.0, 100)
    assert thread.rests == []
