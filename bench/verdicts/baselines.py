"""What trivial watchers would have made of the same series: the least that rules must exceed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from verdicts.cases import Played
from verdicts.page import SCRAPE, Value

LONG_PAUSE = 600.0
"""Seconds."""


def first_pause(played: Played) -> float | None:
    """When a run had first made no progress for ten minutes, in seconds since the first scrape."""
    return min(
        (
            moment
            for series in _of(played, "trainwarden_training_progress_timestamp_seconds")
            for moment, progress in _samples(series)
            if moment - progress > LONG_PAUSE
        ),
        default=None,
    )


def first_exit(played: Played) -> float | None:
    """When a worker first had fewer processes than at the scrape before."""
    exits: list[float] = []
    for series in _of(played, "trainwarden_worker_processes"):
        before = 0.0
        for moment, processes in _samples(series):
            if processes < before:
                exits.append(moment)
                break
            before = processes
    return min(exits, default=None)


WATCHERS: Mapping[str, Callable[[Played], float | None]] = {
    "never alerts": lambda _: None,
    "alerts on any pause over ten minutes": first_pause,
    "restarts whatever exits": first_exit,
}


def _of(played: Played, name: str) -> Iterator[Sequence[Value]]:
    return (series for key, series in played.series.items() if key.startswith(f"{name}{{"))


def _samples(series: Sequence[Value]) -> Iterator[tuple[float, float]]:
    """The samples that are there, with their moments."""
    for number, value in enumerate(series):
        if not isinstance(value, str):
            yield number * SCRAPE, value
