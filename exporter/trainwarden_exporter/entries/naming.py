"""How the names of entries are read. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class EntryName(NamedTuple):
    """A name that is an entry's. `number` is the one that stands in it, None where none does."""

    text: str
    number: int | None
    partial: bool = False
    """Whether it is the name of one that is still being written."""

    @property
    def order(self) -> tuple[int, str]:
        """By which the entries of a folder were made, as far as their names tell."""
        return (-1 if self.number is None else self.number, self.text)


@dataclass(frozen=True)
class Naming:
    """Which names in a folder are entries, by regular expressions for whole names.

    The number is that of the group `step`, where there is one.
    """

    entry: str
    partial: str = ""

    def parse(self, name: str) -> EntryName | None:
        """None for the name of something else."""
        if self.partial and (match := self._partial.fullmatch(name)):
            return EntryName(name, _number(match), partial=True)
        match = self._entry.fullmatch(name)
        return None if match is None else EntryName(name, _number(match))

    @cached_property
    def _entry(self) -> re.Pattern[str]:
        return re.compile(self.entry)

    @cached_property
    def _partial(self) -> re.Pattern[str]:
        return re.compile(self.partial)


def _number(match: re.Match[str]) -> int | None:
    text = match["step"] if "step" in match.re.groupindex else None
    return int(text) if text is not None and text.isdecimal() else None
