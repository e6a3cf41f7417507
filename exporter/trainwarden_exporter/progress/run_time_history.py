"""The time of all runs by state, over restarts of the exporter, reloads and a clock that is set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.progress.run_time import RunState, RunTime, count_event, count_look
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.runtime.state_file import StateFile

_CLOCK_SET_SECONDS = 5.0
"""Difference between two clocks over one look from which on the wall clock was set."""

DAY_SECONDS = 86400.0
PART_SECONDS = 600.0
"""Length of the parts that a day is shown in."""

Part = tuple[float, Mapping[RunState, float]]
"""End of a part of a day (Unix seconds), and the seconds of the run by state in it."""


class RunDay(NamedTuple):
    """The last 24 hours of a run, which are only computed when a page shows them."""

    run: str
    read: Callable[[], tuple[Part, ...]]
    """Returns the parts, oldest first; the first ends when the run was first watched."""


KEPT_SECONDS = 7 * 86400.0
"""Seconds for which the time of a run that is not configured any more is kept."""

MAX_KEPT = 200
"""Number of such runs; the most recently watched are kept."""


def retain(times: Mapping[str, RunTime], runs: Collection[str], now: float) -> dict[str, RunTime]:
    """Returns the times of `runs`, and those of other runs that may be configured again.

    A run that `trainwarden run` announces is not configured while it is stopped or starts. It was
    not watched meanwhile, so that time is unknown and not down.
    """
    others = [run for run, time in times.items() if now - time.looked_at < KEPT_SECONDS]
    newest = sorted(others, key=lambda run: times[run].looked_at)[-MAX_KEPT:]
    kept = {run: replace(times[run], down=False) for run in newest}
    return kept | {run: times[run] for run in runs if run in times}


class RunTimes:
    """How the time of each run was spent. Not thread-safe; times are Unix seconds.

    `elapsed` is a clock that nobody sets and that goes on while the host sleeps.
    """

    def __init__(
        self,
        runs: Collection[str],
        state_folder: Path | None,
        now: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        files = [
            None if state_folder is None else state_folder / name
            for name in ("run_time.json", "run_days.json")
        ]
        self._file = StateFile[dict[str, RunTime]](files[0], dict[str, RunTime], empty={})
        self._days_file = StateFile[dict[str, tuple[Part, ...]]](
            files[1], dict[str, tuple[Part, ...]], empty={}
        )
        self._now, self._elapsed = now, elapsed
        self._clocks = now(), elapsed()
        self._times = retain(self._file.value, runs, now())
        self._days = {run: self._days_file.value.get(run, ()) for run in runs}

    def reconfigure(self, successor: RunTimes, runs: Collection[str]) -> None:
        """Continues with `runs` and the files of `successor`."""
        self._file, self._days_file = successor._file, successor._days_file
        self._times = retain(self._times, runs, self._now())
        self._days = {run: self._days.get(run, ()) for run in runs}

    def follow_clock(self) -> None:
        """Shifts all times by as much as the clock was set since the last call."""
        before, self._clocks = self._clocks, (self._now(), self._elapsed())
        now, elapsed = self._clocks
        set_by = (now - before[0]) - (elapsed - before[1])
        if abs(set_by) > _CLOCK_SET_SECONDS:
            self._times = {run: time.shifted(set_by, now) for run, time in self._times.items()}
            self._days = {
                run: tuple((end + set_by, seconds) for end, seconds in parts)
                for run, parts in self._days.items()
            }

    def count_event(
        self, run: str, old: RunProgress, new: RunProgress, at: float, limit: float | None
    ) -> None:
        """Counts the time of a watched run until an event, as `run_time.count_event`."""
        if run in self._times:
            self._times[run] = count_event(self._times[run], old, new, at, limit)

    def count_look(
        self, run: str, state: RunProgress, *, alive: bool, limit: float | None, held: bool
    ) -> None:
        """Counts the time of a run until now, as `run_time.count_look`."""
        now = self._now()
        time = self._times.get(run, RunTime(now, now))
        time = self._times[run] = count_look(time, state, now, alive=alive, limit=limit, held=held)
        parts = self._days.get(run, ())
        if not parts or now - parts[-1][0] >= PART_SECONDS:
            kept = [part for part in parts if now - part[0] <= DAY_SECONDS + PART_SECONDS]
            self._days[run] = (*kept, (now, time.seconds))

    def save(self, runs: Collection[str]) -> dict[str, RunTime]:
        """Stores all times, and returns those of `runs` as stored."""
        times = dict(self._times)
        self._file.save(times)
        self._days_file.save(dict(self._days))
        return {run: times[run] for run in runs if run in times}

    def day(self, run: str) -> tuple[Part, ...]:
        """Returns how the last 24 hours of a run were spent, in parts, oldest first.

        The first part is empty, and ends where the second begins; the last one ends now.
        """
        marks = list(self._days.get(run, ()))
        if (time := self._times.get(run)) is not None:
            marks.append((self._now(), time.seconds))
        return (*((end, {}) for end, _ in marks[:1]), *self._parts(marks))

    @staticmethod
    def _parts(marks: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(
            (
                end,
                {
                    state: more
                    for state, total in seconds.items()
                    if (more := total - before.get(state, 0.0)) > 0
                },
            )
            for (_, before), (end, seconds) in pairwise(marks)
        )
