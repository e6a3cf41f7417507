"""Finds how long a living run has made no step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.autopsy.case import ALIVE_SECONDS, Case
from trainwarden_exporter.runtime.formatting import format_duration

STILL_SECONDS = 1800.0
"""Time without progress that is a stall, whatever the usual time of a step."""
AFTER_ERROR_SECONDS = 60.0
"""Time without progress that a report mentions after an error, which an evaluation does not log."""
USUAL_STEPS = 5
"""Usual steps without a step that a report mentions."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A run that lives and makes no step for much longer than usual."""

    run: str
    seconds: float
    usual: float
    """Usual seconds of a step; 0 if unknown."""

    def __str__(self) -> str:
        usual = f", {self.seconds / self.usual:,.0f} usual steps" if self.usual else ""
        return (
            f"Run {self.run} lives, but has made no step for {format_duration(self.seconds)}"
            f"{usual}: `trainwarden stacks {self.run}` shows what it does"
        )


def find_pause(case: Case) -> Pause | None:
    """Returns how long a living run has made no step; None below a few minutes or usual steps."""
    latest = case.latest
    running = [one for one in case.material.announced if one.alive and not one.ended]
    if latest is None or latest.last_step is None or not running:
        return None
    log = next(one for one in case.logs if one.name == latest.file)
    worker = next((one for one in running if one.wrote(log)), running[0])
    # Of lines without times, the last change of their file is the time of the last one.
    at = log.log.modified if latest.progress_at is None else latest.progress_at
    steps, began = latest.last_step - (latest.first_step or 0), latest.began_at
    if began is None or latest.progress_at is None:
        steps, began = steps + 1, worker.started_at
    usual = max(0.0, at - began) / steps if steps else 0.0
    seconds = case.material.now - max(at, worker.started_at)
    least = USUAL_STEPS * usual if usual else STILL_SECONDS
    shortest = ALIVE_SECONDS if case.first_error is None else AFTER_ERROR_SECONDS
    return Pause(worker.run, seconds, usual) if seconds >= max(shortest, least) else None
