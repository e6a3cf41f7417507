"""Finds every mistake of a configuration file at once, also mistakes behind others.

pydantic checks what several keys say together only where each of them is valid. Here each mistake
is mended with a stand-in, so that the checks behind it run as well. Only `check` does this: it
costs several validations for each mistake.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from trainwarden_exporter.config_file import loader
from trainwarden_exporter.config_file.yaml_nodes import Location
from trainwarden_exporter.exceptions import ConfigError, Problem

M = TypeVar("M", bound=BaseModel)

MAX_MENDED = 40
"""Mistakes that are mended; of a file with more, those behind them are found the next time."""
_ABSENT = object()
_STAND_INS: tuple[Any, ...] = (
    _ABSENT,
    *("stand-in", 1, "1s", "http://127.0.0.1:1", "/stand-in", True),
    *(["stand-in"], {}, []),
)
"""For most keys, one of these values is valid."""


@dataclass(frozen=True, slots=True)
class Examined(Generic[M]):
    """What a file means, and every mistake in it."""

    value: M | None
    """With stand-ins for what is wrong; None if too much is."""
    problems: tuple[Problem, ...]
    mended: frozenset[Location]
    """Where `value` has a stand-in, and what depends on it is not known."""

    def knows(self, *location: int | str) -> bool:
        """Whether the value at a location is that of the file."""
        return not any(_overlap(location, one) for one in self.mended)


def examine(path: Path, model: type[M]) -> Examined[M]:
    """Reads the file at `path` into a `model`, and finds all its mistakes.

    Raises ConfigError if it cannot be read, or is not YAML.
    """
    return _Examination(path, model).run()


def all_problems(path: Path, model: type[BaseModel], error: ConfigError) -> Sequence[Problem]:
    """Returns the problems of `error`, with which the file could not be read, and all others."""
    try:
        return examine(path, model).problems or error.problems
    except ConfigError:
        return error.problems


class _Examination(Generic[M]):
    def __init__(self, path: Path, model: type[M]) -> None:
        self._file = loader.ParsedFile.read(path, model)
        self._content = self._file.content
        self._mended: set[Location] = set()
        self._found: dict[tuple[Location, str], Problem] = {}

    def run(self) -> Examined[M]:
        value = None
        while len(self._mended) < MAX_MENDED:
            try:
                value = self._file.validate(self._content)
                break
            except ValidationError as error:
                wrong = self._record(error)
            # Each is mended, whatever becomes of the others.
            if not all([self._mend(location) for location in wrong]):  # noqa: C419 - as above
                break
        problems = sorted(self._found.values(), key=lambda one: one.line or 0)
        return Examined(value, tuple(problems), frozenset(self._mended))

    def _record(self, error: ValidationError) -> list[Location]:
        """Keeps the problems of `error`, and returns where they are.

        A problem that a stand-in has made, at its place or around it, is none of the file.
        """
        wrong, unknown = [], set()
        for location, problem in self._file.located_problems(error):
            if problem.message.startswith(loader.UNKNOWN_KEY):
                unknown.add(location)
            if not any(one[: len(location)] == location for one in self._mended):
                self._found.setdefault((location, problem.message), problem)
            wrong.append(location)
        # The value of a key that is only misspelt is checked next.
        return [
            location for location in wrong if location not in unknown or not self._rename(location)
        ]

    def _rename(self, location: Location) -> bool:
        known = self._file.correct_key(location)
        if known is None:
            return False
        *parents, key = location
        holder = self._content
        for part in parents:
            holder = holder[part]
        holder[known] = holder.pop(key)
        return True

    def _mend(self, location: Location) -> bool:
        """Puts a valid value at `location`, or around it. Returns whether there is one."""
        before = self._wrong_places(self._content)
        if location not in before:
            return True  # mended with another one
        while location:
            for stand_in in _STAND_INS:
                content = _replaced(self._content, location, stand_in)
                places = None if content is None else self._wrong_places(content)
                if places is not None and _is_mended(location, places, before):
                    self._content = content
                    self._mended.add(location)
                    return True
            location = location[:-1]
        return False

    def _wrong_places(self, content: Any) -> set[Location]:
        try:
            self._file.validate(content)
        except ValidationError as error:
            return {location for location, _ in self._file.located_problems(error)}
        return set()


def _overlap(one: Location, other: Location) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def _is_mended(location: Location, places: set[Location], before: set[Location]) -> bool:
    """Whether what is wrong at `places` is neither at `location`, nor caused by its stand-in.

    Mistakes elsewhere may have been hidden by this mistake.
    """
    depth = len(location)
    inside = any(place[:depth] == location for place in places)
    around = any(location[: len(place)] == place for place in places - before)
    return not inside and not around


def _replaced(content: Any, location: Location, stand_in: Any) -> Any:
    """Returns a copy of `content` with `stand_in` at `location`, or None if it cannot be there."""
    content = copy.deepcopy(content)
    *parents, last = location
    holder = content
    try:
        for part in parents:
            holder = holder[part]
        if stand_in is not _ABSENT:
            holder[last] = stand_in
        elif isinstance(holder, dict):
            del holder[last]
        else:
            return None  # the places behind it in a list would change
    except (KeyError, IndexError, TypeError):
        return None
    return content
