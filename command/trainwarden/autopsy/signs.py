"""The signs that speak for or against a cause: each looks at the case and finds evidence or not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainwarden.autopsy.case import Case
from trainwarden.autopsy.kinds import Kind
from trainwarden_exporter.runtime.formatting import format_duration, format_time


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found: a sentence, and the line that shows it."""

    text: str
    line: str = ""


Find = Callable[[Case], Evidence | None]


@dataclass(frozen=True, slots=True)
class Sign:
    """Evidence and its weight: points above zero speak for the cause, below zero against it."""

    points: int
    find: Find
    key: bool = False
    """Whether the cause is considered only with this sign, or with another key sign."""


_RANK = re.compile(r"^\[?rank ?\d+\]?:")
_OF_LAUNCHER = re.compile(r"\b(?:ChildFailedError|CalledProcessError):")


def _uncaught(found: Kind) -> str:
    """Returns the last exception, or the first one where others only follow from that.

    Of one program, the last exception was not caught; those of other ranks and of what has started
    it are consequences.
    """
    first, last = found.first, found.last
    ranks = [match and match[0] for match in (_RANK.match(one.text) for one in (first, last))]
    follows = first.file != last.file or ranks[0] != ranks[1] or _OF_LAUNCHER.search(last.text)
    return first.text if follows else last.text


def lines(
    *kinds: str, points: int, what: str, least: int = 1, key: bool = True, role: str = ""
) -> Sign:
    """Lines of `kinds` that no progress followed; with `role`, only in the logs of that part."""

    def find(case: Case) -> Evidence | None:
        found = case.late_in(role, *kinds) if role else case.late(*kinds)
        if found is None or found.count < least:
            return None
        before = 0 if role else (case.find(*kinds) or found).count - found.count
        more = f"; before the last progress, {before} more" if before > 0 else ""
        line = _uncaught(found) if kinds == ("raised",) else found.last.text
        return Evidence(f"{what}: {describe(found)}{more}", line)

    return Sign(points, find, key=key)


def any_time(*kinds: str, points: int, what: str, least: int = 1, key: bool = True) -> Sign:
    """Lines of `kinds` at any time, also before later progress."""

    def find(case: Case) -> Evidence | None:
        found = case.find(*kinds)
        if found is None or found.count < least:
            return None
        return Evidence(f"{what}: {describe(found)}", found.last.text)

    return Sign(points, find, key=key)


def absent(*kinds: str, points: int, what: str) -> Sign:
    """No such line in any log, although some log was read."""

    def find(case: Case) -> Evidence | None:
        return Evidence(what) if case.logs and case.find(*kinds) is None else None

    return Sign(points, find)


def first_of(*kinds: str, points: int = 2) -> Sign:
    """The first error after the last progress is one of `kinds`: what follows are consequences."""

    def find(case: Case) -> Evidence | None:
        first = case.first_error
        if first is None or first.kind not in kinds:
            return None
        return Evidence("It is the first error after the last progress")

    return Sign(points, find)


_HARMS_THE_RESULT = frozenset(
    (
        *("disk_full", "not_writable", "disk_error", "gpu_out_of_memory", "host_out_of_memory"),
        *("oom_kill", "gpu_fault"),
    )
)
"""After the end of the training, what remains is a last save. Other errors are those of programs
that end one after the other."""


def _finished(case: Case) -> Evidence | None:
    error = case.first_error
    if not case.finished or (error is not None and error.kind in _HARMS_THE_RESULT):
        return None
    return Evidence("The run reported that it finished")


FINISHED = Sign(-8, _finished)


def describe(found: Kind) -> str:
    """`64 times, from 05:09:02 to 18:33:10 UTC, in trainer.log`."""
    count = "once" if found.count == 1 else f"{found.count} times"
    start, end = found.first.at, found.last.at
    when = ""
    if start is not None and end is not None and end - start >= 1:
        when = f", from {format_time(start)} to {format_time(end)}"
        if end - start >= 3600:  # noqa: PLR2004 - below an hour the two times show it
            when += f" ({format_duration(end - start)})"
    elif (at := start or end) is not None:
        when = f", {'the last ' * (start is None)}at {format_time(at)}"
    names = list(found.files)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004 - enough to find it
    return f"{count}{when}, in {', '.join(names[:3])}{more}"
