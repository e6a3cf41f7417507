"""When a silence is suspicious."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.silence import suspicious_silence
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import StallLimits
from trainwarden_exporter.progress.state import Attempt, RunProgress
from trainwarden_exporter.progress.step_timing import ProgressSign, StepMark, StepTiming

SPEC = ProgressSpec("demo", limits=StallLimits(phases={Phase.SAVING: 1800}))
TRAINING = RunProgress(
    phase=Phase.TRAINING,
    last_sign_at=1000,
    last_sign=ProgressSign(1000),
    timing=StepTiming((12.0,) * 3, (12.0,) * 3),
)


def since(state: RunProgress, seconds: float, failed_at: float | None = None) -> float | None:
    return suspicious_silence(state, SPEC, failed_at=failed_at, now=1000 + seconds)


@pytest.mark.parametrize(("seconds", "suspicious"), [(23.0, None), (25.0, 1000)])
def test_two_fifths_of_the_limit_are_suspicious(seconds: float, suspicious: float | None) -> None:
    assert since(TRAINING, seconds) == suspicious


@pytest.mark.parametrize(("failed_at", "suspicious"), [(1001.0, 1000), (999.0, None)])
def test_a_fatal_line_is_suspicious_at_once(failed_at: float, suspicious: float | None) -> None:
    assert since(TRAINING, 2, failed_at) == suspicious


def test_a_phase_that_lasts_longer_than_two_steps_is_suspicious() -> None:
    assert since(replace(TRAINING, phase=Phase.SAVING), 23) is None
    assert since(replace(TRAINING, phase=Phase.SAVING), 25) == 1000


@pytest.mark.parametrize(
    "state",
    [
        RunProgress(),
        replace(TRAINING, phase=Phase.FINISHED),
        replace(TRAINING, timing=StepTiming()),
    ],
    ids=["never seen", "finished", "of unknown pace"],
)
def test_a_run_that_cannot_be_stalled_is_not_suspicious(state: RunProgress) -> None:
    assert since(state, 1e6) is None


UNSEEN = replace(
    TRAINING,
    attempt=Attempt(1, began=400, started=True),
    steps=(StepMark(20, 1000, dated=False, reports=20),),
    last_sign=ProgressSign(1000, dated=False),
    timing=StepTiming(),
    interrupted_at=1500,
)
"""Its twenty steps took half a minute each, and nobody looked."""


def test_after_steps_that_nobody_saw_their_mean_time_counts() -> None:
    assert (since(UNSEEN, 59), since(UNSEEN, 61)) == (None, 1000)
    slow = replace(UNSEEN, attempt=Attempt(1, began=-19_000, started=True))
    assert (since(slow, 1900), since(slow, 2100)) == (None, 1000)


def test_where_no_start_is_known_a_minute_is_suspicious_after_them() -> None:
    state = replace(UNSEEN, attempt=Attempt())
    assert (since(state, 59), since(state, 61)) == (None, 1000)
