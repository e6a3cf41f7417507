"""Weighs the causes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trainwarden.autopsy.case import ALIVE_SECONDS, Case
from trainwarden.autopsy.cause import LIKELY, Cause
from trainwarden.autopsy.machine_causes import MACHINE_CAUSES
from trainwarden.autopsy.pause import Pause, find_pause
from trainwarden.autopsy.run_causes import RUN_CAUSES
from trainwarden.autopsy.signs import Evidence
from trainwarden_exporter.runtime.formatting import format_duration

CAUSES = (*MACHINE_CAUSES, *RUN_CAUSES)
"""Of equal scores, the first is shown first."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A cause with the evidence that was found."""

    cause: Cause
    evidence: tuple[tuple[int, Evidence], ...]

    @property
    def title(self) -> str:
        """The title of the cause, with the line that shows it where that is what an error says."""
        lines = (found.line for points, found in self.evidence if points > 0 and found.line)
        line = next(lines, "") if self.cause.quotes else ""
        return f"{self.cause.title}: {line.rstrip('.')}" if line else self.cause.title

    @property
    def score(self) -> int:
        return sum(points for points, _ in self.evidence)

    @property
    def likely(self) -> bool:
        return self.score >= LIKELY

    @property
    def opposing(self) -> tuple[tuple[int, Evidence], ...]:
        return tuple(one for one in self.evidence if one[0] < 0)


class Verdict:
    """What the case comes to."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @cached_property
    def weighed(self) -> tuple[Weighed, ...]:
        """All causes that have a key sign, the likeliest first."""
        found = [one for cause in CAUSES if (one := weigh(cause, self.case)) is not None]
        return tuple(sorted(found, key=lambda one: -one.score))

    @property
    def likely(self) -> tuple[Weighed, ...]:
        return tuple(one for one in self.weighed if one.likely)

    @property
    def unlikely(self) -> tuple[Weighed, ...]:
        return tuple(one for one in self.weighed if not one.likely)

    @property
    def has_material(self) -> bool:
        material = self.case.material
        return bool(material.logs or material.checkpoints or material.announced)

    @cached_property
    def pause(self) -> Pause | None:
        return find_pause(self.case)

    @property
    def headline(self) -> str:
        case = self.case
        if not self.has_material:
            return "The folder holds no log and no checkpoint of a run."
        title = f"{case.not_started or self.likely[0].title}." if self.likely else ""
        if self.pause is not None:
            is_all = not self.likely or self.likely[0].cause.name == "stalled"
            return f"{self.pause}." if is_all else f"{self.pause}. {title}"
        if title:
            return title
        if case.finished:
            return "Nothing wrong was found: the run finished."
        if case.latest is None:
            return "No cause was found, and no step either: the logs show no training."
        if case.may_be_active:
            ago = 0.0 if case.last_sign is None else case.material.now - case.last_sign[0]
            when = "was active within the last minutes"
            if case.material.announced and ago >= ALIVE_SECONDS:
                when = f"is active, with its last sign of life {format_duration(ago)} ago"
            survived = " It survived the errors below." if case.errors else ""
            return f"Nothing wrong was found: the run {when}.{survived}"
        whole = ", and its last count is complete" if case.latest.at_total else ""
        return f"No error was found{whole}; {case.latest.file} ends with: {case.last_line}"


def weigh(cause: Cause, case: Case) -> Weighed | None:
    """Returns `cause` with its evidence; None without a key sign."""
    evidence: list[tuple[int, Evidence]] = []
    considered = False
    for sign in cause.signs:
        if (found := sign.find(case)) is not None:
            evidence.append((sign.points, found))
            considered = considered or sign.key
    return Weighed(cause, tuple(evidence)) if considered else None
