from __future__ import annotations

from trainwarden_exporter.step_dirs import throttle
from trainwarden_exporter.step_dirs.throttle import Throttle


class Thread:
    """CPU time that the test advances, and rests that are counted."""

    def __init__(self) -> None:
        self.used = 0.0
        self.rests: list[float] = []
        self.throttle = Throttle(used=lambda: self.used, sleep=self.rests.append)

    def work(self, seconds: float, steps: int) -> None:
        for _ in range(steps):
            self.used += seconds / steps
            self.throttle.pause_if_due()


def test_it_rests_for_a_multiple_of_its_work_after_each_slice() -> None:
    thread = Thread()
    thread.work(1.0, 10_000)
    assert sum(thread.rests) >= 0.99 * throttle.REST_FACTOR
    assert max(thread.rests) < 1.1 * throttle.REST_FACTOR * throttle.SLICE_SECONDS


def test_what_is_asked_seldom_rests_no_longer_than_that() -> None:
    thread = Thread()
    thread.work(60.0, 1)
    assert thread.rests == [throttle.REST_FACTOR * throttle.MAX_COUNTED_SECONDS]


def test_it_does_not_rest_while_somebody_waits() -> None:
    thread = Thread()
    thread.throttle.disabled = True
    thread.work(1.0, 100)
    assert thread.rests == []
