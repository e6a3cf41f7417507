"""What lines of a log say about progress."""

from __future__ import annotations

import pytest

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.events import (
    Advanced,
    PhaseBegan,
    PhaseEnded,
    ProgressEvent,
    RunFinished,
    StepReported,
    TotalAnnounced,
    TrainerStarted,
)
from trainwarden_exporter.progress.log_lines import events_from_line, parse_count, parse_seconds


def message(pattern: LinePattern, role: str = "trainer", **groups: str) -> list[ProgressEvent]:
    event = LineEvent("grpo", "main", role, pattern.name, groups, 1000.0)
    return list(events_from_line(event, pattern, dated=True))


def test_a_step_with_all_that_goes_with_it() -> None:
    pattern = LinePattern("step", "…", phase=Phase.TRAINING, step_offset=1)
    assert message(pattern, step="1,869", total="4675", seconds="1m 12s") == [
        StepReported("log/main/step", 1870, 1000.0, total=4675, seconds=72)
    ]


def test_a_step_that_is_only_begun_is_not_done() -> None:
    pattern = LinePattern("step", "…", step_offset=-1)
    (first,) = message(pattern, step="1")
    (none,) = message(pattern, step="0")
    assert isinstance(first, StepReported)
    assert isinstance(none, StepReported)
    assert (first.step, none.step) == (0, 0)


def test_a_line_about_a_save_records_its_step() -> None:
    assert message(LinePattern("saving", "…", phase=Phase.SAVING), step="100") == [
        StepReported("log/main/saving", 100, 1000.0, is_live=False),
        PhaseBegan(Phase.SAVING, 1000.0),
    ]
    assert message(LinePattern("saved", "…", ends=Phase.SAVING), step="100") == [
        StepReported("log/main/saved", 100, 1000.0, is_live=False),
        PhaseEnded(Phase.SAVING, 1000.0),
    ]


def test_a_start_says_where_it_goes_on() -> None:
    pattern = LinePattern("resumed", "…", phase=Phase.STARTING, step_offset=1)
    assert message(pattern, step="1869") == [TrainerStarted(1000.0, step=1870)]
    assert message(pattern) == [TrainerStarted(1000.0)]


def test_other_lines() -> None:
    assert message(LinePattern("end", "…", phase=Phase.FINISHED)) == [RunFinished(1000.0)]
    assert message(LinePattern("training", "…", phase=Phase.TRAINING)) == [
        PhaseBegan(Phase.TRAINING, 1000.0)
    ]
    assert message(LinePattern("total", "…"), total="500") == [TotalAnnounced(500, 1000.0)]
    assert message(LinePattern("logged", "…", advances=True), seconds="7.5") == [
        Advanced(1000.0, seconds=7.5)
    ]
    assert message(LinePattern("loss", "…"), loss="0.5") == []


def test_a_line_of_trouble_makes_no_step() -> None:
    assert message(LinePattern("empty_batch", "…", error=True), step="12") == []


def test_a_trial_that_failed_is_a_sign_of_life() -> None:
    failed = LinePattern("trial_failed", "…", advances=True, error=True)
    assert message(failed, trial="12") == [Advanced(1000.0)]


def test_a_line_means_what_it_says_in_logs_of_its_role_alone() -> None:
    pattern = LinePattern("saving", "…", phase=Phase.SAVING, role="trainer")
    assert message(pattern, role="orchestrator") == []
    assert message(pattern, role="trainer") == message(pattern, role="") != []


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("0", 0),
        ("1,500", 1500),
        ("1_500", 1500),
        (" 12 ", 12),
        ("12.0", 12),
        (12, 12),
        (12.0, 12),
        ("12.5", None),
        (12.5, None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("9" * 30, None),
        ("", None),
        ("step", None),
        (True, None),
        (None, None),
        ([1], None),
    ],
)
def test_a_number_of_steps(value: object, count: int | None) -> None:
    assert parse_count(value) == count


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("55.1", 55.1),
        ("55.1s", 55.1),
        ("1m 12s", 72),
        ("1h 2m", 3720),
        ("2d 1h", 176_400),
        ("800ms", 0.8),
        ("250µs", 0.00025),
        ("3 min", 180),
        ("1:02", 62),
        ("1:02:03", 3723),
        ("12.5s,", 12.5),
        ("", None),
        (None, None),
        ("fast", None),
        ("12 apples", None),
        ("nan", None),
        ("inf", None),
        ("-3", None),
    ],
)
def test_a_span_of_time(text: str | None, seconds: float | None) -> None:
    assert parse_seconds(text) == (None if seconds is None else pytest.approx(seconds))
