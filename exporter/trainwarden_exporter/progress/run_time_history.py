"""The time of all runs by state, over restarts of the exporter, reloads and a clock that is set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.run_time import RunState, RunTime
from trainwarden_exporter.progress.run_time_evidence import (
    RunLook,
    count_boot,
    count_event,
    count_look,
    count_save,
)
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import SilenceLimits, silence_limits
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.runtime.state_file import StateFile

_CLOCK_SET_SECONDS = 5.0
"""Difference between two clocks over one look from which on the wall clock was set."""

_READ_SECONDS = 1.0
"""Seconds between two readings of clocks from which on they cannot be compared."""

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

    `elapsed` is a clock that nobody sets and that goes on while the host sleeps: the time since the
    boot.
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
        self._movements: dict[str, Movement] = {}
        """What the processes of each run did at the last look."""
        self._known_limits: dict[str, tuple[RunProgress, Movement, SilenceLimits]] = {}
        """The last limits of each run, and what they were computed from."""
        self._times = retain(self._file.value, runs, now())
        self._days = {run: self._days_file.value.get(run, ()) for run in runs}

    def reconfigure(self, successor: RunTimes, runs: Collection[str]) -> None:
        """Continues with `runs` and the files of `successor`."""
        self._file, self._days_file = successor._file, successor._days_file
        self._times = retain(self._times, runs, self._now())
        self._known_limits = {}
        self._days = {run: self._days.get(run, ()) for run in runs}

    def follow_clock(self) -> float:
        """Shifts all times by as much as the clock was set since the last call.

        Returns the seconds; 0 where it was not set.
        """
        asked = self._elapsed()
        now, elapsed = self._now(), self._elapsed()
        if elapsed - asked > _READ_SECONDS:
            return 0.0  # the two were read at different times
        before, self._clocks = self._clocks, (now, elapsed)
        set_by = (now - before[0]) - (elapsed - before[1])
        if abs(set_by) <= _CLOCK_SET_SECONDS:
            return 0.0
        self._times = {run: time.shifted(set_by, now) for run, time in self._times.items()}
        self._days = {
            run: tuple((end + set_by, seconds) for end, seconds in parts)
            for run, parts in self._days.items()
        }
        return set_by

    def count_boot(self, spec: ProgressSpec, state: RunProgress) -> None:
        """Counts the time of a run until the boot of the host, as `count_boot` does."""
        now, elapsed = self._clocks
        if (time := self._times.get(spec.run)) is not None:
            booted = now - elapsed - _CLOCK_SET_SECONDS
            self._times[spec.run] = count_boot(time, state, booted, self._limits(spec, state))

    def count_event(
        self, spec: ProgressSpec, old: RunProgress, new: RunProgress, at: float
    ) -> None:
        """Counts the time of a watched run until an event, as `count_event` does."""
        if (time := self._times.get(spec.run)) is not None:
            self._times[spec.run] = count_event(time, old, new, at, self._limits(spec, old))

    def count_save(
        self, spec: ProgressSpec, state: RunProgress, began: float, ended: float
    ) -> None:
        """Counts a save whose files are complete, as `count_save` does."""
        if (time := self._times.get(spec.run)) is not None and time.counted_until < ended:
            limits = self._limits(spec, state)
            self._times[spec.run] = count_save(time, state, began, ended, limits)

    def count_look(self, spec: ProgressSpec, state: RunProgress, look: RunLook) -> None:
        """Counts the time of a run until now, as `count_look` does."""
        now, run = self._now(), spec.run
        self._movements[run] = look.movement
        limits = self._limits(spec, state)
        if not (look.finished or state.reports or spec.has_step_source):
            state = replace(state, phase=None)  # a start whose end would not be seen
        time = self._times.get(run) or RunTime(now, now)
        time = count_look(time, state, now, look, limits)
        self._times[run] = time
        parts = self._days.get(run, ())
        if not parts or now - parts[-1][0] >= PART_SECONDS:
            kept = [part for part in parts if now - part[0] <= DAY_SECONDS + PART_SECONDS]
            self._days[run] = (*kept, (now, time.seconds))

    def _limits(self, spec: ProgressSpec, state: RunProgress) -> SilenceLimits:
        movement = self._movements.get(spec.run, Movement.UNKNOWN)
        known = self._known_limits.get(spec.run)
        if known is not None and known[0] is state and known[1] is movement:
            return known[2]
        limits = silence_limits(
            state, spec.limits, announced=spec.announces_evaluations, movement=movement
        )
        self._known_limits[spec.run] = state, movement, limits
        return limits

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
