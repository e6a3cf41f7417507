"""Walks the routes of an alertmanager.yml as Alertmanager does (dispatch/route.go). Pure.

Of an alert only the labels that its rule gives are known. One that its series brings (`run`,
`worker`, `instance`, …) is there with a value that cannot be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

BROUGHT = frozenset({"run", "worker", "instance", "job", "role"})
"""Labels that the series of an alert brings."""

_MATCHER = re.compile(
    r"""\s*"?(?P<name>[^"=!~\s]+)"?\s*(?P<how>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|[^,]*?)\s*$"""
)
_BETWEEN = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')


class Match(Enum):
    """Whether labels meet a condition, as far as they are known."""

    YES = 1
    NO = 0
    MAYBE = 2


@dataclass(frozen=True, slots=True)
class Stop:
    """A route that an alert comes to: where it stands in the file, and what is on the way.

    `doubtful`: a route before it may take the alert away, or it itself may not take it.
    """

    place: tuple[int | str, ...]
    receiver: str
    continues: bool
    doubtful: bool = False


def stops(route: Mapping[str, Any], labels: Mapping[str, str]) -> Sequence[Stop]:
    """The routes that deliver an alert of these labels, in order."""
    return list(_stops(route, labels, ("route",), str(route.get("receiver", "")), doubtful=False))


def _stops(
    route: Mapping[str, Any],
    labels: Mapping[str, str],
    place: tuple[int | str, ...],
    receiver: str,
    *,
    doubtful: bool,
) -> Iterator[Stop]:
    taken = False
    for index, below in enumerate(route.get("routes") or ()):
        if not isinstance(below, Mapping):
            continue
        met = meets(below, labels)
        if met is Match.NO:
            continue
        own = str(below.get("receiver") or receiver)
        unsure = doubtful or met is Match.MAYBE
        yield from _stops(below, labels, (*place, "routes", index), own, doubtful=unsure)
        if met is Match.YES:
            taken = True
            if not below.get("continue"):
                return
        elif not below.get("continue"):
            doubtful = True
    if not taken:
        yield Stop(place, receiver, continues=bool(route.get("continue")), doubtful=doubtful)


def meets(route: Mapping[str, Any], labels: Mapping[str, str]) -> Match:
    """Whether an alert of these labels meets the conditions of a route."""
    answers = [_meets(*condition, labels) for condition in _conditions(route)]
    if Match.NO in answers:
        return Match.NO
    return Match.MAYBE if Match.MAYBE in answers else Match.YES


def _conditions(route: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    given = route.get("matchers") or ()
    for entry in [given] if isinstance(given, str) else given:
        for part in _BETWEEN.split(str(entry).strip().removeprefix("{").removesuffix("}")):
            if part.strip():
                yield _parsed(part)
    for key, how in (("match", "="), ("match_re", "=~")):
        for name, value in (route.get(key) or {}).items():
            yield str(name), how, str(value)


def _parsed(matcher: str) -> tuple[str, str, str]:
    match = _MATCHER.match(matcher)
    if match is None:
        return matcher, "?", ""
    value = match["value"]
    if value.startswith('"') and value.endswith('"') and len(value) > 1:
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return match["name"], match["how"], value


def _meets(name: str, how: str, value: str, labels: Mapping[str, str]) -> Match:
    if name in BROUGHT and name not in labels:
        # It has some value: only an empty one is ruled out.
        if how in ("=", "!=") and not value:
            return Match.NO if how == "=" else Match.YES
        return Match.MAYBE
    actual = labels.get(name, "")
    if how in ("=", "!="):
        return Match.YES if (actual == value) is (how == "=") else Match.NO
    if how == "?":
        return Match.MAYBE
    try:
        found = re.fullmatch(value, actual) is not None
    except re.error:
        return Match.MAYBE
    return Match.YES if found is (how == "=~") else Match.NO
