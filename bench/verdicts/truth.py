"""The true states of a modelled run, and which of them its exporter could see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.progress.run_time_evidence import GAP_SECONDS


class Span(NamedTuple):
    """Seconds of the world in which a run is in one state."""

    start: float
    end: float
    state: RunState
    visible: bool
    """Whether anything that the exporter watches shows it."""


@dataclass
class Truth:
    """What a run truly does. Times are seconds of the world, which no clock that is set moves."""

    made: int = 0
    """Steps since the beginning,"""
    redone: int = 0
    """those of them that were made before,"""
    lost: int = 0
    """and the steps that restarts threw away."""
    seen: tuple[int, int, int] = (0, 0, 0)
    """These three at the last look."""
    looks: list[float] = field(default_factory=list)
    """When its exporter looked."""
    _marks: list[tuple[float, RunState, bool]] = field(default_factory=list)

    def look(self, world: float) -> None:
        """Its exporter looks."""
        self.looks.append(world)
        self.seen = self.made, self.redone, self.lost

    def note(self, world: float, state: RunState, *, visible: bool) -> None:
        """From now on the run is in `state`."""
        if not self._marks or self._marks[-1][1:] != (state, visible):
            self._marks.append((world, state, visible))

    def restate(self, since: float, state: RunState) -> None:
        """The run has been in `state` since then, as is only known now."""
        visible = self._marks[-1][2]
        self._marks = [mark for mark in self._marks if mark[0] < since]
        self.note(since, state, visible=visible)

    def spans(self, until: float) -> Iterator[Span]:
        """The states since the first look until `until`, cut where nobody looked."""
        if not self.looks:
            return
        ends = [*self._marks[1:], (until, RunState.UNKNOWN, True)]
        gaps = [pair for pair in pairwise(self.looks) if pair[1] - pair[0] > GAP_SECONDS]
        for (start, state, visible), (end, *_) in zip(self._marks, ends, strict=True):
            first, last = max(start, self.looks[0]), min(end, until)
            if last <= first:
                continue
            dark = [(max(a, first), min(b, last)) for a, b in gaps if a < last and b > first]
            at = first
            for a, b in dark:
                if a > at:
                    yield Span(at, a, state, visible)
                yield Span(a, b, state, visible=False)
                at = b
            if last > at:
                yield Span(at, last, state, visible)
