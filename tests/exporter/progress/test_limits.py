"""How long a run may be silent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.layouts.base import Phase
from trainwarden_exporter.progress.config import ProgressConfig
from trainwarden_exporter.progress.course import Course
from trainwarden_exporter.progress.limits import Limits, stall_limit
from trainwarden_exporter.progress.pace import Pace, Sign

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
