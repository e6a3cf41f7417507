"""What several sources say of one run comes to one course."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

import pytest

from trainwarden_exporter.frameworks.base import Phase
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
from trainwarden_exporter.progress.reducer import apply
from trainwarden_exporter.progress.state import RunProgress


def follow(
    *seen: ProgressEvent | Iterable[ProgressEvent], course: RunProgress | None = None
) -> RunProgress:
    course = course or RunProgress()
    for one in seen:
        several = one if isinstance(one, Iterable) else (one,)
        course = reduce(apply, several, course)
    return course


def line(step: int, timestamp: float, **more: object) -> StepReported:
    return replace(StepReported("log/trainer/step", step, timestamp), **more)  # type: ignore[arg-type]


def lines(first: int, last: int, begin: float, *, seconds: float = 10.0) -> list[StepReported]:
    """A step each `seconds` seconds, from `begin` on."""
    return [line(step, begin + seconds * (step - first)) for step in range(first, last + 1)]


def backlog(first: int, last: int, now: float) -> list[StepReported]:
    """Lines that were there already, and say no time."""
    return [line(step, now, dated=False) for step in range(first, last + 1)]


def checkpoint(step: int, timestamp: float) -> StepReported:
    return StepReported("checkpoint/default", step, timestamp, is_live=False)


def heartbeat(step: int, timestamp: float) -> StepReported:
    return StepReported("heartbeat/trainer", step, timestamp)


class TestSteps:
    def test_nothing_seen_is_nothing_known(self) -> None:
        course = RunProgress()
        assert (course.step, course.last_step_at, course.phase, course.last_sign_at) == (None,) * 4

    def test_the_last_step_and_its_time(self) -> None:
        course = follow(lines(1, 5, 1000))
        assert (course.step, course.last_step_at, course.last_sign_at) == (5, 1040, 1040)

    def test_what_lags_pulls_nothing_back(self) -> None:
        course = follow(lines(1, 5, 1000), checkpoint(3, 1041), heartbeat(4, 1042))
        assert (course.step, course.last_step_at, course.resumes) == (5, 1040, 0)

    def test_the_source_that_is_ahead_counts(self) -> None:
        course = follow(lines(1, 5, 1000), heartbeat(6, 1043), line(6, 1050))
        assert (course.step, course.last_step_at) == (6, 1043)

    def test_a_step_reported_again_later_is_no_later_step(self) -> None:
        course = follow(line(5, 1000), line(5, 1060), checkpoint(5, 1070))
        assert (course.last_step_at, course.last_sign_at) == (1000, 1000)

    def test_old_news_are_no_news(self) -> None:
        course = follow(line(5, 1000), line(9, 990), line(3, 980))
        assert course.step == 5

    def test_a_checkpoint_that_was_deleted_takes_no_step_back(self) -> None:
        course = follow(checkpoint(1860, 900), checkpoint(1870, 1000), checkpoint(1860, 900))
        assert (course.step, course.resumes) == (1870, 0)

    def test_ranks_that_write_out_of_turn_are_no_resume(self) -> None:
        course = follow(line(11, 1000), line(10, 1000.1), line(11, 1000.2), line(12, 1010))
        assert (course.step, course.resumes) == (12, 0)

    def test_a_record_late_by_many_steps_is_no_resume(self) -> None:
        steps = lines(1490, 1510, 1000)
        course = follow(steps, checkpoint(1500, 1300), line(1511, 1310))
        assert (course.step, course.resumes) == (1511, 0)

    def test_the_length_of_the_run_is_known_once_it_was_reported(self) -> None:
        assert follow(line(1, 1000)).total is None
        assert follow(line(1, 1000, total=100), line(2, 1010)).total == 100
        assert follow(line(1, 1000, total=0)).total is None
        assert follow(TotalAnnounced(100, 1000)).total == 100

    def test_a_bar_of_progress_that_is_drawn_before_the_first_step_makes_none(self) -> None:
        course = follow(TrainerStarted(900), line(0, 1000))
        assert (course.step, course.phase, course.steps) == (None, Phase.STARTING, ())
        course = follow(TrainerStarted(2000, step=50), line(50, 2100), course=course)
        assert (course.step, course.phase, course.steps) == (50, Phase.STARTING, ())
        assert follow(line(51, 2200), course=course).attempt.first_step == 51


class TestResumes:
    def test_a_source_that_goes_back_has_resumed(self) -> None:
        course = follow(lines(1860, 1870, 1000), line(1501, 2000))
        assert course.step == 1501
        assert (course.resumes, course.attempt.origin, course.attempt.first_step) == (1, 1500, 1501)
        assert course.repeated == 370

    def test_what_was_repeated_adds_up(self) -> None:
        course = follow(lines(90, 100, 1000), lines(51, 80, 2000), lines(61, 62, 3000))
        assert (course.resumes, course.repeated) == (2, 50 + 20)
        assert (course.attempt.origin, course.attempt.first_step) == (60, 61)

    def test_a_checkpoint_of_the_life_before_is_stale(self) -> None:
        course = follow(
            lines(1860, 1869, 1000),
            checkpoint(1870, 1095),
            line(1501, 2000),
            checkpoint(1870, 1095),
            line(1502, 2010),
            checkpoint(1502, 2015),
        )
        assert (course.step, course.last_step_at, course.resumes) == (1502, 2010, 1)

    @pytest.mark.parametrize("first", ["checkpoint", "log"])
    def test_a_log_first_read_long_after_a_higher_checkpoint_is_of_a_new_life(
        self, first: str
    ) -> None:
        seen = [checkpoint(1870, 1000), line(1501, 50_000)]
        course = follow(seen if first == "checkpoint" else reversed(seen))
        assert (course.step, course.last_step_at) == (1501, 50_000)
        assert (course.resumes, course.attempt.origin, course.repeated) == (1, 1500, 370)
        course = follow(line(1502, 50_010), checkpoint(1870, 1000), course=course)
        assert (course.step, course.resumes) == (1502, 1)

    def test_a_log_that_is_only_behind_is_of_the_same_life(self) -> None:
        course = follow(checkpoint(1870, 1000), line(1862, 1030), line(1863, 1040))
        assert (course.step, course.resumes) == (1870, 0)
        assert follow(line(1871, 1120), course=course).step == 1871

    def test_counting_from_another_number_is_no_new_life(self) -> None:
        course = follow(checkpoint(1871, 1000), line(1870, 50_000))
        assert (course.step, course.resumes) == (1871, 0)

    def test_a_record_proves_no_new_life(self) -> None:
        course = follow(line(1510, 1000), checkpoint(1500, 50_000))
        assert (course.step, course.resumes) == (1510, 0)

    def test_a_record_alone_tells_of_a_resume_by_going_back_later(self) -> None:
        course = follow(checkpoint(1870, 1000), checkpoint(1600, 90_000))
        assert (course.step, course.resumes) == (1600, 1)

    def test_two_sources_that_go_back_one_after_the_other_have_resumed_once(self) -> None:
        course = follow(
            line(1870, 1000),
            heartbeat(1870, 1001),
            checkpoint(1870, 1002),
            heartbeat(1501, 2000),
            line(1501, 2001),
            checkpoint(1600, 3000),
        )
        assert (course.step, course.resumes) == (1600, 1)

    def test_a_new_process_begins_again_before_its_first_step(self) -> None:
        course = follow(lines(1860, 1870, 1000), checkpoint(1869, 1100), TrainerStarted(2000))
        assert (course.step, course.phase, course.phase_began_at) == (None, Phase.STARTING, 2000)
        assert course.resumes == 0
        course = follow(line(1871, 2600), course=course)
        assert (course.step, course.phase) == (1871, Phase.TRAINING)
        assert (course.resumes, course.attempt.origin, course.repeated) == (1, 1870, 0)

    def test_the_first_start_of_all_is_no_resume(self) -> None:
        course = follow(TrainerStarted(1000), lines(1, 5, 1500))
        assert (course.step, course.resumes, course.attempt.origin) == (5, 0, None)

    def test_a_new_process_that_was_noticed_late_has_made_its_steps(self) -> None:
        course = follow(
            lines(1, 20, 1000), lines(21, 24, 1300), TrainerStarted(1290, learned_at=1335)
        )
        assert (course.step, course.phase) == (24, Phase.TRAINING)
        assert (course.resumes, course.attempt.origin, course.attempt.first_step) == (1, 20, 21)

    def test_going_back_that_was_seen_before_the_new_process_was_counts_once(self) -> None:
        course = follow(
            lines(1, 20, 1000), lines(11, 12, 1300), TrainerStarted(1290, learned_at=1315)
        )
        assert (course.step, course.resumes, course.repeated) == (12, 1, 10)

    def test_a_line_that_says_where_it_goes_on(self) -> None:
        course = follow(lines(90, 100, 1000), TrainerStarted(2000, step=80))
        assert (course.step, course.phase, course.attempt.origin) == (80, Phase.STARTING, 80)
        # The log has only every tenth step.
        course = follow(line(90, 2100), course=course)
        assert (course.step, course.resumes) == (90, 1)
        assert (course.attempt.origin, course.attempt.first_step, course.repeated) == (80, 90, 20)

    @pytest.mark.parametrize(
        ("steps", "first", "origin", "spacing"),
        [
            ((98, 99, 100), 81, 80, 1),
            ((1, 100, 200, 300, 400), 300, None, 99),
            ((100, 200, 300, 400), 490, None, 100),  # one line in 100 steps since its start
            ((100,), 81, None, None),
        ],
    )
    def test_where_it_resumed_is_known_only_if_every_step_is_logged(
        self, steps: Sequence[int], first: int, origin: int | None, spacing: int | None
    ) -> None:
        seen = [line(step, 1000 + step) for step in steps]
        attempt = follow(seen, TrainerStarted(2000), line(first, 2100)).attempt
        assert (attempt.first_step, attempt.known_origin) == (first, origin)
        assert attempt.spacing == spacing
        announced = follow(seen, TrainerStarted(2000, step=80), line(first, 2100)).attempt
        assert announced.known_origin == 80

    def test_process_and_line_are_one_start(self) -> None:
        course = follow(lines(90, 100, 1000), TrainerStarted(2000), TrainerStarted(2030, step=80))
        course = follow(lines(81, 82, 2100), course=course)
        assert (course.resumes, course.repeated, course.attempt.origin) == (1, 20, 80)

    def test_starts_that_come_to_nothing_are_no_resumes(self) -> None:
        starts = [TrainerStarted(2000 + 17 * one) for one in range(20)]
        course = follow(lines(90, 100, 1000), starts)
        assert course.resumes == 0
        course = follow(line(81, 3000), course=course)
        assert (course.resumes, course.repeated) == (1, 20)

    def test_the_last_line_of_the_old_process_may_be_read_after_the_start_of_the_new_one(
        self,
    ) -> None:
        course = follow(
            lines(90, 100, 1000), TrainerStarted(1109.8), line(101, 1110), line(81, 1200)
        )
        assert (course.step, course.resumes, course.attempt.first_step) == (81, 1, 81)
        assert course.repeated == 21

    def test_lines_may_tell_the_same_second(self) -> None:
        course = follow(line(1870, 1000), line(1501, 1000))
        assert (course.step, course.resumes) == (1501, 1)

    def test_a_run_that_starts_from_nothing_has_lost_all(self) -> None:
        course = follow(lines(90, 100, 1000), TrainerStarted(2000, step=0), line(1, 2100))
        assert (course.resumes, course.attempt.origin, course.repeated) == (1, 0, 100)

    def test_a_source_that_goes_back_to_nothing_starts_again(self) -> None:
        course = follow(lines(90, 100, 1000), line(0, 2000))
        assert (course.step, course.phase, course.last_sign_at) == (None, Phase.STARTING, 2000)
        course = follow(line(1, 2600), course=course)
        assert (course.step, course.resumes, course.repeated) == (1, 1, 100)

    def test_a_run_that_was_under_way_already_is_not_starting(self) -> None:
        course = follow(TrainerStarted(1000, witnessed=False, learned_at=9000))
        assert (course.phase, course.last_sign_at, course.step) == (None, 9000, None)
        course = follow(checkpoint(1500, 5000), line(1650, 9010), course=course)
        assert (course.step, course.phase, course.resumes) == (1650, Phase.TRAINING, 0)

    def test_a_resume_that_nobody_saw_shows_in_the_steps(self) -> None:
        course = follow(
            lines(1860, 1870, 1000), TrainerStarted(5000, witnessed=False, learned_at=9000)
        )
        assert follow(line(1502, 9010), course=course).resumes == 1
        assert follow(line(2500, 9010), course=course).resumes == 0

    @pytest.mark.parametrize("late", [83, 82, 81])
    def test_a_line_of_the_process_before_that_is_read_after_a_start_is_no_step(
        self, late: int
    ) -> None:
        course = follow(lines(1, 83, 1000, seconds=1), line(late, 1083), TrainerStarted(1082.5))
        assert (course.step, course.last_step_at, course.phase) == (None, None, Phase.STARTING)
        course = follow(line(51, 1200), line(52, 1210), course=course)
        assert (course.step, course.attempt.first_step, course.resumes) == (52, 51, 1)

    @pytest.mark.parametrize("read_first", [True, False])
    @pytest.mark.parametrize(("step", "silence"), [(83, 120), (82, 120), (60, 120), (83, 6)])
    def test_a_process_that_hangs_at_its_first_step_has_made_it_whatever_its_number(
        self, step: int, silence: float, *, read_first: bool
    ) -> None:
        before, began = lines(1, 83, 1000, seconds=1), 1082 + silence
        events: list[ProgressEvent] = [line(step, began + 1.3), TrainerStarted(began)]
        course = follow(before, events if read_first else events[::-1])
        assert (course.step, course.phase) == (step, Phase.TRAINING)
        assert (course.last_step_at, course.last_sign_at) == (began + 1.3, began + 1.3)
        assert (course.attempt.first_step, course.resumes) == (step, 1)
        assert course.repeated == 84 - step

    @pytest.mark.parametrize("read_first", [True, False])
    def test_its_first_step_counts_though_nobody_saw_it_start(self, *, read_first: bool) -> None:
        """The exporter was started at 1210, and reads the last lines again."""
        events: list[ProgressEvent] = [
            line(83, 1203, dated=False),
            TrainerStarted(1200, witnessed=False, learned_at=1210),
        ]
        before = lines(1, 83, 1000, seconds=1)
        course = follow(before, events if read_first else events[::-1])
        assert (course.step, course.phase, course.attempt.first_step) == (83, Phase.TRAINING, 83)
        assert (course.last_step_at, course.last_sign_at) == (None, 1210)
        course = follow(before, line(83, 1199, dated=False), events[1])
        assert (course.step, course.phase) == (None, None)

    def test_a_rank_that_was_late_before_a_start_is_no_step_after_it(self) -> None:
        course = follow(lines(1, 83, 1000, seconds=1), line(81, 1083), TrainerStarted(1090))
        assert follow(line(84, 1200), course=course).attempt.first_step == 84

    def test_a_record_that_lags_is_no_step_of_the_next_process(self) -> None:
        saved = (checkpoint(82, 1081), checkpoint(81, 1083))
        course = follow(lines(1, 83, 1000, seconds=1), *saved, TrainerStarted(1082.5))
        assert follow(line(84, 1200), course=course).attempt.first_step == 84

    @pytest.mark.parametrize("read", [1, 2, 3, 25])
    def test_a_log_of_two_lines_a_step_shows_the_first_step_whenever_the_start_is_known(
        self, read: int
    ) -> None:
        before = [one for one in lines(1, 83, 1000, seconds=0.3) for _ in range(2)]
        began = before[-1].timestamp + 0.1
        after = [one for one in lines(81, 130, began + 0.3, seconds=0.3) for _ in range(2)]
        course = follow(before, after[: 2 * read], TrainerStarted(began), after[2 * read :])
        assert (course.attempt.first_step, course.repeated, course.step) == (81, 3, 130)


class TestBacklog:
    def test_says_how_things_stand_and_not_when(self) -> None:
        course = follow(backlog(1, 100, 5000))
        assert (course.step, course.last_step_at, course.phase) == (100, None, Phase.TRAINING)
        assert course.last_sign_at == 5000
        assert course.timing.last is None

    def test_makes_no_duration_with_the_first_fresh_line(self) -> None:
        course = follow(backlog(1, 100, 5000), lines(101, 103, 5004))
        assert course.timing.durations == (10, 10)

    def test_makes_durations_where_it_tells_them(self) -> None:
        seen = [replace(one, seconds=12.5) for one in backlog(1, 10, 5000)]
        assert follow(seen).timing.typical == 12.5

    def test_shows_a_resume_that_is_in_it(self) -> None:
        course = follow(backlog(1860, 1870, 5000), backlog(1501, 1510, 5000))
        assert (course.step, course.resumes, course.attempt.origin) == (1510, 1, 1500)

    def test_shows_it_once_though_two_patterns_tell_it(self) -> None:
        other = [replace(one, source="log/trainer/loss") for one in backlog(1860, 1870, 5000)]
        again = [replace(one, source="log/trainer/loss") for one in backlog(1501, 1510, 5000)]
        course = follow(backlog(1860, 1870, 5000), other, backlog(1501, 1510, 5000), again)
        assert (course.step, course.resumes) == (1510, 1)

    def test_read_a_second_time_changes_nothing(self) -> None:
        course = follow(lines(90, 100, 1000))
        assert follow(backlog(91, 100, 5000), course=course).step == 100
        assert follow(backlog(91, 100, 5000), course=course).resumes == 0

    def test_read_a_second_time_with_a_resume_in_it_changes_nothing(self) -> None:
        before = follow(
            lines(1860, 1870, 1000), TrainerStarted(1500, step=1500), lines(1501, 1510, 2000)
        )
        again: list[ProgressEvent] = [
            *backlog(1865, 1870, 5000),
            TrainerStarted(5000, step=1500, dated=False),
            *backlog(1501, 1512, 5000),
        ]
        course = follow(again, course=before)
        assert (course.step, course.resumes, course.attempt.origin) == (1512, 1, 1500)
        course = follow(line(1513, 5010), course=course)
        assert (course.step, course.resumes) == (1513, 1)

    def test_tells_of_a_start_where_nothing_else_is_known(self) -> None:
        course = follow(
            backlog(1865, 1870, 5000),
            TrainerStarted(5000, step=1500, dated=False),
            backlog(1501, 1512, 5000),
        )
        assert (course.step, course.resumes, course.attempt.origin) == (1512, 1, 1500)

    def test_is_believed_where_it_goes_on_from_what_is_known(self) -> None:
        course = follow(lines(90, 100, 1000), backlog(95, 140, 5000))
        assert (course.step, course.last_step_at) == (140, None)

    def test_gets_its_time_from_who_knows_it(self) -> None:
        course = follow(backlog(1, 100, 5000), checkpoint(100, 4000))
        assert (course.step, course.last_step_at) == (100, 4000)

    def test_of_the_life_before_does_not_belong_to_a_start_that_was_seen(self) -> None:
        course = follow(backlog(1, 100, 5000), TrainerStarted(4990))
        assert (course.step, course.phase) == (None, Phase.STARTING)
        course = follow(line(81, 5300), course=course)
        assert (course.step, course.attempt.first_step, course.resumes) == (81, 81, 1)

    @pytest.mark.parametrize("refined", [[], [TrainerStarted(4992)]], ids=["once", "refined"])
    def test_read_before_its_start_is_known_makes_no_resume(
        self, refined: list[ProgressEvent]
    ) -> None:
        course = follow(backlog(1, 2, 5000), TrainerStarted(4990), refined, line(3, 5010))
        assert (course.step, course.resumes, course.attempt.origin) == (3, 0, None)
        course = follow(TrainerStarted(5100), line(3, 5200), course=course)
        assert (course.step, course.resumes) == (3, 1)


class TestPhases:
    def test_a_step_is_training(self) -> None:
        course = follow(TrainerStarted(900), line(1, 1000), line(2, 1010))
        assert (course.phase, course.phase_began_at) == (Phase.TRAINING, 1000)

    def test_a_phase_is_a_sign_but_not_its_repetition(self) -> None:
        waiting = [PhaseBegan(Phase.WAITING_FOR_ROLLOUTS, at) for at in (1015, 1025, 1035)]
        course = follow(lines(1, 2, 1000), waiting)
        assert (course.phase, course.phase_began_at, course.last_sign_at) == (
            Phase.WAITING_FOR_ROLLOUTS,
            1015,
            1015,
        )

    @pytest.mark.parametrize(
        "end",
        [PhaseEnded(Phase.SAVING, 1100), line(3, 1100), line(2, 1100)],
        ids=["its end", "a new step", "the line of the step, printed after the save"],
    )
    def test_training_goes_on_after_a_save(self, end: ProgressEvent) -> None:
        course = follow(lines(1, 2, 1000), PhaseBegan(Phase.SAVING, 1012), end)
        assert (course.phase, course.phase_began_at, course.last_sign_at) == (
            Phase.TRAINING,
            1100,
            1100,
        )

    def test_only_the_present_phase_ends(self) -> None:
        course = follow(
            line(2, 1000), PhaseBegan(Phase.EVALUATING, 1012), PhaseEnded(Phase.SAVING, 1013)
        )
        assert course.phase is Phase.EVALUATING

    @pytest.mark.parametrize(
        "lagging", [checkpoint(1, 1011), heartbeat(1, 1050)], ids=["a save before", "a step before"]
    )
    def test_what_lags_does_not_end_a_phase(self, lagging: StepReported) -> None:
        course = follow(lines(1, 2, 1000), PhaseBegan(Phase.SAVING, 1012), lagging)
        assert course.phase is Phase.SAVING

    def test_a_line_of_the_life_before_is_no_phase_of_this_one(self) -> None:
        course = follow(line(2, 1000), TrainerStarted(2000), PhaseBegan(Phase.SAVING, 1500))
        assert course.phase is Phase.STARTING

    def test_a_save_or_an_evaluation_is_no_part_of_a_step(self) -> None:
        course = follow(
            lines(1, 2, 1000),
            PhaseBegan(Phase.SAVING, 1012),
            PhaseBegan(Phase.EVALUATING, 1112),
            PhaseEnded(Phase.EVALUATING, 1312),
            line(3, 1320),
            line(4, 1330),
        )
        assert course.timing.durations == (10, 10, 10)

    def test_waiting_is_a_part_of_a_step(self) -> None:
        course = follow(
            lines(1, 2, 1000),
            PhaseBegan(Phase.WAITING_FOR_ROLLOUTS, 1010),
            PhaseEnded(Phase.WAITING_FOR_ROLLOUTS, 1025),
            line(3, 1030),
        )
        assert course.timing.last == 20


class TestSignsWithoutAStep:
    def test_say_that_it_trains(self) -> None:
        course = follow(TrainerStarted(900), Advanced(1000))
        assert (course.phase, course.last_sign_at, course.step) == (Phase.TRAINING, 1000, None)

    def test_make_the_usual_silence_where_steps_are_known_by_checkpoints_only(self) -> None:
        logged = [Advanced(1000 + 50 * one) for one in range(1, 21)]
        course = follow(checkpoint(500, 1000), logged, checkpoint(1000, 2000))
        assert (course.step, course.last_sign_at) == (1000, 2000)
        assert course.timing.usual_silence == 50
        assert course.timing.typical == 2

    def test_of_one_step_are_one_sign(self) -> None:
        signs = [Advanced(1000 + 100 * one + more) for one in range(9) for more in (0, 0.3, 0.9)]
        assert follow(signs).timing.usual_silence == 100

    def test_may_say_how_long_the_step_took(self) -> None:
        """As NeMo RL does: the step as it begins, its time as it ends."""
        steps: list[list[ProgressEvent]] = [
            [line(one, 1000 + 10 * one), Advanced(1009 + 10 * one, seconds=8)]
            for one in range(1, 10)
        ]
        course = follow(*steps)
        assert (course.timing.durations, course.step) == ((8,) * 9, 9)

    def test_do_not_take_back_the_end(self) -> None:
        assert follow(line(5, 1000), RunFinished(1001), Advanced(1002)).finished

    def test_of_the_life_before_are_none(self) -> None:
        assert follow(TrainerStarted(2000), Advanced(1500)).phase is Phase.STARTING


class TestTheEnd:
    def test_a_line_ends_the_run(self) -> None:
        course = follow(lines(1, 5, 1000), RunFinished(1050))
        assert course.finished
        assert (course.step, course.phase_began_at) == (5, 1050)

    def test_the_last_of_all_steps_ends_it(self) -> None:
        assert not follow(line(99, 1000, total=100)).finished
        assert follow(line(100, 1000, total=100)).finished
        assert follow(line(90, 1000, total=100), checkpoint(100, 1100)).finished
        assert not follow(line(90, 1000, total=100), checkpoint(95, 1100)).finished

    def test_what_comes_after_the_end_leaves_it_ended(self) -> None:
        course = follow(
            lines(1, 5, 1000),
            RunFinished(1050),
            PhaseBegan(Phase.SAVING, 1060),
            checkpoint(5, 1070),
            checkpoint(6, 1071),
            line(5, 1072),
        )
        assert course.finished

    @pytest.mark.parametrize("more", [line(6, 1100), TrainerStarted(1100), line(1, 1100)])
    def test_a_run_that_goes_on_has_not_ended(self, more: ProgressEvent) -> None:
        assert not follow(lines(1, 5, 1000), RunFinished(1050), more).finished

    def test_rows_that_are_flushed_at_the_end_leave_it_ended(self) -> None:
        """Lightning writes the rest of metrics.csv around its last line, and it is read later."""
        started = TrainerStarted(1000)
        for moment in (1049, 1050.1):
            rows = StepReported("file/metrics", 6, moment)
            assert follow(started, RunFinished(1050), Advanced(1050), rows).step == 6
            assert follow(started, RunFinished(1050), Advanced(1050), rows).finished
            assert follow(lines(1, 5, 1001), RunFinished(1050), rows).finished
            assert not follow(started, RunFinished(1050), rows, line(7, 1056)).finished

    def test_a_line_of_the_life_before_ends_nothing(self) -> None:
        assert not follow(lines(1, 5, 1000), TrainerStarted(2000), RunFinished(1050)).finished


class TestPace:
    def test_the_distance_of_two_steps_is_what_the_second_took(self) -> None:
        assert follow(lines(1, 5, 1000)).timing.durations == (10, 10, 10, 10)

    def test_what_the_line_says_counts_more(self) -> None:
        course = follow(line(1, 1000, seconds=7.5), line(2, 1010, seconds=8))
        assert (course.timing.last, course.timing.typical) == (8, 7.75)
        assert course.timing.intervals == (10,)

    def test_a_line_for_every_tenth_step(self) -> None:
        course = follow([line(10 * one, 1000 + 50 * one) for one in range(1, 6)])
        assert course.timing.durations == (5,) * 4
        assert course.timing.usual_silence == 50

    def test_a_restart_is_no_duration(self) -> None:
        course = follow(lines(1, 5, 1000), TrainerStarted(9000), lines(6, 8, 9500))
        assert course.timing.durations == (10,) * 6

    def test_a_log_that_is_flushed_seldom_tells_true_durations(self) -> None:
        """Forty lines at once, every 400 s, as Python writes to a file that is no terminal."""
        bursts = [
            [line(40 * one + of, 1000 + 400 * one + of * 0.0001) for of in range(40)]
            for one in range(1, 8)
        ]
        course = follow(*bursts)
        assert course.step == 319
        assert course.timing.typical == pytest.approx(10)
        assert course.timing.usual_silence == pytest.approx(400, abs=0.1)

    def test_only_the_last_steps_make_the_median(self) -> None:
        course = follow(lines(1, 100, 1000), lines(101, 132, 1992, seconds=2))
        assert course.timing.typical == 2
