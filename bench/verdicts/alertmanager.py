"""Who hears of what: the shipped routes and inhibitions, applied to what fired.

A model of Alertmanager 0.25: a group is flushed `group_wait` after its first alert came and every
`group_interval` from then on; a flush tells of what is firing and not muted. Repeats are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from verdicts.engine import RULES, Firing, Labels, seconds
from verdicts.page import SCRAPE

_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"(.*)"\s*')


@dataclass(frozen=True, slots=True)
class Matcher:
    name: str
    operator: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Matcher:
        """Raises ValueError for what is no quoted matcher."""
        found = _MATCHER.fullmatch(text)
        if found is None:
            raise ValueError(f"not a matcher: {text}")
        return cls(found[1], found[2], found[3])

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.name, "")
        if "~" in self.operator:
            return (re.fullmatch(self.value, value) is not None) == (self.operator == "=~")
        return (value == self.value) == (self.operator == "=")


def _matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    return tuple(Matcher.parse(text) for text in texts)


def _all(matchers: Sequence[Matcher], labels: Labels) -> bool:
    return all(matcher.matches(labels) for matcher in matchers)


@dataclass(frozen=True, slots=True)
class Inhibition:
    sources: tuple[Matcher, ...]
    targets: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def mutes(self, source: Labels, target: Labels) -> bool:
        """Whether `source` mutes `target`; of two that are both either, neither does."""
        if not _all(self.targets, target) or not _all(self.sources, source):
            return False
        if _all(self.sources, target) and _all(self.targets, source):
            return False
        return all(source.get(name, "") == target.get(name, "") for name in self.equal)


@dataclass(frozen=True, slots=True)
class Route:
    matchers: tuple[Matcher, ...]
    receiver: str
    group_by: tuple[str, ...]
    wait: float
    interval: float
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Notification:
    """A receiver hears of an alert, at a moment."""

    moment: float
    receiver: str
    labels: Labels


class Alertmanager:
    """The shipped configuration."""

    def __init__(self) -> None:
        config = yaml.safe_load((RULES / "alertmanager.yml").read_text())
        self.inhibitions = tuple(
            Inhibition(
                _matchers(rule["source_matchers"]),
                _matchers(rule["target_matchers"]),
                tuple(rule.get("equal", ())),
            )
            for rule in config["inhibit_rules"]
        )
        root = config["route"]
        self.routes = (*(_route(route, root) for route in root["routes"]), _route(root, root))

    def muted(self, labels: Labels, active: Sequence[Labels]) -> bool:
        """Whether an alert is muted while others are active."""
        return any(
            rule.mutes(source, labels)
            for rule in self.inhibitions
            for source in active
            if source is not labels
        )

    def audible(self, firings: Sequence[Firing]) -> list[set[float]]:
        """Of each alert, the moments at which it fires and is not muted."""
        at: dict[float, list[Labels]] = {}
        for firing in firings:
            for moment in firing.moments:
                at.setdefault(moment, []).append(firing.labels)
        known: dict[tuple[int, tuple[int, ...]], bool] = {}
        audible: list[set[float]] = [set() for _ in firings]
        for index, firing in enumerate(firings):
            for moment in firing.moments:
                active = at[moment]
                key = (index, tuple(id(one) for one in active))
                if key not in known:
                    known[key] = self.muted(firing.labels, active)
                if not known[key]:
                    audible[index].add(moment)
        return audible

    def notifications(self, firings: Sequence[Firing]) -> list[Notification]:
        """All that reaches a receiver, once for each alert, group and receiver."""
        audible = self.audible(firings)
        found: list[Notification] = []
        for route, members in self._groups(firings):
            found += _flushes(route, [(firings[one], audible[one]) for one in members])
        return sorted(found, key=lambda one: one.moment)

    def _groups(self, firings: Sequence[Firing]) -> Iterator[tuple[Route, list[int]]]:
        groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for index, firing in enumerate(firings):
            for number, route in enumerate(self.routes):
                if not _all(route.matchers, firing.labels):
                    continue
                key = (number, tuple(firing.labels.get(name, "") for name in route.group_by))
                groups.setdefault(key, []).append(index)
                if not route.goes_on:
                    break
        for (number, _), members in groups.items():
            yield self.routes[number], members


def _route(route: Mapping[str, Any], root: Mapping[str, Any]) -> Route:
    def of(name: str) -> Any:
        return route.get(name, root[name])

    return Route(
        _matchers(route.get("matchers", ())),
        route["receiver"],
        tuple(of("group_by")),
        seconds(of("group_wait")),
        seconds(of("group_interval")),
        goes_on=route.get("continue", False),
    )


def _flushes(route: Route, members: Sequence[tuple[Firing, set[float]]]) -> Iterator[Notification]:
    firing = sorted({moment for one, _ in members for moment in one.moments})
    notified: set[int] = set()
    while firing:
        flush = firing[0] + route.wait
        while True:
            # what fires at a flush is the result of the last evaluation before it
            moment = flush // SCRAPE * SCRAPE
            for index, (one, audible) in enumerate(members):
                if moment in audible and index not in notified:
                    notified.add(index)
                    yield Notification(flush, route.receiver, one.labels)
            if not any(moment <= later < moment + 2 * SCRAPE for later in firing):
                break
            flush += route.interval
            if flush > firing[-1] + route.interval:
                return
        firing = [later for later in firing if later > flush]
