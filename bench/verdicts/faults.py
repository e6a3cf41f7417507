"""Model of a fault: its effect, the required alerts with deadlines, and the permitted ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwarden_exporter.progress.stall_limits import pause_limit, restart_limit, stall_limit
from verdicts.box import Happening
from verdicts.page import BASE
from verdicts.run import Run

Strike = Callable[[], None]
"""Says that the fault is there from now on."""
Happens = Callable[[Run, Strike], Happening]


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert that must fire within so many seconds of the fault, or as many as the run gives."""

    alert: str
    severity: str
    within: float | Callable[[Run], float]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """`happens` goes on from some time on, and strikes; the bench looks `watch` seconds longer."""

    name: str
    happens: Happens
    expected: tuple[Expected, ...]
    watch: float
    beside: Mapping[str, str] = field(default_factory=dict)
    """Alerts that may fire besides, and why."""
    needs: Mapping[str, object] = field(default_factory=dict)
    """What the shape must have."""
    frameworks: tuple[str, ...] = ()
    """Where not all."""
    prepare: Callable[[Run], None] | None = None
    """What is different on this box from its beginning."""
    old: bool = False
    """Whether the run must have been going for hours."""
    night: int = 0
    """Which of the five nights it is a variant of."""


CONSEQUENCES: Mapping[str, str] = {
    "TrainingStepStalled": "a run without a needed part stalls",
    "TrainingWaitingForRollouts": "its trainer waits meanwhile",
    "TrainingWaitingForServer": "also while a server starts",
    "TrainingInferenceRecovering": "a server of it was down",
    "TrainingRolloutLag": "no new batch comes",
    "TrainingLogSilent": "a stalled run writes nothing",
    "TrainingCheckpointOverdue": "a stalled run saves nothing",
    "TrainingGpuIdle": "a stalled run uses no GPU",
    "TrainingInferenceQueueStarved": "servers receive no requests meanwhile",
    "TrainingWeightUpdateSlow": "it stalls in an update, or has reported none since",
    "TrainingTimeLost": "most of the time is lost, once an hour of it was counted",
}
"""Of a run that cannot go on, for whatever reason."""

ERRORS: Mapping[str, str] = {
    "TrainingErrorStorm": "each try leaves a line",
    "TrainingTroubleLine": "one of the lines says what it is",
}

SERVER_DOWN: Mapping[str, str] = {
    **CONSEQUENCES,
    **ERRORS,
    "TrainingWorkerGone": "its process is gone; the server's own alert mutes this",
    "TrainingInferenceErrors": "requests in flight fail",
    "TrainingInferenceRecovering": "it is down, or was a moment ago",
}


def at(run: Run) -> float:
    """Seconds since the first scrape."""
    return run.box.now - BASE


def until(run: Run, condition: Callable[[], bool], *, most: float = 1800.0) -> Happening:
    """Wait for a moment that suits the fault."""
    began = run.box.world
    while not condition() and run.box.world - began < most:
        yield 1.0


def usual_step(run: Run) -> float:
    """What the exporter takes for a usual step; nought where it does not know."""
    return next((course.timing.typical or 0.0 for _, course in run.box.tracker.states()), 0.0)


def stall_limit_of(run: Run) -> float:
    """The limit that the exporter exports now, with signs of a problem."""
    return next(
        stall_limit(course, spec.limits) or 1800.0 for spec, course in run.box.tracker.states()
    )


def pause_limit_of(run: Run) -> float:
    """The same where nothing does."""
    return next(
        pause_limit(course, spec.limits) or 1800.0 for spec, course in run.box.tracker.states()
    )


def restart_limit_of(run: Run) -> float:
    """After how long a silence the run would then be restarted."""
    return next(
        restart_limit(course, spec.limits, evaluations_announced=spec.announces_evaluations)
        or 1800.0
        for spec, course in run.box.tracker.states()
    )


def beyond_a_step(run: Run) -> float:
    """The deadline for the alert on a wait with a known cause: a minute after a step was due."""
    return 60 + usual_step(run)


def late(run: Run) -> float:
    """The same of a wait that is merely long."""
    usual = usual_step(run)
    return max(60 + usual, 2 * usual + 15)
