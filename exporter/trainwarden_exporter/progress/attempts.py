"""Remembers the attempts of runs: when each began and ended, with which steps, and how. Pure.

A crash ends an attempt anywhere; a restart loop ends each at the same step, in the same way. So
attempts that end alike show that another restart does not help.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.processes.matching import WorkerLiveness
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_exporter.runtime.state_file import StateFile

MAX_ATTEMPTS = 6
"""Attempts that are remembered of a run: the present one, and five that ended."""

ALIKE_STEPS = 1
"""Steps by which the ends of two attempts that end alike may differ."""

MAX_RUNS = 200
"""Runs whose attempts are remembered: the runs that changed last."""

LOOP_ATTEMPTS = 3
"""Number of attempts that end alike from which on this is a loop."""

SIGNALED = 128
"""A shell adds this to the number of the signal that ended a program."""

_SAME_START_SECONDS = 2.0
"""Seconds by which the start of one process may appear to differ across restarts of the
exporter."""


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """An attempt of a run: a life of its trainer's process. Times are Unix seconds."""

    started: float
    ended: float | None = None
    """When its process was first seen to be gone; None while it lives."""
    first_step: int | None = None
    last_step: int | None = None
    """Its first and last step; None if it made none."""
    exit_code: int | None = None
    """Exit code as in a shell; None while it is not known."""
    error: str = ""
    """Name of the pattern of its last fatal line."""

    def is_like(self, other: RunAttempt) -> bool:
        """Whether both failed at the same step, give or take one, with the same exit code."""
        if self.exit_code != other.exit_code or self.exit_code == 0:
            return False
        if self.last_step is None or other.last_step is None:
            return self.last_step is other.last_step
        return abs(self.last_step - other.last_step) <= ALIKE_STEPS


@dataclass(frozen=True, slots=True)
class AttemptEnds:
    """How the last attempts ended: `alike` of `ended` like the last."""

    ended: int
    alike: int
    text: str
    """A sentence without a full stop, if they end alike; else empty."""


def attempt_ends(attempts: Sequence[RunAttempt]) -> AttemptEnds:
    """Returns how the attempts that have ended did so."""
    ended = [one for one in attempts if one.ended is not None]
    alike = [one for one in ended if one.is_like(ended[-1])]
    text = _text(alike, len(ended)) if len(alike) >= LOOP_ATTEMPTS else ""
    return AttemptEnds(len(ended), len(alike), text)


def _text(alike: Sequence[RunAttempt], ended: int) -> str:
    steps = sorted(one.last_step for one in alike if one.last_step is not None)
    where = "before the first step"
    if steps:
        spread = f" ± {steps[-1] - steps[0]}" if steps[-1] > steps[0] else ""
        where = f"at step {steps[len(steps) // 2]}{spread}"
    seconds = [_rounded(one.ended - one.started) for one in alike if one.ended is not None]
    least, most = (format_duration(one) for one in (min(seconds), max(seconds)))
    lasted = f"about {least}" if least == most else f"{least} to {most}"
    error = alike[-1].error
    after = f", last error: {error}" if error and all(one.error == error for one in alike) else ""
    return (
        f"{len(alike)} of the last {ended} attempts ended {where}{_how(alike[-1].exit_code)} after "
        f"{lasted}{after}: another restart is unlikely to help"
    )


def _how(code: int | None) -> str:
    """Returns the exit code of a program, or the signal that ended it: SIGTERM was sent to it."""
    if code is None:
        return ""
    try:
        name = signal.Signals(code - SIGNALED).name
    except ValueError:
        return f" with exit code {code}"
    return f" by {name}{' from outside' if name == 'SIGTERM' else ''}"


def _rounded(seconds: float) -> float:
    """Returns `seconds` with two digits that count: the others differ between attempts."""
    return float(f"{max(1.0, seconds):.2g}")


class AttemptLog:
    """The last attempts of each run; they survive restarts of the exporter in `state_folder`.

    The file is written when an attempt begins or ends: the steps in between are in the file of the
    run's progress.
    """

    def __init__(self, state_folder: Path | None) -> None:
        path = None if state_folder is None else state_folder / "attempts.json"
        self._file = StateFile[dict[str, tuple[RunAttempt, ...]]](
            path, dict[str, tuple[RunAttempt, ...]], empty={}
        )
        self._attempts = dict(self._file.value)

    def take_over_from(self, predecessor: AttemptLog) -> None:
        """Continues with the attempts of `predecessor`."""
        self._attempts = dict(predecessor._attempts)

    def attempts(self, run: str) -> tuple[RunAttempt, ...]:
        """Returns the last attempts of a run, oldest first."""
        return self._attempts.get(run, ())

    def record(self, run: str, trainer: WorkerLiveness, progress: RunProgress, error: str) -> None:
        """Records the only trainer of a run, before its progress has a start of the trainer.

        `error` is the name of the pattern of the last fatal line of this attempt, or "".
        """
        before = self.attempts(run)
        after = _followed(before, trainer, progress, error)[-MAX_ATTEMPTS:]
        if after == before:
            return
        others = {name: one for name, one in self._attempts.items() if name != run}
        kept = dict(list(others.items())[1 - MAX_RUNS :])
        self._attempts = {**kept, run: after}
        if list(map(_ends, after)) != list(map(_ends, before)):
            self._file.save(dict(self._attempts))


def _ends(attempt: RunAttempt) -> tuple[float | int | None, ...]:
    return attempt.started, attempt.ended, attempt.exit_code


def _followed(
    attempts: tuple[RunAttempt, ...], trainer: WorkerLiveness, progress: RunProgress, error: str
) -> tuple[RunAttempt, ...]:
    started = trainer.started
    if attempts:
        last = attempts[-1]
        lives = started is not None and started <= last.started + _SAME_START_SECONDS
        last = _with_end(_with_steps(last, progress, error), trainer, lives=lives)
        attempts = (*attempts[:-1], last)
        if lives:
            return attempts
    return attempts if started is None else (*attempts, RunAttempt(started))


def _with_steps(attempt: RunAttempt, progress: RunProgress, error: str) -> RunAttempt:
    own = abs(progress.attempt.began - attempt.started) <= _SAME_START_SECONDS
    if not own or not progress.steps:
        return replace(attempt, error=error) if own else attempt
    first, last = progress.attempt.first_step, progress.steps[-1].step
    return replace(attempt, first_step=first, last_step=last, error=error)


def _with_end(attempt: RunAttempt, trainer: WorkerLiveness, *, lives: bool) -> RunAttempt:
    if lives:
        return attempt
    ended, code = attempt.ended, attempt.exit_code
    if ended is None:
        ended = trainer.looked_at if trainer.started is None else trainer.started
    if trainer.finished:
        code = 0
    elif trainer.exit_at is not None and trainer.exit_at >= attempt.started:
        code = trainer.exit_code if code is None else code
        ended = min(ended, trainer.exit_at)
    return replace(attempt, ended=ended, exit_code=code)
