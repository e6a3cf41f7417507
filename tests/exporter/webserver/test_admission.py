from __future__ import annotations

from trainwarden_exporter.webserver.middleware import TokenBucket
from trainwarden_exporter.webserver.web_config import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_limit_everything_is_allowed() -> None:
    bucket = TokenBucket(RateLimit())
    assert all(bucket.take() for _ in range(1000))


def test_a_burst_is_allowed_at_once_and_then_one_for_each_interval() -> None:
    clock = Clock()
    bucket = TokenBucket(RateLimit.model_validate({"interval": "2s", "burst": 3}), clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now += 1
    assert not bucket.take()
    clock.now += 1
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_a_long_rest_does_not_earn_more_than_the_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(RateLimit.model_validate({"interval": "1s", "burst": 2}), clock)
    clock.now += 1000
    assert [bucket.take() for _ in range(3)] == [True, True, False]
