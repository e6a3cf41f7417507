"""Stall limits: maximum times without progress. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.state import RunProgress

LIVE_LEEWAY = 1.2
"""Multiple of the longest silence so far that the next one may take, for live steps."""

PAUSE_LEEWAY = 2.0
"""Multiple of the longest harmless pause that the next pause may take. A warning fires at three
fifths of the limit, so not for a pause that is a fifth longer."""

STUCK_SECONDS = 120.0
"""Minimum silence after which a run that is stuck by its stacks may be restarted: time for two
rounds of samples, a minute apart."""


@dataclass(frozen=True, slots=True)
class StallLimits:
    """Limits in seconds, and factors."""

    factor: float = 5.0
    floor: float = 60.0
    first_step: float = 1800.0
    restart_factor: float = 25.0
    restart_floor: float = 1800.0
    phases: Mapping[Phase, float] = field(default_factory=dict)


def has_all_steps(state: RunProgress) -> bool:
    """Whether the run has made its last step, or goes on from a checkpoint of it.

    What follows shows no sign: a last save, an evaluation, a merge, an upload. A total that the run
    does not announce is that of an epoch while others follow.
    """
    total, step = state.total_steps, state.step
    if total is None or (state.total is None and state.epochs.more_follow):
        return False
    return state.attempt.checkpoint_step == total if step is None else step >= total


def stall_limit(state: RunProgress, limits: StallLimits) -> float | None:
    """Returns the seconds since the last sign of progress after which the run is stalled, or None.

    None before the first observation and after completion. While training, the limit is `factor`
    times the usual time, at least `floor`. The usual time is the median between signs, or the step
    time if that is longer; for a run without steps, the longest recent time between signs. Until a
    step of this attempt is observed and enough times are known, it is at least the limit of the
    first step, which covers loading, compilation and graph capture, and `factor` times the longest
    silence that earlier attempts, the first signs or old checkpoints show to be usual. A silence
    that began before anybody looked has its limit from the first look on.
    """
    if state.last_sign_at is None or state.finished:
        return None
    unseen = max(0.0, state.interrupted_at - state.last_sign_at) if is_unseen(state) else 0.0
    if state.phase is not None and state.phase in limits.phases:
        return limits.phases[state.phase] + unseen
    longest = state.timing.longest_usual_silence
    if longest is None:
        longest = max(_longest_possible(state, limits), state.record_silence)
    limit = max(limits.floor, limits.factor * longest)
    return max(limits.first_step, limit) + unseen if _usual(state, limits) is None else limit


def is_unseen(state: RunProgress) -> bool:
    """Whether the last sign of progress was made before anybody looked, at a time not known."""
    return state.last_sign is not None and not state.last_sign.dated


def unseen_limit(state: RunProgress, limits: StallLimits) -> float | None:
    """Returns the stall limit by the steps that were made before anybody looked, or None.

    Only stacks may show a stall by it. Without a pace from before, the mean time counts, which
    includes the start of the process and all evaluations. Where only the checkpoints show the pace,
    the usual time is that of the steps between two reports, not between two checkpoints.
    """
    timing, spacing = state.timing, state.attempt.spacing
    if not state.steps or not (is_unseen(state) or timing.from_records):
        return None
    usual, last, began = timing.usual_silence, state.steps[-1], state.attempt.began
    if timing.from_records and timing.undisturbed is not None and spacing is not None:
        usual = timing.undisturbed * spacing
    elif usual is None and state.attempt.started and is_unseen(state):
        usual = max(0.0, last.timestamp - began) / last.reports
    return None if usual is None else max(limits.floor, limits.factor * usual)


def step_limit(state: RunProgress, limits: StallLimits) -> float | None:
    """Returns the stall limit of the run as if its phase had no limit of its own."""
    return stall_limit(
        replace(state, phase=None) if state.phase in limits.phases else state, limits
    )


def pause_limit(state: RunProgress, limits: StallLimits) -> float | None:
    """Returns the stall limit in the absence of other symptoms: harmless pauses count too.

    So an unlogged evaluation exceeds the limit only once; but the limit is at most that of a logged
    evaluation.
    """
    limit = stall_limit(state, limits)
    if limit is None or _usual(state, limits) is None:
        return limit
    longest = limits.phases.get(Phase.EVALUATING, float("inf"))
    return max(limit, min(PAUSE_LEEWAY * state.timing.longest_pause, longest))


class SilenceLimits(NamedTuple):
    """Seconds from which on a silence was a stall; None for never."""

    restarted: float | None = None
    """If a restart ends it."""
    alone: float | None = None
    """If a sign of progress ends it, or nothing."""
    unserved: float | None = None
    """While a server of the run is down."""
    unexplained: float | None = None
    """From which on a silence that was no stall was no slow step either."""


def silence_limits(
    state: RunProgress, limits: StallLimits, *, announced: bool, movement: Movement
) -> SilenceLimits:
    """Returns the seconds from which on a silence was a stall, as its end shows.

    `announced` is whether the run reports the start of its evaluations. Where no usual time is
    known, of this attempt or an earlier one, only stacks show a stall: a run may show nothing but
    its checkpoints, and the trials of a search may take hours. After its last step, too.
    """
    if has_all_steps(state) and movement is not Movement.STUCK:
        return SilenceLimits()
    unserved = stall_limit(state, limits)
    paceless = not state.timing.durations and state.timing.usual_silence is None
    if paceless and state.phase not in limits.phases and movement is not Movement.STUCK:
        return SilenceLimits(unserved=unserved)
    if announced and state.evaluations_seen:
        limit = alone = unserved
    else:
        limit = pause_limit(state, limits)
        alone = restart_limit(state, limits, evaluations_announced=False, movement=movement)
        alone = limit if alone == math.inf else alone
    if movement is Movement.MOVING and alone is not None:
        alone = max(alone, limits.phases.get(Phase.EVALUATING, 0.0))
    unexplained = None if movement is Movement.MOVING else unserved
    return SilenceLimits(limit, alone, unserved, unexplained)


def restart_limit(
    state: RunProgress,
    limits: StallLimits,
    *,
    evaluations_announced: bool,
    movement: Movement = Movement.UNKNOWN,
) -> float | None:
    """Returns the seconds after which silence alone justifies a restart of the run.

    If evaluations are announced, this is the stall limit, unless its processes move. If not, the
    silence may be the first evaluation: then it is `restart_factor` times a usual step, at least
    `restart_floor`. Of processes that move it is at least the limit of an evaluation; of processes
    that are stuck the limit of a step, at least STUCK_SECONDS, in any phase: the log does not show
    the end of a save, and who is stuck neither saves nor evaluates. Infinite while no usual time is
    known, of this attempt or an earlier one, unless it is stuck (see `unseen_limit`): a run that
    reports only its checkpoints or its trials may be silent for hours.
    """
    limit, usual = pause_limit(state, limits), _usual(state, limits)
    if limit is None:
        return None
    shown = unseen_limit(state, limits) if movement is Movement.STUCK else None
    if state.timing.usual_silence is None and state.phase not in limits.phases:
        return math.inf if shown is None else max(shown, STUCK_SECONDS)
    announced = evaluations_announced and movement is not Movement.MOVING
    if usual is not None and not announced:
        usual = state.timing.typical or usual
        limit = max(limit, limits.restart_floor, limits.restart_factor * usual)
        if movement is Movement.MOVING:
            limit = max(limit, limits.phases.get(Phase.EVALUATING, 0.0))
    if movement is Movement.STUCK:
        limit = min(limit, max(shown or step_limit(state, limits) or limit, STUCK_SECONDS))
    return limit


def _longest_possible(state: RunProgress, limits: StallLimits) -> float:
    """Returns the silence that may be usual while too few signs are known.

    Steps that are reported as they happen are regular, and the first is the slowest: then this is
    so short that the limit only just exceeds the longest silence so far.
    """
    attempt = state.attempt.number
    if any(one.is_live and one.attempt == attempt for one in state.reports.values()):
        longest = max(state.timing.first_silence, *state.timing.intervals, 0.0)
        return LIVE_LEEWAY * longest / limits.factor
    return state.timing.longest_silence


def _usual(state: RunProgress, limits: StallLimits) -> float | None:
    """Returns the usual silence in phases without a limit; None while unknown."""
    if state.phase in limits.phases or state.last_sign is None or not state.last_sign.dated:
        return None
    return state.timing.usual_silence
