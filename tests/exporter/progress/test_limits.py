"""How long a run may be silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.config import ProgressConfig
from trainwarden_exporter.progress.course import Course
from trainwarden_exporter.progress.limits import Limits, pause_limit, restart_limit, stall_limit
from trainwarden_exporter.progress.pace import MOST_PAUSES, REMEMBERED, Pace, Pause, Sign

LIMITS = Limits(phases={Phase.SAVING: 1800, Phase.EVALUATING: 3600})
TRAINING = Course(
    phase=Phase.TRAINING, sign=1000, heard=Sign(1000), pace=Pace((30.0,) * 3, (30.0,) * 3)
)


def test_a_run_of_which_nothing_was_seen_cannot_be_stalled() -> None:
    assert stall_limit(Course(), LIMITS) is None


def test_a_run_that_has_finished_cannot_be_stalled() -> None:
    assert stall_limit(replace(TRAINING, phase=Phase.FINISHED), LIMITS) is None


@pytest.mark.parametrize(("seconds", "limit"), [(2.0, 60), (12.0, 60), (30.0, 150), (600.0, 3000)])
def test_while_it_trains_the_limit_is_a_multiple_of_what_is_usual(
    seconds: float, limit: float
) -> None:
    pace = Pace((seconds,) * 3, (seconds,) * 3)
    assert stall_limit(replace(TRAINING, pace=pace), LIMITS) == limit


def test_a_run_that_tells_every_hundredth_step_may_be_silent_for_hundreds() -> None:
    pace = Pace((2.0,) * 32, (200.0,) * 32)
    assert stall_limit(replace(TRAINING, pace=pace), LIMITS) == 1000


def test_a_step_that_leaves_many_signs_may_be_as_long_as_it_is() -> None:
    pace = Pace((200.0,) * 3, (2.0,) * 20)
    assert stall_limit(replace(TRAINING, pace=pace), LIMITS) == 1000


@pytest.mark.parametrize(
    "course",
    [
        Course(phase=Phase.STARTING, sign=1000, pace=TRAINING.pace),
        Course(phase=Phase.TRAINING, sign=1000, pace=TRAINING.pace),
        replace(TRAINING, pace=Pace((30.0,) * 2, (30.0,) * 2)),
        replace(TRAINING, heard=Sign(1000, dated=False)),
        Course(sign=1000),
    ],
    ids=["starting", "no step yet", "too few known", "only what was there", "phase not known"],
)
def test_until_it_is_known_what_is_usual_the_limit_of_the_first_step_holds(course: Course) -> None:
    assert stall_limit(course, LIMITS) == 1800
    assert stall_limit(course, replace(LIMITS, first_step=20)) == 60


@pytest.mark.parametrize(("phase", "limit"), [(Phase.SAVING, 1800), (Phase.EVALUATING, 3600)])
def test_each_other_phase_has_its_own(phase: Phase, limit: float) -> None:
    assert stall_limit(replace(TRAINING, phase=phase), LIMITS) == limit
    assert stall_limit(Course(phase=phase, sign=1000), LIMITS) == limit


def test_every_phase_has_a_limit_by_default() -> None:
    limits = ProgressConfig().limits()
    for phase in Phase:
        limit = stall_limit(replace(TRAINING, phase=phase), limits)
        assert (limit is None) == (phase is Phase.FINISHED)


def silent_for(*silences: float, step: float = 30.0) -> Course:
    """A run that had these silences, the last one last."""
    pace = Pace((step,) * 3, (step,) * 3)
    for seconds in silences:
        pace = pace.after_silence(seconds)
    return replace(TRAINING, pace=pace)


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


def test_no_pause_is_longer_than_an_evaluation_that_is_told_may_be() -> None:
    course = silent_for(10_000)
    assert pause_limit(course, LIMITS) == 3600
    assert pause_limit(course, replace(LIMITS, phases={})) == 20_000


def test_a_pause_is_forgotten_and_the_next_longest_counts() -> None:
    course = silent_for(900, *([30] * (REMEMBERED // 2)), 600, *([30] * (REMEMBERED // 2 - 2)))
    assert pause_limit(course, LIMITS) == 1800
    course = replace(course, pace=course.pace.after_silence(30))
    assert pause_limit(course, LIMITS) == 1200
    for _ in range(REMEMBERED // 2 + 1):
        course = replace(course, pace=course.pace.after_silence(30))
    assert pause_limit(course, LIMITS) == 150


def test_only_so_many_pauses_are_kept_the_longest() -> None:
    pauses = silent_for(*range(1000, 100, -10)).pace.pauses
    assert pauses == tuple(Pause(at + 1, 1000 - 10 * at) for at in range(MOST_PAUSES))


def test_while_it_is_not_known_what_is_usual_no_silence_is_a_pause() -> None:
    assert Pace((30.0,) * 2, (30.0,) * 2).after_silence(900).longest_pause == 0


@pytest.mark.parametrize(
    ("step", "untold", "told"),
    [(2.0, 1800, 60), (30.0, 1800, 150), (300.0, 7500, 1500)],
)
def test_silence_alone_is_reason_for_a_restart_much_later_where_it_may_be_an_evaluation(
    step: float, untold: float, told: float
) -> None:
    course = silent_for(step=step)
    assert restart_limit(course, LIMITS, told=False) == untold
    assert restart_limit(course, LIMITS, told=True) == told


def test_of_a_run_that_tells_seldom_the_steps_count() -> None:
    seldom = replace(TRAINING, pace=Pace((72.0,) * 3, (7200.0,) * 3))
    assert restart_limit(seldom, LIMITS, told=False) == 36_000
    plain = replace(TRAINING, pace=Pace((), (120.0,) * 8))
    assert restart_limit(plain, LIMITS, told=False) == 3000


@pytest.mark.parametrize(
    ("distances", "limit"),
    [
        ((20.0,) * 7, 1800),  # too few to tell
        ((20.0,) * 8, 100),
        ((2.0, 7.0, 20.0, 90.0, 20.0, 40.0, 11.0, 30.0), 450),  # as the trials of several end
        ((20.0,) * 20 + (7200.0,), 600),  # a machine that stood still
    ],
)
def test_where_no_steps_are_made_the_longest_usual_silence_counts(
    distances: tuple[float, ...], limit: float
) -> None:
    search = replace(TRAINING, pace=Pace((), distances))
    assert stall_limit(search, LIMITS) == limit


def test_no_run_is_restarted_before_it_has_paused_for_as_long_as_it_may() -> None:
    course = silent_for(1200)
    for told in (True, False):
        assert restart_limit(course, LIMITS, told=told) == pause_limit(course, LIMITS) == 2400


@pytest.mark.parametrize(
    "course",
    [
        Course(),
        replace(TRAINING, phase=Phase.FINISHED),
        replace(silent_for(900), phase=Phase.SAVING),
        replace(silent_for(900), heard=None),
    ],
    ids=["unseen", "finished", "another phase", "no step yet"],
)
def test_all_limits_are_one_where_no_step_is_awaited(course: Course) -> None:
    limit = stall_limit(course, LIMITS)
    assert pause_limit(course, LIMITS) == limit
    assert restart_limit(course, LIMITS, told=False) == limit


def test_a_person_decides_when_silence_is_reason_enough() -> None:
    limits = ProgressConfig(restart_factor=6, restart_floor=90).limits()
    assert restart_limit(silent_for(), limits, told=False) == 180
