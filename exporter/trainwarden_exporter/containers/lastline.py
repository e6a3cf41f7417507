"""Makes the last line of a log fit to be a label: short, plain, and steady."""

from __future__ import annotations

import re
from collections.abc import Iterable

LENGTH = 200
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_NUMBER = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)


def last_line(lines: Iterable[str]) -> str:
    """The last of `lines` that says anything, plain and cut to 200 characters; empty if none."""
    said = ""
    for line in lines:
        said = plain(line) or said
    return said


def plain(line: str) -> str:
    """`line` without colours and control characters, of what a progress bar overwrote the rest."""
    shown = [part for part in _ESCAPE.sub("", line).split("\r") if part.strip()]
    letters = (letter if letter.isprintable() else " " for letter in (shown[-1] if shown else ""))
    return " ".join("".join(letters).split())[:LENGTH]


def steady(said: str, before: str) -> str:
    """`before`, if `said` differs from it in numbers only; else `said`.

    Else each round of a loop that prints a time, a pid or an address would make another series.
    """
    return before if _NUMBER.sub("0", said) == _NUMBER.sub("0", before) else said
