"""Escapes text for Markdown. Pure.

Text from alerts, logs and command lines is untrusted: it must not start a heading, close a fence or
open a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from html import escape, unescape

from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.webserver.runbooks import PUBLISHED, runbook_names
from trainwarden_remediator.journal.event_text import printable

_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")

_BEGINNING = re.compile(r"^(\s*)([-+>=#]|\d+[.)])")

_SPAN = re.compile(r"`([^`\s][^`]*)`")

_RUNS = re.compile(r"`+")

_FENCE = re.compile(r"\s*(```+)")
_ENTITY = re.compile(r"&(?:lt|gt|amp);")
_RUNBOOK = re.compile(rf"<{re.escape(PUBLISHED)}(\w+)\.md>")


def text(content: str) -> str:
    """Returns `content` as plain text of one line; what it has in backticks stays inline code.

    Escapes no more than it must: a report is read in a terminal, too.
    """
    line = " ".join(printable(content.replace("\n", " ").replace("\t", " ")).split())
    parts = _SPAN.split(line)
    parts[::2] = [_SPECIAL.sub(r"\\\1", escape(part, quote=False)) for part in parts[::2]]
    parts[1::2] = map(code, parts[1::2])
    return _BEGINNING.sub(_escaped, "".join(parts))


def code(content: str) -> str:
    """Returns `content` as inline code, also valid in a table."""
    line = printable(" ".join(content.split())).replace("|", "\N{BROKEN BAR}")
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> str:
    """Returns `lines` as a code block, with a fence longer than any run of backticks in it."""
    kept = [printable(line) for line in lines]
    ticks = "`" * max(3, max(map(_longest_run, kept), default=0) + 1)
    return "\n".join((f"{ticks}{language}", *kept, ticks))


def link(url: str) -> str:
    """Returns a link to `url`, or `url` as code if it is not a plain web address."""
    if re.fullmatch(r"https?://[^\s<>\"'`\\]{1,1000}", url):
        return f"<{url}>"
    return code(url)


def collapsible(summary: str, content: str) -> str:
    """Returns `content` (Markdown) as a collapsible section below `summary`."""
    title = escape(printable(" ".join(summary.split())), quote=False)
    return f"<details>\n<summary>{title}</summary>\n\n{content}\n\n</details>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; cells are already Markdown of one line."""
    ruled = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join((*ruled, *(f"| {' | '.join(row)} |" for row in rows)))


def bullets(points: Iterable[str]) -> str:
    """Returns a bullet list; each point is already Markdown of one line."""
    return "\n".join(f"- {point}" for point in points)


def for_terminal(report: str) -> str:
    """Returns a report with its text outside of code blocks as a terminal shows it best.

    No other entity is resolved: text of a log must not become a control character.
    """
    lines, fence_ticks = [], ""
    for line in report.splitlines(keepends=True):
        if found := _FENCE.match(line):
            if not fence_ticks:
                fence_ticks = found[1]
            elif line.strip() == fence_ticks:
                fence_ticks = ""
        lines.append(line if fence_ticks else _ENTITY.sub(_character, _RUNBOOK.sub(_command, line)))
    return "".join(lines)


def _character(found: re.Match[str]) -> str:
    return unescape(found[0])


def _command(found: re.Match[str]) -> str:
    shown = found[1] in runbook_names()
    return code(f"trainwarden runbook {found[1]}") if shown else found[0]


def _escaped(match: re.Match[str]) -> str:
    mark = match[2]
    return match[1] + (f"\\{mark}" if len(mark) == 1 else f"{mark[:-1]}\\{mark[-1]}")


def _longest_run(line: str) -> int:
    return max((len(run) for run in _RUNS.findall(line)), default=0)


_HALF_DAY = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """Formats times in the time zone `zone`; None: the zone of the machine."""

    zone: tzinfo | None = None

    def clock(self, at: float) -> str:
        """`02:15:03`."""
        return f"{self.local(at):%H:%M:%S}"

    def full(self, at: float) -> str:
        """`Sun 22 Nov 2026, 02:15:03 CET`."""
        return f"{self.local(at):%a %d %b %Y, %H:%M:%S %Z}"

    def short(self, at: float) -> str:
        """`22 Nov 02:15`."""
        return f"{self.local(at):%d %b %H:%M}"

    def night(self, at: float) -> date:
        """Returns the date on which the night of `at` begins: nights last from noon to noon."""
        return (self.local(at) - _HALF_DAY).date()

    def local(self, at: float) -> datetime:
        """Returns the time in this zone."""
        return datetime.fromtimestamp(at, self.zone).astimezone(self.zone)


def format_offset(at: float, start: float) -> str:
    """Formats the time since `start`, as `+1 min 3 s`."""
    passed = at - start
    if passed < 0:
        return f"\N{MINUS SIGN}{format_duration(round(-passed))}" if passed <= -1 else "0 s"
    return f"+{format_duration(round(passed))}"


def format_elapsed(seconds: float) -> str:
    """Formats a duration in whole seconds, below ten seconds in tenths."""
    seconds = max(seconds, 0.0)
    return format_duration(round(seconds)) if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - see the docstring
