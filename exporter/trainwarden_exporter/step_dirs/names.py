"""Parses the names of step directories."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_EPOCH = re.compile(
    r"(?i)(?:epoch|(?<![a-z])ep)s?[^a-z\d/]{0,2}\d+"
    r"(?:[-_ ,]+[a-z_]+=?-?\d+\.\d+)*(?:\.[a-z]\w*)*$"
)


def counts_epochs(path: str) -> bool:
    """Whether the number in the name of an entry is that of an epoch, as in `epoch-7.pt`."""
    return _EPOCH.search(path) is not None


def number_unit(path: str) -> str:
    """Returns what that number counts, in one word."""
    return "epoch" if counts_epochs(path) else "step"


class StepDirName(NamedTuple):
    """A name of an entry. `number` is the number in it, or None."""

    text: str
    number: int | None
    partial: bool = False
    """Whether the name is that of an incomplete entry."""

    @property
    def sort_key(self) -> tuple[int, str]:
        """Returns the key that sorts entries in order of creation, as far as names tell."""
        return (-1 if self.number is None else self.number, self.text)


@dataclass(frozen=True, slots=True)
class NameParser:
    """Recognises the names of entries by regular expressions for full names.

    The number is that of the group `step`, if any.
    """

    entry: str
    partial: str = ""

    def parse(self, name: str) -> StepDirName | None:
        """Returns None for other names."""
        if self.partial and (match := re.fullmatch(self.partial, name)):
            return StepDirName(name, _number(match), partial=True)
        match = re.fullmatch(self.entry, name)
        return None if match is None else StepDirName(name, _number(match))


def _number(match: re.Match[str]) -> int | None:
    text = match["step"] if "step" in match.re.groupindex else None
    return int(text) if text is not None and text.isdecimal() else None
