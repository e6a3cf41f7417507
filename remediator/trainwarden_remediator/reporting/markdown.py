"""Writes text into Markdown so that it stays text, whatever it holds. Pure.

What comes from alerts, logs and command lines may hold anything; none of it may begin a heading,
close a fence or open a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from trainwarden_remediator.story import printable

_SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")
_BEGINNING = re.compile(r"^(\s*)([-+>=]|\d+[.)])")
_RUNS = re.compile(r"`+")


def text(given: str) -> str:
    """`given` as plain text of one line."""
    line = " ".join(printable(given.replace("\n", " ").replace("\t", " ")).split())
    line = _SPECIAL.sub(r"\\\1", escape(line, quote=False))
    return _BEGINNING.sub(_escaped, line)


def code(given: str) -> str:
    """`given` as code within a line; in a table, too."""
    line = printable(" ".join(given.split())).replace("|", "\N{BROKEN BAR}")
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> str:
    """Lines as a block of code, in a fence longer than any run of backticks within."""
    kept = [printable(line) for line in lines]
    ticks = "`" * max(3, max(map(_longest_run, kept), default=0) + 1)
    return "\n".join((f"{ticks}{language}", *kept, ticks))


def link(url: str) -> str:
    """A link to `url` as it stands; where it is no plain web address, that as code."""
    if re.fullmatch(r"https?://[^\s<>\"'`\\]{1,1000}", url):
        return f"<{url}>"
    return code(url)


def folded(summary: str, content: str) -> str:
    """`content`, Markdown, below a line that a person may open."""
    said = escape(printable(" ".join(summary.split())), quote=False)
    return f"<details>\n<summary>{said}</summary>\n\n{content}\n\n</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown of one line already."""
    ruled = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join((*ruled, *(f"| {' | '.join(row)} |" for row in rows)))


def bullets(points: Iterable[str]) -> str:
    """Points, each Markdown of one line."""
    return "\n".join(f"- {point}" for point in points)


def _escaped(match: re.Match[str]) -> str:
    mark = match[2]
    return match[1] + (f"\\{mark}" if len(mark) == 1 else f"{mark[:-1]}\\{mark[-1]}")


def _longest_run(line: str) -> int:
    return max((len(run) for run in _RUNS.findall(line)), default=0)
