"""Status page: the samples of one scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

from trainwarden_exporter.scrape.scraper import Outcome

Tone = Literal["good", "warn", "bad", "quiet"]
Labels = tuple[str, ...]
"""Label values in declared order."""
T = TypeVar("T")


class Series:
    """Samples of one scrape at `now` (Unix seconds), by name without the common prefix."""

    def __init__(self, outcomes: Iterable[Outcome], now: float = 0.0) -> None:
        self._now = now
        self._values: dict[str, dict[Labels, float]] = {}
        for outcome in outcomes:
            for family in outcome.families:
                self._values.setdefault(family.metric.name, {}).update(family.rows)

    def all(self, name: str) -> Mapping[Labels, float]:
        return self._values.get(f"trainwarden_{name}", {})

    def of(self, name: str, *key: str) -> float | None:
        return self.all(name).get(key)

    def age(self, name: str, *key: str) -> float | None:
        """Returns the seconds since the timestamp in sample `name`."""
        moment = self.of(name, *key)
        return None if moment is None else max(0.0, self._now - moment)

    def word(self, name: str, *key: str) -> str:
        """Returns the last label of the series of `name` under `key` that has the value 1."""
        words = (k[-1] for k, value in self.all(name).items() if k[:-1] == key and value == 1)
        return next(words, "")

    def each(self, name: str, run: str, build: Callable[[Series, Labels], T]) -> tuple[T, ...]:
        """Returns the result of `build` for each series of `name` that belongs to `run`."""
        return tuple(build(self, key) for key in self.all(name) if key[0] == run)
