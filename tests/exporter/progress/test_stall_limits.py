"""How long a run may be silent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.config import ProgressConfig
from trainwarden_exporter.progress.epochs import Epochs
from trainwarden_exporter.progress.stall_limits import (
    SilenceLimits,
    StallLimits,
    has_all_steps,
    pause_limit,
    restart_limit,
    silence_limits,
    stall_limit,
)
from trainwarden_exporter.progress.state import Attempt, RunProgress
from trainwarden_exporter.progress.step_timing import (
    MAX_PAUSE_AGE,
    MAX_PAUSES,
    Pause,
    ProgressSign,
    StepMark,
    StepTiming,
)

LIMITS = StallLimits(phases={Phase.SAVING: 1800, Phase.EVALUATING: 3600})
TRAINING = RunProgress(
    phase=Phase.TRAINING,
    last_sign_at=1000,
    last_sign=ProgressSign(1000),
    timing=StepTiming((30.0,) * 3, (30.0,) * 3),
)


def test_a_run_without_observations_cannot_be_stalled() -> None:
    assert stall_limit(RunProgress(), LIMITS) is None


def test_a_run_that_has_finished_cannot_be_stalled() -> None:
    assert stall_limit(replace(TRAINING, phase=Phase.FINISHED), LIMITS) is None


@pytest.mark.parametrize(("seconds", "limit"), [(2.0, 60), (12.0, 60), (30.0, 150), (600.0, 3000)])
def test_while_it_trains_the_limit_is_a_multiple_of_what_is_usual(
    seconds: float, limit: float
) -> None:
    timing = StepTiming((seconds,) * 3, (seconds,) * 3)
    assert stall_limit(replace(TRAINING, timing=timing), LIMITS) == limit


def test_a_run_that_tells_every_hundredth_step_may_be_silent_for_hundreds() -> None:
    timing = StepTiming((2.0,) * 32, (200.0,) * 32)
    assert stall_limit(replace(TRAINING, timing=timing), LIMITS) == 1000


def test_a_step_that_leaves_many_signs_may_be_as_long_as_it_is() -> None:
    timing = StepTiming((200.0,) * 3, (2.0,) * 20)
    assert stall_limit(replace(TRAINING, timing=timing), LIMITS) == 1000


@pytest.mark.parametrize(
    "course",
    [
        RunProgress(phase=Phase.STARTING, last_sign_at=1000, timing=TRAINING.timing),
        RunProgress(phase=Phase.TRAINING, last_sign_at=1000, timing=TRAINING.timing),
        replace(TRAINING, timing=StepTiming((30.0,) * 2, (30.0,) * 2)),
        replace(TRAINING, last_sign=ProgressSign(1000, dated=False)),
        RunProgress(last_sign_at=1000),
    ],
    ids=["starting", "no step yet", "too few known", "only what was there", "phase not known"],
)
def test_until_it_is_known_what_is_usual_the_limit_of_the_first_step_holds(
    course: RunProgress,
) -> None:
    assert stall_limit(course, LIMITS) == 1800
    known = 5 * 3 * 30 if len(course.timing.intervals) == 2 else 5 * 30
    assert stall_limit(course, replace(LIMITS, first_step=20)) == (
        known if course.timing.intervals else 60
    )


@pytest.mark.parametrize("announced", [True, False])
def test_an_attempt_without_a_step_may_be_silent_for_as_long_as_earlier_attempts(
    announced: bool,
) -> None:
    hourly = StepTiming((7.2,) * 3, (3600.0,) * 3)
    state = RunProgress(phase=Phase.STARTING, last_sign_at=1000, timing=hourly)
    assert stall_limit(state, LIMITS) == 18_000
    assert restart_limit(state, LIMITS, evaluations_announced=announced) == 18_000


@pytest.mark.parametrize(("phase", "limit"), [(Phase.SAVING, 1800), (Phase.EVALUATING, 3600)])
def test_each_other_phase_has_its_own(phase: Phase, limit: float) -> None:
    assert stall_limit(replace(TRAINING, phase=phase), LIMITS) == limit
    assert stall_limit(RunProgress(phase=phase, last_sign_at=1000), LIMITS) == limit


def test_every_phase_has_a_limit_by_default() -> None:
    limits = ProgressConfig().limits()
    for phase in Phase:
        limit = stall_limit(replace(TRAINING, phase=phase), limits)
        assert (limit is None) == (phase is Phase.FINISHED)


def silent_for(*silences: float, step: float = 30.0) -> RunProgress:
    """A run that had these silences, the last one last."""
    timing = StepTiming((step,) * 3, (step,) * 3)
    for seconds in silences:
        timing = timing.with_silence(seconds)
    return replace(TRAINING, timing=timing)


@pytest.mark.parametrize(
    ("silences", "limit"),
    [
        ((30, 33, 29), 150),
        ((74,), 150),
        ((76,), 152),
        ((600,), 1200),
        ((600, 30, 400), 1200),
        ((400, 30, 600, 30), 1200),
    ],
)
def test_a_pause_that_ended_well_may_come_again(silences: tuple[float, ...], limit: float) -> None:
    course = silent_for(*silences)
    assert (stall_limit(course, LIMITS), pause_limit(course, LIMITS)) == (150, limit)


def test_no_pause_is_longer_than_an_evaluation_that_is_reported_may_be() -> None:
    course = silent_for(10_000)
    assert pause_limit(course, LIMITS) == 3600
    assert pause_limit(course, replace(LIMITS, phases={})) == 20_000


def test_a_pause_is_forgotten_and_the_next_longest_counts() -> None:
    course = silent_for(
        900, *([30] * (MAX_PAUSE_AGE // 2)), 600, *([30] * (MAX_PAUSE_AGE // 2 - 2))
    )
    assert pause_limit(course, LIMITS) == 1800
    course = replace(course, timing=course.timing.with_silence(30))
    assert pause_limit(course, LIMITS) == 1200
    for _ in range(MAX_PAUSE_AGE // 2 + 1):
        course = replace(course, timing=course.timing.with_silence(30))
    assert pause_limit(course, LIMITS) == 150


def test_only_so_many_pauses_are_kept_the_longest() -> None:
    pauses = silent_for(*range(1000, 100, -10)).timing.pauses
    assert pauses == tuple(Pause(at + 1, 1000 - 10 * at) for at in range(MAX_PAUSES))


def test_while_it_is_not_known_what_is_usual_no_silence_is_a_pause() -> None:
    assert StepTiming((30.0,) * 2, (30.0,) * 2).with_silence(900).longest_pause == 0


@pytest.mark.parametrize(
    ("step", "untold", "reported"),
    [(2.0, 1800, 60), (30.0, 1800, 150), (300.0, 7500, 1500)],
)
def test_silence_alone_is_reason_for_a_restart_much_later_where_it_may_be_an_evaluation(
    step: float, untold: float, reported: float
) -> None:
    course = silent_for(step=step)
    assert restart_limit(course, LIMITS, evaluations_announced=False) == untold
    assert restart_limit(course, LIMITS, evaluations_announced=True) == reported


def test_that_evaluations_are_reported_counts_once_one_was_seen() -> None:
    """Until then a layout may claim it, and the run may not log them: the Rich bar of Lightning."""
    timing = StepTiming((30.0,) * 3, (30.0,) * 3, pauses=(Pause(0, 500),))
    state = replace(TRAINING, timing=timing)

    def found(state: RunProgress, *, announced: bool) -> tuple[float | None, float | None]:
        return silence_limits(state, LIMITS, announced=announced, movement=Movement.UNKNOWN)[:2]

    alone = restart_limit(state, LIMITS, evaluations_announced=False)
    for announced in (False, True):
        assert found(state, announced=announced) == (pause_limit(state, LIMITS), alone)
    assert alone != pause_limit(state, LIMITS)
    seen = replace(state, evaluations_seen=True)
    assert found(seen, announced=True) == (stall_limit(seen, LIMITS),) * 2
    assert stall_limit(seen, LIMITS) != pause_limit(seen, LIMITS)


@pytest.mark.parametrize("announced", [True, False])
def test_no_silence_justifies_a_restart_while_the_pace_is_unknown(announced: bool) -> None:
    unknown = replace(TRAINING, timing=StepTiming((3600.0,) * 2, (3600.0,) * 2))
    search = replace(TRAINING, timing=StepTiming((), (30.0,) * 2))
    for state in (unknown, search, replace(unknown, phase=Phase.STARTING)):
        assert restart_limit(state, LIMITS, evaluations_announced=announced) == math.inf
    saving = replace(unknown, phase=Phase.SAVING)
    assert restart_limit(saving, LIMITS, evaluations_announced=announced) == 1800


def test_of_a_run_that_tells_seldom_the_steps_count() -> None:
    seldom = replace(TRAINING, timing=StepTiming((72.0,) * 3, (7200.0,) * 3))
    assert restart_limit(seldom, LIMITS, evaluations_announced=False) == 36_000
    plain = replace(TRAINING, timing=StepTiming((), (120.0,) * 8))
    assert restart_limit(plain, LIMITS, evaluations_announced=False) == 3000


@pytest.mark.parametrize(
    ("intervals", "limit"),
    [
        ((20.0,) * 2, 1800),  # too few to tell
        ((20.0,) * 3, 300),
        ((20.0, 90.0, 20.0), 1350),
        ((20.0,) * 8, 100),
        ((2.0, 7.0, 20.0, 90.0, 20.0, 40.0, 11.0, 30.0), 450),  # as the trials of several end
        ((20.0,) * 20 + (7200.0,), 600),  # a machine that stood still
    ],
)
def test_where_no_steps_are_made_the_longest_usual_silence_counts(
    intervals: tuple[float, ...], limit: float
) -> None:
    search = replace(TRAINING, timing=StepTiming((), intervals))
    assert stall_limit(search, LIMITS) == limit


def test_no_run_is_restarted_before_it_has_paused_for_as_long_as_it_may() -> None:
    course = silent_for(1200)
    for reported in (True, False):
        assert (
            restart_limit(course, LIMITS, evaluations_announced=reported)
            == pause_limit(course, LIMITS)
            == 2400
        )


@pytest.mark.parametrize(
    "course",
    [
        RunProgress(),
        replace(TRAINING, phase=Phase.FINISHED),
        replace(silent_for(900), phase=Phase.SAVING),
        replace(silent_for(900), last_sign=None),
    ],
    ids=["unseen", "finished", "another phase", "no step yet"],
)
def test_all_limits_are_one_where_no_step_is_awaited(course: RunProgress) -> None:
    limit = stall_limit(course, LIMITS)
    assert pause_limit(course, LIMITS) == limit
    assert restart_limit(course, LIMITS, evaluations_announced=False) == limit


def test_an_operator_decides_when_silence_is_reason_enough() -> None:
    limits = ProgressConfig(restart_factor=6, restart_floor=90).limits()
    assert restart_limit(silent_for(), limits, evaluations_announced=False) == 180


@pytest.mark.parametrize(("usual", "limit"), [(12.0, 120.0), (30.0, 150.0), (600.0, 3000.0)])
def test_a_run_that_is_stuck_is_restarted_after_two_minutes_or_its_stall_limit(
    usual: float, limit: float
) -> None:
    state = replace(TRAINING, timing=StepTiming((usual,) * 3, (usual,) * 3))
    found = restart_limit(state, LIMITS, evaluations_announced=False, movement=Movement.STUCK)
    assert found == limit


@pytest.mark.parametrize("announced", [True, False])
def test_a_run_that_moves_has_the_time_of_an_evaluation(announced: bool) -> None:
    found = restart_limit(
        silent_for(), LIMITS, evaluations_announced=announced, movement=Movement.MOVING
    )
    assert found == 3600


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("phase", [None, Phase.SAVING, Phase.EVALUATING])
@pytest.mark.parametrize(("usual", "limit"), [(12.0, 120.0), (30.0, 150.0)])
def test_a_run_that_is_stuck_is_neither_saving_nor_evaluating(
    announced: bool, phase: Phase | None, usual: float, limit: float
) -> None:
    timing = StepTiming((usual,) * 3, (usual,) * 3)
    state = replace(TRAINING, timing=timing, phase=phase or TRAINING.phase)
    found = restart_limit(state, LIMITS, evaluations_announced=announced, movement=Movement.STUCK)
    assert found == (limit if phase or not announced else min(limit, 5 * usual))


@pytest.mark.parametrize("movement", [Movement.MOVING, Movement.UNKNOWN])
def test_a_reported_phase_keeps_its_limit_unless_it_is_stuck(movement: Movement) -> None:
    state = replace(silent_for(), phase=Phase.SAVING)
    found = restart_limit(state, LIMITS, evaluations_announced=False, movement=movement)
    assert found == 1800


@pytest.mark.parametrize("movement", list(Movement))
def test_while_the_pace_is_unknown_no_stack_shortens_it(movement: Movement) -> None:
    state = replace(TRAINING, timing=StepTiming())
    found = restart_limit(state, LIMITS, evaluations_announced=False, movement=movement)
    assert found == math.inf


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.TRAINING])
def test_only_stacks_show_a_stall_of_a_run_whose_pace_is_unknown(phase: Phase) -> None:
    state = RunProgress(phase=phase, phase_began_at=100.0, last_sign_at=100.0)
    moves, stuck = (
        silence_limits(state, LIMITS, announced=False, movement=movement)
        for movement in (Movement.MOVING, Movement.STUCK)
    )
    assert moves[:2] == (None, None)
    assert stuck[:2] == (LIMITS.first_step, LIMITS.first_step)


def test_a_run_that_moves_is_not_stalled_before_an_evaluation_would_be() -> None:
    state = replace(TRAINING, timing=StepTiming((30.0,) * 3, (30.0,) * 3))
    waiting = replace(state, phase=Phase.WAITING_FOR_ROLLOUTS)
    limits = replace(LIMITS, phases={Phase.WAITING_FOR_ROLLOUTS: 900.0, Phase.EVALUATING: 3600.0})
    for one, announced in (
        (state, False),
        (replace(state, evaluations_seen=True), True),
        (waiting, False),
    ):
        found = silence_limits(one, limits, announced=announced, movement=Movement.MOVING)
        assert found.alone == 3600.0
        assert found.restarted is not None
        assert found.restarted < 3600.0


UNSEEN = replace(
    TRAINING,
    attempt=Attempt(1, began=400, started=True),
    steps=(StepMark(20, 1000, dated=False, reports=20),),
    last_sign=ProgressSign(1000, dated=False),
    timing=StepTiming(),
    interrupted_at=1500,
)
"""Its twenty steps took half a minute each, and nobody looked until 500 s later."""


@pytest.mark.parametrize(
    ("timing", "movement", "limit"),
    [
        (StepTiming(), Movement.STUCK, 150),
        (StepTiming(), Movement.UNKNOWN, math.inf),
        (StepTiming(), Movement.MOVING, math.inf),
        (TRAINING.timing, Movement.STUCK, 150),
        (TRAINING.timing, Movement.UNKNOWN, 2300),
        (StepTiming((2.0,) * 3, (2.0,) * 3), Movement.STUCK, 120),
    ],
)
def test_only_a_proof_shortens_the_limit_after_steps_that_nobody_saw(
    timing: StepTiming, movement: Movement, limit: float
) -> None:
    """Without one, the half hour begins with the first look."""
    state = replace(UNSEEN, timing=timing)
    assert stall_limit(state, LIMITS) == 2300
    found = restart_limit(state, LIMITS, evaluations_announced=False, movement=movement)
    assert found == limit


def test_steps_that_nobody_saw_shorten_nothing_where_no_start_is_known() -> None:
    state = replace(UNSEEN, attempt=Attempt())
    found = restart_limit(state, LIMITS, evaluations_announced=False, movement=Movement.STUCK)
    assert found == math.inf


def test_a_phase_that_began_before_anybody_looked_has_its_limit_from_the_first_look() -> None:
    assert stall_limit(replace(UNSEEN, phase=Phase.SAVING), LIMITS) == 2300
    assert stall_limit(replace(TRAINING, phase=Phase.SAVING), LIMITS) == 1800


@pytest.mark.parametrize(
    ("changes", "made"),
    [
        ({"line_total": 60}, True),
        ({"line_total": 61}, False),
        ({}, False),
        ({"line_total": 60, "epochs": Epochs(first=1, last=1)}, False),
        ({"line_total": 50}, False),
        ({"total": 60}, True),
        ({"bar_total": 60}, True),
        ({"steps": (), "total": 60}, False),
        ({"steps": (), "total": 60, "attempt": Attempt(announced_step=60)}, True),
        ({"steps": (), "total": 60, "attempt": Attempt(checkpoint_step=60)}, True),
        ({"steps": (), "total": 60, "attempt": Attempt(checkpoint_step=40)}, False),
        ({"steps": (), "total": 60, "attempt": Attempt(checkpoint_step=600)}, False),
    ],
)
def test_the_last_step_is_that_of_the_known_total(changes: dict[str, Any], *, made: bool) -> None:
    """A name of a checkpoint above the total counts something else, such as samples."""
    state = replace(TRAINING, **{"steps": (StepMark(60, 1000),), **changes})
    assert has_all_steps(state) is made


def test_after_the_last_step_only_the_stacks_show_that_a_silence_was_a_stall() -> None:
    state = replace(TRAINING, steps=(StepMark(60, 1000),), total=60)

    def limits(movement: Movement) -> SilenceLimits:
        return silence_limits(state, LIMITS, announced=False, movement=movement)

    assert limits(Movement.UNKNOWN) == limits(Movement.MOVING) == SilenceLimits()
    assert limits(Movement.STUCK).alone == 150
