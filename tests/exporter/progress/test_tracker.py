"""Runs are followed from every source, over reloads and restarts of the exporter."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwarden_exporter.frameworks.base import LinePattern, Phase, ProgressFile
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.progress.progress_files import FileProgress, ProgressFileSpec
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import StallLimits, pause_limit, stall_limit
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.step_dirs.locations import RunLocation

LINES = (
    LinePattern("step", r"step (?P<step>\d+)", phase=Phase.TRAINING, step_offset=1),
    LinePattern("resumed", r"resume from step (?P<step>\d+)", phase=Phase.STARTING, step_offset=1),
    LinePattern("saving", "saving", phase=Phase.SAVING),
    LinePattern("saved", r"saved step (?P<step>\d+)", ends=Phase.SAVING, step_offset=1),
    LinePattern("evaluating", "evaluating", phase=Phase.EVALUATING),
    LinePattern("evaluated", "evaluated", ends=Phase.EVALUATING),
    LinePattern("finished", "finished", phase=Phase.FINISHED),
)
LIMITS = StallLimits(
    phases={Phase.SAVING: 1800, Phase.EVALUATING: 3600, Phase.WAITING_FOR_ROLLOUTS: 1800}
)
SPEC = ProgressSpec("grpo", limits=LIMITS, lines={("trainer", one.name): one for one in LINES})
FILE = ProgressFileSpec(
    "grpo", RunLocation(Path("/run"), ()), ProgressFile("state", "s.json", "json", "step")
)


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Night:
    """A tracker, and the clock it lives by. Moments in its methods count from its beginning."""

    clock: Clock = field(default_factory=Clock)
    spec: ProgressSpec = SPEC
    folder: Path | None = None

    def __post_init__(self) -> None:
        self.begin = self.clock.now
        self.tracker = self.start()

    def start(self) -> ProgressTracker:
        return ProgressTracker(
            [self.spec], state_folder=self.folder, now=self.clock, elapsed=self.clock
        )

    def line(
        self,
        pattern: str,
        step: int | None = None,
        *,
        total: int | None = None,
        fresh: bool = True,
        at: float | None = None,
    ) -> None:
        groups = {"step": step, "total": total}
        message = {name: str(value) for name, value in groups.items() if value is not None}
        when = self.clock.now if at is None else self.begin + at
        event = LineEvent("grpo", "trainer", "trainer", pattern, message, when, fresh)
        self.tracker.record_line(event)

    @property
    def course(self) -> RunProgress:
        ((_, course),) = self.tracker.states()
        return course

    @property
    def silence(self) -> float:
        assert self.course.last_sign_at is not None
        return self.clock.now - self.course.last_sign_at

    @property
    def limit(self) -> float | None:
        return stall_limit(self.course, self.spec.limits)

    @property
    def patience(self) -> float | None:
        """The limit while nothing else tells of trouble."""
        return pause_limit(self.course, self.spec.limits)

    def make_steps(self, first: int, last: int, seconds: float = 20) -> None:
        """So many steps, and the time after each."""
        for step in range(first, last + 1):
            self.line("step", step)
            self.clock.now += seconds


@pytest.fixture
def night() -> Night:
    return Night()


def test_names_counted_from_zero_and_a_log_counted_from_one_agree(night: Night) -> None:
    """As in AReaL: the checkpoint `globalstep1869` is of the step that its log calls 1870."""
    night.line("step", 1869)
    night.tracker.record_checkpoint("grpo", "default", 1870, night.clock.now)
    assert night.tracker.step("grpo") == 1870
    assert {reading.step for reading in night.course.reports.values()} == {1870}


def test_a_checkpoint_on_disk_does_not_outdo_the_run_that_resumed_before_it(night: Night) -> None:
    night.tracker.record_checkpoint("grpo", "default", 1870, night.clock.now - 50_000)
    night.line("resumed", 1499)
    assert night.tracker.step("grpo") == 1500
    night.clock.now += 300
    night.line("step", 1500)
    night.tracker.record_checkpoint("grpo", "default", 1870, night.clock.now - 50_300)
    assert night.tracker.step("grpo") == 1501
    assert (night.course.resumes, night.course.repeated) == (1, 370)


def test_all_sources_are_read(night: Night) -> None:
    now = night.clock.now
    night.line("step", 99)
    night.tracker.record_file(FILE, FileProgress(98, 500, now - 20))
    night.tracker.record_heartbeat("grpo", "beat", 101, now)
    night.tracker.record_checkpoint("grpo", "default", 90, now - 100)
    assert night.tracker.step("grpo") == 101
    assert night.course.total == 500
    assert {source: reading.step for source, reading in night.course.reports.items()} == {
        "log/trainer/step": 100,
        "file/state": 98,
        "heartbeat/beat": 101,
        "checkpoint/default": 90,
    }


def test_phase_and_step_are_artifacts(night: Night) -> None:
    assert night.tracker.step("grpo") is None
    assert night.tracker.phase("grpo") is None
    night.line("step", 4)
    night.clock.now += 7
    night.line("saving")
    assert night.tracker.step("grpo") == 5
    assert night.tracker.phase("grpo") == (Phase.SAVING, night.clock.now)


def test_what_is_not_configured_is_passed_over(night: Night) -> None:
    night.tracker.record_line(LineEvent("other", "trainer", "", "step", {"step": "5"}, 1.0))
    night.tracker.record_line(LineEvent("grpo", "other", "", "step", {"step": "5"}, 1.0))
    night.line("unknown", 5)
    night.tracker.record_heartbeat("other", "beat", 5, 1.0)
    assert night.tracker.states() == ((SPEC, RunProgress()),)


def test_a_file_server_whose_clock_is_ahead_cannot_keep_a_run_from_being_stalled(
    night: Night,
) -> None:
    night.tracker.record_checkpoint("grpo", "default", 10, night.clock.now + 7200)
    assert night.course.last_sign_at == night.clock.now


def test_the_configured_length_counts_more_than_the_reported_one() -> None:
    night = Night(spec=ProgressSpec("grpo", lines=SPEC.lines, total=200))
    night.line("step", 99, total=100)
    assert not night.course.finished
    night.line("step", 199)
    assert night.course.finished


class TestTrainerProcess:
    def test_a_new_one_is_a_start(self, night: Night) -> None:
        night.line("step", 99)
        night.tracker.record_trainer("grpo", night.begin - 500, finished=False)
        assert night.tracker.step("grpo") == 100
        night.clock.now += 60
        night.tracker.record_trainer("grpo", night.begin + 50, finished=False)
        assert night.tracker.phase("grpo") == (Phase.STARTING, night.begin + 50)
        night.clock.now += 60
        night.line("step", 100)
        assert (night.course.resumes, night.course.attempt.origin) == (1, 100)

    def test_the_same_one_is_none(self, night: Night) -> None:
        night.tracker.record_trainer("grpo", night.begin + 10, finished=False)
        night.clock.now += 60
        night.line("step", 0)
        for _ in range(3):
            night.tracker.record_trainer("grpo", night.begin + 10.01, finished=False)
        assert night.course.phase is Phase.TRAINING

    def test_a_run_that_began_before_the_exporter_may_be_far(self, night: Night) -> None:
        night.tracker.record_trainer("grpo", night.begin - 90_000, finished=False)
        assert night.tracker.phase("grpo") is None
        assert night.silence == 0

    def test_its_end_may_be_that_of_the_run(self, night: Night) -> None:
        night.line("step", 99)
        night.clock.now += 15
        night.tracker.record_trainer("grpo", None, finished=False)
        assert not night.course.finished
        night.tracker.record_trainer("grpo", None, finished=True)
        assert night.tracker.phase("grpo") == (Phase.FINISHED, night.clock.now)
        night.clock.now += 600
        night.tracker.record_trainer("grpo", night.clock.now - 5, finished=False)
        assert night.tracker.phase("grpo") == (Phase.STARTING, night.clock.now - 5)


class TestSavesThatTheFolderShows:
    """Of frameworks whose log does not tell that they save."""

    def test_are_a_phase_until_they_end(self, night: Night) -> None:
        night.line("step", 9)
        night.clock.now += 30
        night.tracker.record_saving("grpo", night.begin + 20)
        assert night.tracker.phase("grpo") == (Phase.SAVING, night.begin + 20)
        night.tracker.record_saving("grpo", night.begin + 20)
        night.clock.now += 60
        night.tracker.record_saving("grpo", None)
        assert night.tracker.phase("grpo") == (Phase.TRAINING, night.begin + 90)

    def test_are_none_where_steps_are_made_meanwhile(self, night: Night) -> None:
        night.line("step", 9)
        night.clock.now += 30
        night.tracker.record_saving("grpo", night.begin + 20)
        night.line("step", 10)
        night.tracker.record_saving("grpo", night.begin + 20)
        assert night.course.phase is Phase.TRAINING

    def test_that_steps_were_made_beside_are_none_however_late_they_are_seen(
        self, night: Night
    ) -> None:
        for step in range(1, 6):
            night.line("step", step)
            night.clock.now += 10
        night.tracker.record_saving("grpo", night.begin + 25)
        assert night.course.phase is Phase.TRAINING

    def test_that_the_log_shows_end_once_their_checkpoint_is_complete(self, night: Night) -> None:
        """A run that hangs right after its save logs nothing more."""
        night.line("step", 9)
        before = night.clock.now
        night.clock.now += 30
        night.line("saving")
        night.tracker.record_checkpoint("grpo", "all", 5, before, before - 1)
        assert night.course.phase is Phase.SAVING
        night.clock.now += 40
        ended = night.clock.now - 20
        night.tracker.record_checkpoint("grpo", "all", 10, ended, ended - 10)
        assert night.tracker.phase("grpo") == (Phase.TRAINING, ended)
        night.tracker.record_saving("grpo", ended + 5)  # of another kind
        assert night.tracker.phase("grpo") == (Phase.SAVING, ended + 5)

    def test_do_not_end_a_phase_from_the_log(self, night: Night) -> None:
        night.line("saving")
        night.tracker.record_saving("grpo", None)
        assert night.course.phase is Phase.SAVING


class TestLinesThatWereThere:
    def test_have_no_time_of_their_own(self, night: Night) -> None:
        night.line("step", 99, fresh=False)
        assert (night.course.step, night.course.last_step_at) == (100, None)

    def test_have_one_where_they_say_so(self, night: Night) -> None:
        night.line("step", 99, fresh=False, at=-3600)
        assert night.course.last_step_at == night.begin - 3600


class TestRestartOfTheExporter:
    @pytest.fixture
    def night(self, tmp_path: Path) -> Night:
        return Night(folder=tmp_path)

    def test_keeps_steps_pace_and_resumes(self, night: Night) -> None:
        for step in (*range(10), *range(5, 8)):
            night.line("step", step)
            night.clock.now += 20
        before = night.course
        night.tracker.save()
        night.clock.now += 5
        night.tracker = night.start()
        assert night.course == replace(before, interrupted_at=night.clock.now)
        assert (before.step, before.resumes, before.timing.typical) == (8, 1, 20)

    def test_shows_a_resume_that_came_meanwhile(self, night: Night) -> None:
        for step in range(100):
            night.line("step", step)
            night.clock.now += 20
        night.tracker.save()
        night.clock.now += 7200
        night.tracker = night.start()
        night.tracker.record_checkpoint("grpo", "default", 90, night.begin + 1800)
        for step in range(50, 60):
            night.line("step", step, fresh=False)
        night.clock.now += 20
        night.line("step", 60)
        assert (night.tracker.step("grpo"), night.course.resumes) == (61, 1)

    def test_does_not_count_lines_twice_that_are_read_again(self, night: Night) -> None:
        for step in range(100):
            night.line("step", step)
            night.clock.now += 20
        night.tracker.save()
        night.tracker = night.start()
        for step in range(90, 103):
            night.line("step", step, fresh=False)
        night.clock.now += 20
        night.line("step", 103)
        assert (night.tracker.step("grpo"), night.course.resumes) == (104, 0)

    def test_keeps_the_silence_of_a_run_that_is_stalled(self, night: Night) -> None:
        night.line("step", 1)
        night.tracker.save()
        night.clock.now += 3600
        night.tracker = night.start()
        assert night.silence == 3600

    def test_keeps_what_the_longest_pause_was(self, night: Night) -> None:
        night.make_steps(1, 9)
        night.clock.now += 380
        night.make_steps(10, 12)
        night.tracker.save()
        night.tracker = night.start()
        assert (night.limit, night.patience) == (100, 800)

    def test_learns_nothing_of_a_silence_that_nobody_watched(self, night: Night) -> None:
        night.make_steps(1, 9)
        night.tracker.save()
        night.clock.now += 3600
        night.tracker = night.start()
        night.clock.now += 20
        night.make_steps(200, 202)
        assert night.patience == night.limit

    def test_forgives_the_silence_of_heartbeats_that_nobody_took(self, night: Night) -> None:
        night.tracker.record_heartbeat("grpo", "beat", 5, night.clock.now)
        night.tracker.save()
        night.clock.now += 3600
        night.tracker = night.start()
        assert (night.silence, night.tracker.step("grpo")) == (0, 5)

    def test_forgets_runs_that_are_not_configured_any_more(self, night: Night) -> None:
        night.line("step", 1)
        night.tracker.save()
        night.spec = ProgressSpec("other")
        night.tracker = night.start()
        assert night.tracker.step("grpo") is None


class TestReload:
    def test_goes_on_where_the_predecessor_was(self, night: Night) -> None:
        night.line("step", 1)
        successor = night.start()
        successor.take_over_from(night.tracker)
        assert successor.step("grpo") == 2

    def test_receives_reports_to_the_predecessor(self, night: Night) -> None:
        successor = night.start()
        successor.take_over_from(night.tracker)
        night.line("step", 1)
        assert successor.step("grpo") == 2

    def test_has_received_what_was_reported_before_it_took_over(self, night: Night) -> None:
        night.line("step", 9)
        predecessor, night.tracker = night.tracker, night.start()
        night.clock.now += 10
        night.line("step", 10)
        night.tracker.take_over_from(predecessor)
        assert night.course.step == 11
        assert night.course.timing.last == 10

    def test_judges_by_the_new_configuration(self, night: Night) -> None:
        night.line("step", 1)
        successor = ProgressTracker([ProgressSpec("grpo", total=50), ProgressSpec("other")])
        successor.take_over_from(night.tracker)
        (grpo, course), (other, nothing) = successor.states()
        assert (grpo.total, course.step, other.run, nothing) == (50, 2, "other", RunProgress())

    def test_drops_runs_that_are_gone(self, night: Night) -> None:
        night.line("step", 1)
        successor = ProgressTracker([])
        successor.take_over_from(night.tracker)
        assert successor.states() == ()
        assert successor.step("grpo") is None


def test_it_may_be_reported_by_many_threads_at_once() -> None:
    tracker = ProgressTracker([ProgressSpec("grpo")])
    begin = threading.Barrier(4)

    def tell(name: str) -> None:
        begin.wait()
        for step in range(1, 501):
            tracker.record_heartbeat("grpo", name, step, 1000.0 + step)

    threads = [threading.Thread(target=tell, args=[f"beat-{one}"]) for one in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((_, course),) = tracker.states()
    assert (course.step, course.resumes) == (500, 0)
    assert len(course.reports) == 4


STEPS = 1000
SAVE_EVERY, EVALUATE_EVERY = 50, 120


class SyntheticRun:
    """A run of 1,000 steps, reported to a tracker one event at a time.

    It loads and compiles for long, makes steps of uneven length, saves, evaluates, dies once, goes
    on from its last checkpoint, and comes to an end. Time passes on the clock alone.
    """

    def __init__(self, seed: int) -> None:
        self.night = Night()
        self.excess = -math.inf
        """By how much the silence was ever over its limit, in seconds."""
        self.steps_of_life = 0
        self.dice = random.Random(seed)  # noqa: S311 - no secret
        self.usual = self.dice.choice([0.3, 2.0, 15.0, 90.0, 400.0])

    def wait(self, low: float, high: float) -> None:
        self.night.clock.now += self.dice.uniform(low, high)
        if self.night.limit is not None:
            self.excess = max(self.excess, self.night.silence - self.night.limit)

    def tell(self, pattern: str, step: int | None = None) -> str:
        self.night.line(pattern, step)
        return pattern

    def begin(self) -> str:
        self.steps_of_life = 0
        self.night.tracker.record_trainer("grpo", self.night.clock.now, finished=False)
        return "start"

    def events(self) -> Iterator[str]:
        """The name of each event, once it was reported."""
        death = self.dice.randrange(SAVE_EVERY, STEPS - 1)
        death += death % EVALUATE_EVERY == 0
        saved = step = 0
        yield self.begin()
        self.wait(60, 1500)
        while step < STEPS:
            yield self.tell("step", step)
            self.steps_of_life += 1
            step += 1
            if step % SAVE_EVERY == 0 and step < STEPS:
                self.wait(0, self.usual)
                yield self.tell("saving")
                self.wait(1, 1200)
                saved = step
                self.night.tracker.record_checkpoint("grpo", "default", step, self.night.clock.now)
                yield self.tell("saved", step - 1)
            if step % EVALUATE_EVERY == 0:
                self.wait(0, self.usual)
                yield self.tell("evaluating")
                self.wait(1, 3000)
                if self.dice.random() < 0.5:
                    yield self.tell("evaluated")
                else:
                    continue
            if step == death:
                death = 0
                self.wait(5, 50)
                yield self.begin()
                self.wait(60, 900)
                yield self.tell("resumed", saved - 1)
                self.wait(60, 1700)
                step = saved
                continue
            self.wait(0.5 * self.usual, 1.6 * self.usual)
        yield self.tell("finished")


SEEDS = st.integers(min_value=0, max_value=2**32)


@given(SEEDS)
@settings(max_examples=12)
def test_a_healthy_run_is_never_silent_beyond_its_limit(seed: int) -> None:
    run = SyntheticRun(seed)
    assert Counter(run.events())["finished"] == 1
    assert -1800 < run.excess <= 0
    course = run.night.course
    assert course.finished
    assert (course.step, course.resumes) == (STEPS, 1)
    run.night.clock.now += 1_000_000
    assert run.night.limit is None


@given(SEEDS, st.floats(min_value=0, max_value=0.999))
@settings(max_examples=25)
def test_a_run_that_stalls_is_silent_beyond_its_limit_in_time(seed: int, share: float) -> None:
    length = sum(1 for _ in SyntheticRun(seed).events())
    run = SyntheticRun(seed)
    last = list(islice(run.events(), 1 + int(share * (length - 1))))[-1]
    assert run.excess <= 0
    known_after = 4 / min(1.0, 0.5 * run.usual)  # what is less than a second apart is one sign
    of_steps = 5 * 1.6 * run.usual
    allowed = {
        "start": 1800,
        "resumed": 1800,
        "saving": 1800,
        "evaluating": 3600,
    }.get(last, max(60 if run.steps_of_life > known_after else 1800, of_steps))
    run.night.clock.now += allowed + 1.6 * run.usual
    assert run.night.limit is not None
    assert run.night.silence > run.night.limit


def test_an_unreported_evaluation_is_a_surprise_once(night: Night) -> None:
    night.make_steps(1, 20)
    assert (night.limit, night.patience) == (100, 100)
    night.clock.now += 380
    night.make_steps(21, 40)
    assert (night.limit, night.patience) == (100, 800)


def test_a_pause_that_a_save_ended_may_hold_a_step_the_next_time(night: Night) -> None:
    night.make_steps(1, 20, seconds=100)
    night.clock.now += 400
    night.line("saving")
    night.clock.now += 30
    night.line("saved", 20)
    night.make_steps(21, 22, seconds=100)
    assert (night.limit, night.patience) == (500, 1200)


def test_what_a_step_takes_at_the_beginning_is_no_pause(night: Night) -> None:
    """The second step compiles, the third captures."""
    night.make_steps(1, 3, seconds=300)
    night.make_steps(4, 9)
    assert night.patience == night.limit


@pytest.mark.parametrize(("began", "ended"), [("evaluating", "evaluated"), ("saving", "saved")])
def test_what_is_reported_is_no_pause(night: Night, began: str, ended: str) -> None:
    night.make_steps(1, 9)
    night.line(began)
    night.clock.now += 900
    night.line(ended, 9)
    night.make_steps(10, 12)
    assert night.patience == night.limit


def test_a_silence_that_a_restart_ended_is_no_pause(night: Night) -> None:
    night.make_steps(1, 9)
    night.clock.now += 900
    night.tracker.record_trainer("grpo", night.clock.now, finished=False)
    night.make_steps(10, 14)
    assert (night.limit, night.patience) == (100, 100)


def test_nor_is_a_pause_ended_by_a_resume_from_an_earlier_step(night: Night) -> None:
    night.make_steps(1, 20)
    night.clock.now += 900
    night.make_steps(10, 14)
    assert (night.course.resumes, night.patience) == (1, night.limit)


def test_what_the_run_has_shown_outlives_a_restart_of_it(night: Night) -> None:
    night.make_steps(1, 9)
    night.clock.now += 380
    night.make_steps(10, 12)
    night.tracker.record_trainer("grpo", night.clock.now, finished=False)
    night.clock.now += 300
    assert night.patience == night.limit == 1800
    night.make_steps(13, 15)
    assert (night.limit, night.patience) == (100, 800)


class TestLinesFromBeforeAStart:
    """Read again by the next exporter, with the last write to their file as their latest time."""

    @pytest.fixture
    def night(self, tmp_path: Path) -> Night:
        night = Night(folder=tmp_path)
        night.line("saving")
        night.make_steps(1, 5)
        night.line("step", 6)
        night.tracker.save()
        return night

    def read_again(self, night: Night, pattern: str, written: float, **groups: str) -> None:
        night.tracker.record_line(
            LineEvent(
                "grpo", "trainer", "trainer", pattern, groups, written, fresh=False, is_bound=True
            )
        )

    def test_change_nothing_if_nothing_was_written_since(self, night: Night) -> None:
        before, written = night.course, night.clock.now
        night.clock.now += 300
        night.tracker = night.start()
        self.read_again(night, "saving", written)
        self.read_again(night, "step", written, step="6")
        after = night.course
        assert (after.phase, after.last_sign) == (Phase.TRAINING, before.last_sign)
        assert (after.last_sign_at, night.limit) == (written, 100)

    def test_are_new_at_the_last_write_if_there_was_one(self, night: Night) -> None:
        written = night.clock.now + 100
        night.clock.now += 300
        night.tracker = night.start()
        self.read_again(night, "step", written, step="9")
        assert (night.tracker.step("grpo"), night.silence) == (10, 200)
        assert night.limit == 1800 + 200  # from the first look on

    def test_are_counted_by_an_exporter_that_has_never_seen_the_run(self) -> None:
        night = Night()
        for step in ("0", "1", "2"):
            self.read_again(night, "step", night.begin - 300, step=step)
        assert (night.silence, night.course.steps[-1].reports) == (300, 3)
        assert night.limit == 1800 + 300  # from the first look on
