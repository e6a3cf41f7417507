"""Each second of a run counts in the state that it was in, and none is lost or counted twice."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.stacks.model import Movement
from trainwarden_exporter.progress.run_time import Interruption, RunState, RunTime
from trainwarden_exporter.progress.run_time_evidence import RunLook
from trainwarden_exporter.progress.run_time_history import MAX_KEPT, retain
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import StallLimits
from trainwarden_exporter.progress.tracker import ProgressTracker

LINES = (
    LinePattern("step", r"step (?P<step>\d+)", phase=Phase.TRAINING),
    LinePattern("loaded", "loaded", phase=Phase.TRAINING),
    LinePattern("saving", "saving", phase=Phase.SAVING),
    LinePattern("saved", "saved", ends=Phase.SAVING),
    LinePattern("evaluating", "evaluating", phase=Phase.EVALUATING),
    LinePattern("evaluated", "evaluated", ends=Phase.EVALUATING),
    LinePattern("waiting", "waiting", phase=Phase.WAITING_FOR_ROLLOUTS),
    LinePattern("received", "received", ends=Phase.WAITING_FOR_ROLLOUTS),
    LinePattern("finished", "finished", phase=Phase.FINISHED),
)
SPEC = ProgressSpec(
    "grpo",
    limits=StallLimits(
        phases={Phase.SAVING: 600, Phase.EVALUATING: 900, Phase.WAITING_FOR_ROLLOUTS: 900}
    ),
    lines={("trainer", one.name): one for one in LINES},
    announces_evaluations=True,
)
LOOK = 10.0
BEGIN = 1_000_000.0


class Line(NamedTuple):
    """A line that the run writes at `at`, or an empty one for a start or an end of its process."""

    at: float
    pattern: str
    step: int | None = None
    started: bool | None = None


@dataclass
class Run:
    """A run as it is: what it writes, and the seconds it truly spends in each state."""

    random: random.Random
    at: float = BEGIN
    lines: list[Line] = field(default_factory=list)
    truth: dict[RunState, float] = field(default_factory=lambda: defaultdict(float))
    step: int = 0
    highest: int = 0
    redone: int = 0
    step_seconds: float = 20.0

    def spend(self, state: RunState, seconds: float) -> None:
        self.truth[state] += seconds
        self.at += seconds

    def write(self, pattern: str, step: int | None = None) -> None:
        self.lines.append(Line(self.at, pattern, step))

    def start(self) -> None:
        self.lines.append(Line(self.at, "", started=True))
        self.spend(RunState.STARTING, self.random.uniform(20, 60))
        self.write("loaded")
        self.spend(RunState.FIRST_STEP, 2 * self.step_seconds)
        self._made()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            state = RunState.REDOING if self.step < self.highest else RunState.TRAINING
            self.spend(state, self.step_seconds * self.random.uniform(0.8, 1.2))
            self._made()

    def _made(self) -> None:
        self.step += 1
        self.redone += self.step <= self.highest
        self.write("step", self.step)

    def phase(self, begin: str, state: RunState, end: str, seconds: float) -> None:
        self.write(begin)
        self.spend(state, seconds)
        self.write(end)

    def die(self, down: float, lost: int) -> None:
        self.lines.append(Line(self.at, "", started=False))
        self.spend(RunState.DOWN, down)
        self.highest = max(self.highest, self.step)
        self.step = max(0, self.step - lost)

    def finish(self) -> None:
        self.write("finished")
        self.spend(RunState.FINISHED, 600)


@dataclass
class Watch:
    """The tracker of an exporter that looks at a run every ten seconds."""

    folder: Path | None = None
    now: float = BEGIN
    set_by: float = 0.0
    process: float | None = None
    held: tuple[float, float] = (0.0, 0.0)
    booted: float = 0.0
    movement: Movement = Movement.UNKNOWN
    unserved_since: float | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.tracker = self._start([SPEC])

    def _start(self, specs: Sequence[ProgressSpec]) -> ProgressTracker:
        return ProgressTracker(
            specs,
            state_folder=self.folder,
            now=lambda: self.now + self.set_by,
            elapsed=lambda: self.now - self.booted,
        )

    def reload(self, *specs: ProgressSpec) -> None:
        """Continues with the configuration `specs`."""
        before, self.tracker = self.tracker, self._start(specs)
        self.tracker.take_over_from(before)

    def follow(self, run: Run, *, blind: tuple[float, float] = (0.0, 0.0)) -> None:
        """Reads all lines, and looks between them; nobody looks during `blind`."""
        self.look(BEGIN)
        looked = BEGIN
        for line in [*run.lines, Line(run.at, "")]:
            while looked + LOOK <= line.at:
                looked += LOOK
                if not blind[0] <= looked < blind[1]:
                    self.look(looked)
            self._read(line, unseen=blind[0] <= line.at < blind[1])

    def _read(self, line: Line, *, unseen: bool) -> None:
        self.now = line.at
        if line.started is not None:
            self.process = line.at if line.started else None
        elif line.pattern:
            groups = {} if line.step is None else {"step": str(line.step)}
            at = line.at + self.set_by
            self.tracker.record_line(
                LineEvent("grpo", "trainer", "trainer", line.pattern, groups, at, not unseen)
            )

    def look(self, at: float) -> None:
        self.now = at
        started = None if self.process is None else self.process + self.set_by
        self.tracker.record_trainer("grpo", started, finished=False)
        held = self.held[0] <= at < self.held[1]
        shown = RunLook(
            self.process is not None,
            finished=self.finished,
            held=held,
            movement=self.movement,
            unserved_since=self.unserved_since,
        )
        self.tracker.record_looks({"grpo": shown})

    @property
    def time(self) -> RunTime:
        return self.tracker.save()["grpo"]


def close(time: RunTime, run: Run) -> None:
    """Asserts that each state is within a hundredth of the whole of what it truly was."""
    whole = run.at - BEGIN
    assert sum(time.seconds.values()) == pytest.approx(whole, abs=0.01 * whole)
    wrong = {
        state: (round(time.seconds.get(state, 0.0)), round(run.truth[state]))
        for state in RunState
        if abs(time.seconds.get(state, 0.0) - run.truth[state]) > 0.01 * whole
    }
    assert wrong == {}, "counted, true"


def seeded(seed: int) -> Run:
    return Run(random.Random(seed))  # noqa: S311 - a model, no secret


def night(seed: int, parts: int = 8) -> Run:
    """Six hours or so with everything that happens to a run."""
    run = seeded(seed)
    run.start()
    for _ in range(parts):
        run.train(run.random.randint(60, 120))
        run.phase("evaluating", RunState.EVALUATING, "evaluated", run.random.uniform(100, 400))
        run.train(run.random.randint(5, 20))
        run.phase("saving", RunState.SAVING, "saved", run.random.uniform(20, 200))
        run.phase("waiting", RunState.WAITING_FOR_ROLLOUTS, "received", run.random.uniform(30, 300))
        if run.random.random() < 0.5:
            run.train(3)
            run.die(run.random.uniform(60, 900), run.random.randint(0, 40))
            run.start()
        if run.random.random() < 0.3:
            run.spend(RunState.STALLED, run.random.uniform(600, 1800))
            run.train(1)
    run.finish()
    return run


@pytest.mark.parametrize("seed", range(6))
def test_whole_nights_are_counted_as_they_were(seed: int) -> None:
    run, watch = night(seed), Watch()
    watch.follow(run)
    close(watch.time, run)
    assert watch.time.steps_redone == run.redone


def test_totals_never_decrease() -> None:
    run, watch = night(3), Watch()
    before: dict[RunState, float] = {}
    original = watch.look

    def look(at: float) -> None:
        original(at)
        for state, seconds in watch.time.seconds.items():
            assert seconds >= before.get(state, 0.0)
            before[state] = seconds

    watch.look = look  # type: ignore[method-assign]
    watch.follow(run)
    assert before


def test_a_restart_of_the_exporter_loses_nothing(tmp_path: Path) -> None:
    run, watch = night(5, parts=1), Watch(tmp_path)
    parts = list(_parts(run, 4))
    for number, part in enumerate(parts):
        if number:
            watch.tracker.save()
            watch.restart()
        for line in part.lines:
            while watch.now + LOOK <= line.at:
                watch.look(watch.now + LOOK)
            watch._read(line, unseen=False)
    while watch.now + LOOK <= run.at:
        watch.look(watch.now + LOOK)
    close(watch.time, run)


@pytest.mark.parametrize("exporter_restarts", [False, True])
def test_the_time_of_a_run_that_is_not_shown_for_a_while_is_kept(
    tmp_path: Path, exporter_restarts: bool
) -> None:
    run, watch = seeded(1), Watch(tmp_path)
    run.start()
    run.train(20)
    run.die(200, lost=0)
    watch.follow(run)
    before = watch.time
    assert before.down

    watch.reload()
    watch.tracker.record_looks({})
    assert watch.tracker.save() == {}
    watch.now = pause_end = watch.now + 3 * 86400
    if exporter_restarts:
        watch.restart()
    else:
        watch.reload(SPEC)
    watch.process = pause_end
    for _ in range(10):
        watch.look(watch.now + LOOK)

    after = watch.time
    assert (after.steps_made, before.steps_made) == (21, 21)
    for state in before.seconds.keys() - {RunState.STARTING}:
        assert after.seconds[state] == before.seconds[state]
    assert after.seconds[RunState.UNKNOWN] >= pause_end - before.counted_until


def test_the_times_of_runs_that_are_gone_are_kept_for_a_limited_time_and_number() -> None:
    week = 7 * 86400.0
    times = {f"r{n}": RunTime(0, float(n)) for n in range(MAX_KEPT + 2)}
    assert retain(times, (), week) == {f"r{n}": RunTime(0, n) for n in range(2, MAX_KEPT + 2)}
    assert retain(times, ("r0",), 10 * week) == {"r0": RunTime(0, 0)}


def test_downtime_under_a_hold_is_held_and_the_rest_of_it_is_not() -> None:
    run, watch = seeded(1), Watch()
    run.start()
    run.train(40)
    fault = run.at
    run.die(900, lost=3)
    run.truth[RunState.DOWN] -= 400
    run.truth[RunState.HELD] += 400
    run.start()
    run.train(60)
    watch.held = (fault + 300, fault + 700)
    watch.follow(run)
    close(watch.time, run)


def test_a_stall_under_a_hold_is_held_from_the_start_of_the_hold() -> None:
    run, watch = seeded(1), Watch()
    run.start()
    run.train(40)
    fault = run.at
    run.spend(RunState.STALLED, 1800)
    run.truth[RunState.STALLED] -= 1500
    run.truth[RunState.HELD] += 1500
    run.train(60)
    watch.held = (fault + 300, run.at)
    watch.follow(run)
    close(watch.time, run)


def steps_of(run: Run) -> list[Line]:
    return [line for line in run.lines if line.pattern == "step"]


def test_an_interruption_is_from_the_last_new_step_to_the_next_and_has_what_is_redone() -> None:
    run, watch = seeded(2), Watch()
    run.start()
    run.train(50)
    last = steps_of(run)[-1]
    run.die(300, lost=12)
    run.start()
    run.train(30)
    watch.follow(run)
    interruption = watch.time.interruption
    assert interruption is not None
    assert last.step is not None
    next_one = next(line for line in steps_of(run) if line.step == last.step + 1)
    assert (interruption.start, interruption.end) == (last.at, next_one.at)
    assert interruption.steps_redone == 12
    assert watch.time.interruptions == 1


def test_an_interruption_lasts_until_a_new_step_and_a_normal_pause_is_none() -> None:
    run, watch = seeded(2), Watch()
    run.start()
    run.train(50)
    run.phase("saving", RunState.SAVING, "saved", 200)
    run.train(3)
    watch.follow(run)
    assert watch.time.interruptions == 0
    last = steps_of(run)[-1]
    run.die(300, lost=20)
    run.start()
    run.train(10)
    watch = Watch()
    watch.follow(run)
    assert watch.time.interruption is not None
    assert (watch.time.interruption.start, watch.time.interruption.end) == (last.at, None)


@pytest.mark.parametrize("rebooted", [False, True])
def test_an_interruption_that_nobody_watched_is_from_the_last_new_step_to_the_next(
    tmp_path: Path, rebooted: bool
) -> None:
    run, watch = seeded(2), Watch(tmp_path)
    run.start()
    run.train(50)
    fault, last, died = run.at, steps_of(run)[-1], len(run.lines)
    run.die(900, lost=12)
    run.start()
    run.train(30)
    if rebooted:
        watch.follow(replace(run, lines=run.lines[:died], at=fault))
        watch.tracker.save()
        watch.now = watch.booted = fault + 600
        watch.process = None
        watch.restart()
        for line in [one for one in run.lines if one.at > watch.now]:
            while watch.now + LOOK <= line.at:
                watch.look(watch.now + LOOK)
            watch._read(line, unseen=False)
    else:
        watch.follow(run, blind=(fault + 1, fault + 905))
    assert last.step is not None
    resumed = next(line for line in steps_of(run) if line.step == last.step + 1)
    found = watch.time.interruption
    assert found is not None
    assert (found.start, found.end, found.steps_redone) == (last.at, resumed.at, 12)
    assert watch.time.interruptions == 1


def test_a_day_is_shown_in_parts_that_add_up_and_old_parts_are_forgotten(tmp_path: Path) -> None:
    run, watch = night(4, parts=3), Watch(tmp_path)
    watch.follow(run)
    parts = watch.tracker.day("grpo")
    assert len(parts) > 10
    for state, seconds in watch.time.seconds.items():
        assert sum(part.get(state, 0.0) for _, part in parts) == pytest.approx(seconds), state
    watch.tracker.save()
    watch.restart()
    assert watch.tracker.day("grpo") == parts
    for _ in range(2 * 1440):
        watch.look(watch.now + 60)
    kept = watch.tracker.day("grpo")
    assert len(kept) <= 24 * 6 + 4
    assert all(end >= watch.now - 86400 - 1200 for end, _ in kept)


@pytest.mark.parametrize("read_before", range(9))
@pytest.mark.parametrize("resumed_from", [78, 80, 81, 82, 83])
@pytest.mark.parametrize("stalled", [0.0, 600.0])
@pytest.mark.parametrize("seen_dead", [None, 0.5, 4.5])
def test_a_restart_with_fast_steps_costs_the_same_whenever_it_is_noticed(
    resumed_from: int, read_before: int, seen_dead: float | None, stalled: float
) -> None:
    # `seen_dead`: after how many steps it is seen without a process, which may be known late
    watch, seconds = Watch(), 0.3
    watch.process = BEGIN
    watch.look(BEGIN)
    for step in range(1, 84):
        watch._read(Line(BEGIN + 1 + seconds * step, "step", step), unseen=False)
    watch.look(last := watch.now)
    while watch.now < last + stalled:
        watch.look(watch.now + LOOK)
    died = watch.now
    if seen_dead is not None:
        watch.process = None
        watch.look(died + seconds * seen_dead)
    watch.process = died + seconds
    new = [
        Line(watch.process + seconds * (step - resumed_from), "step", step)
        for step in range(resumed_from + 1, 101)
    ]
    for line in new[:read_before]:
        watch._read(line, unseen=False)
    watch.look(max(watch.now, watch.process))
    for line in new[read_before:]:
        watch._read(line, unseen=False)

    redone, time = 83 - resumed_from, watch.time
    attempt = watch.tracker.state("grpo").attempt
    assert (attempt.known_origin, attempt.first_step) == (resumed_from, resumed_from + 1)
    assert (time.steps_made, time.steps_redone) == (100 + redone, redone)
    assert time.interruption is not None
    assert time.interruption.steps_redone == redone
    assert time.interruption.start == last
    assert time.interruption.end == new[redone].at
    assert time.interruptions == 1


@pytest.mark.parametrize("resumed_from", [78, 81, 83])
@pytest.mark.parametrize("seen_dead", [False, True])
def test_a_restart_that_is_noticed_after_more_steps_than_are_kept_is_an_interruption(
    resumed_from: int, *, seen_dead: bool
) -> None:
    watch, seconds = Watch(), 0.2
    watch.process = BEGIN
    watch.look(BEGIN)
    for step in range(1, 84):
        watch._read(Line(BEGIN + 1 + seconds * step, "step", step), unseen=False)
    watch.look(watch.now)
    if seen_dead:
        watch.process = None
        watch.look(watch.now + seconds / 2)
    watch.process = watch.now + seconds
    for number in range(1, 41):
        line = Line(watch.process + seconds * number, "step", resumed_from + number)
        watch._read(line, unseen=False)
    watch.look(watch.now)
    watch._read(Line(watch.now + seconds, "step", resumed_from + 41), unseen=False)
    time = watch.time
    assert time.interruptions == 1
    assert time.interruption is not None
    assert time.interruption.end is not None
    assert time.interruption.start <= watch.process < time.interruption.end


def test_the_first_steps_of_a_run_whose_start_is_noticed_late_interrupt_nothing() -> None:
    watch = Watch()
    watch.look(BEGIN)
    watch.process = BEGIN + 2
    for step in (1, 2, 3):
        watch._read(Line(BEGIN + 2 + step, "step", step), unseen=False)
    watch.look(BEGIN + 6)
    watch._read(Line(BEGIN + 7, "step", 4), unseen=False)
    assert watch.tracker.state("grpo").attempt.began == BEGIN + 2
    assert watch.time.interruptions == 0


def test_the_last_step_of_a_process_that_is_read_after_the_start_of_the_next_is_made_again() -> (
    None
):
    watch = Watch()
    watch.process = BEGIN
    watch.look(BEGIN)
    for step in (1, 2, 3):
        watch._read(Line(BEGIN + step, "step", step), unseen=False)
    watch.process = BEGIN + 5
    watch.look(BEGIN + 5)
    watch._read(Line(BEGIN + 4, "step", 4), unseen=False)  # its time is that of its line
    for step in (3, 4, 5):
        watch._read(Line(BEGIN + 3 + step, "step", step), unseen=False)
    state, time = watch.tracker.state("grpo"), watch.time
    assert (state.attempt.origin, state.repeated, time.steps_redone) == (2, 2, 2)
    assert time.interruption is not None
    assert time.interruption.end == BEGIN + 8


def test_steps_that_are_lost_twice_are_redone_twice_and_only_those() -> None:
    run, watch = seeded(7), Watch()
    run.start()
    run.train(60)
    for made in (9, 12):
        highest = run.highest
        run.die(120, lost=run.step - 20)
        run.highest = max(highest, run.highest)
        run.start()
        run.train(made)
    run.train(60)
    watch.follow(run)
    close(watch.time, run)
    assert run.redone == 10 + 41
    assert (watch.time.steps_redone, watch.time.steps_lost) == (run.redone, 41 + 10)


def test_a_reboot_ends_the_run_at_the_last_look(tmp_path: Path) -> None:
    run, watch = seeded(3), Watch(tmp_path)
    run.start()
    run.train(40)
    watch.follow(run)
    watch.tracker.save()
    run.spend(RunState.DOWN, 900)
    watch.now = watch.booted = run.at
    watch.process = None
    watch.restart()
    for _ in range(30):
        run.spend(RunState.DOWN, LOOK)
        watch.look(run.at)
    close(watch.time, run)
    assert watch.time.seconds.get(RunState.UNKNOWN, 0.0) == 0.0


def test_a_run_that_died_and_was_restarted_while_nobody_looked_is_unknown_until_then() -> None:
    run, watch = seeded(3), Watch()
    run.start()
    run.train(40)
    watch.follow(run)
    run.spend(RunState.UNKNOWN, 2000)
    restarted = run.at
    run.spend(RunState.STARTING, 300)
    watch.process = restarted
    watch.look(run.at)
    watch._read(Line(run.at, "loaded"), unseen=False)
    close(watch.time, run)


SILENT = replace(
    SPEC, announces_evaluations=False, limits=StallLimits(phases={Phase.EVALUATING: 3600})
)


@pytest.mark.parametrize(
    ("restarted", "moves", "seconds", "state"),
    [
        (False, False, 900, RunState.TRAINING),
        (False, False, 1900, RunState.STALLED),
        (False, True, 1900, RunState.TRAINING),
        (True, False, 900, RunState.STALLED),
    ],
)
def test_a_silence_that_nothing_announces_is_what_its_end_shows(
    restarted: bool, moves: bool, seconds: float, state: RunState
) -> None:
    run, watch = seeded(3), Watch()
    watch.reload(SILENT)
    watch.movement = Movement.MOVING if moves else Movement.UNKNOWN
    run.start()
    run.train(40)
    run.spend(state, seconds)
    if restarted:
        run.die(60, lost=0)
        run.start()
    else:
        run._made()
    run.train(20)
    watch.follow(run)
    close(watch.time, run)
    paused = seconds if state is RunState.TRAINING and not moves else 0.0
    assert watch.time.paused_seconds == pytest.approx(paused, abs=30)


def test_a_run_whose_process_is_not_found_is_not_down_while_it_makes_steps() -> None:
    run, watch = seeded(3), Watch()
    run.start()
    run.train(60)
    run.lines.append(Line(run.at, "", started=False))
    run.train(300)
    watch.follow(run)
    close(watch.time, run)


def test_the_step_after_a_save_whose_end_nothing_tells_is_training() -> None:
    run, watch = seeded(3), Watch()
    watch.reload(replace(SPEC, lines={k: v for k, v in SPEC.lines.items() if k[1] != "saved"}))
    run.start()
    for _ in range(30):
        run.train(10)
        run.phase("saving", RunState.SAVING, "saved", 60)
    run.train(10)
    watch.follow(run)
    close(watch.time, run)


def no_end_of_a_save(run: Run) -> list[Line]:
    return [line for line in run.lines if line.pattern != "saved"]


def saved_twice(*, known_after: float) -> tuple[Run, Watch, tuple[float, float]]:
    """A run that saves, and evaluates without a word; its checkpoint is seen some seconds later."""
    run, watch = seeded(3), Watch()
    watch.reload(replace(SILENT, lines=SPEC.lines))
    run.start()
    run.train(40)
    began = run.at
    run.phase("saving", RunState.SAVING, "saved", 60)
    saved, look = (began, run.at), watch.look
    run.spend(RunState.TRAINING, 400)
    run._made()
    run.train(20)

    def see(at: float) -> None:
        look(at)
        if at >= saved[1] + known_after:
            watch.tracker.record_checkpoint("grpo", "full", 41, saved[1], saved[0])

    watch.look = see  # type: ignore[method-assign]
    return run, watch, saved


@pytest.mark.parametrize("known_after", [0.0, 45.0])
def test_a_save_whose_end_nothing_tells_ends_with_its_checkpoint(known_after: float) -> None:
    run, watch, _ = saved_twice(known_after=known_after)
    run.lines = no_end_of_a_save(run)
    watch.follow(run)
    close(watch.time, run)


def test_what_follows_a_save_is_none_for_the_alerts_either() -> None:
    run, watch, (_, saved) = saved_twice(known_after=0.0)
    run.lines = [line for line in no_end_of_a_save(run) if line.at <= saved]
    run.at = saved + 300
    watch.follow(run)
    assert watch.tracker.phase("grpo") == (Phase.TRAINING, saved)
    assert watch.time.seconds[RunState.SAVING] == pytest.approx(60)


@pytest.mark.parametrize("beside_steps", [False, True])
def test_a_save_that_only_its_files_show_counts_unless_steps_were_made_beside_it(
    beside_steps: bool,
) -> None:
    run, watch, (began, _) = saved_twice(known_after=0.0)
    run.lines = [line for line in run.lines if line.pattern not in ("saving", "saved")]
    if beside_steps:
        at = next(number for number, line in enumerate(run.lines) if line.at > began)
        more = [Line(began + 20, "step", 42), Line(began + 40, "step", 43)]
        run.lines[at:at] = more
        run.lines[at + 2 :] = [
            line if line.step is None else line._replace(step=line.step + 2)
            for line in run.lines[at + 2 :]
        ]
        run.truth[RunState.TRAINING] += run.truth.pop(RunState.SAVING)
    watch.follow(run)
    close(watch.time, run)


def test_of_a_time_in_which_nobody_looked_only_that_is_unknown() -> None:
    run, watch = seeded(3), Watch()
    run.start()
    run.train(20)
    run.phase("evaluating", RunState.EVALUATING, "evaluated", 60)
    run.train(20)
    run.spend(RunState.TRAINING, 60)
    away = run.at
    run.spend(RunState.UNKNOWN, 300)
    run.spend(RunState.TRAINING, 20)
    run._made()
    run.train(10)
    watch.follow(run, blind=(away, away + 300))
    close(watch.time, run)


def test_the_end_of_a_stall_before_a_time_in_which_nobody_looked_is_a_stall() -> None:
    run, watch = seeded(3), Watch()
    run.start()
    run.train(20)
    run.spend(RunState.STALLED, 3600)
    watch.follow(run)
    trained = watch.time.seconds[RunState.TRAINING]
    for later in (600, 610, 620, 630, 640):
        watch.look(run.at + later)
    assert watch.time.seconds[RunState.UNKNOWN] > 590
    assert watch.time.seconds[RunState.TRAINING] == trained


def _parts(run: Run, count: int) -> Iterator[Run]:
    size = len(run.lines) // count + 1
    for start in range(0, len(run.lines), size):
        yield replace(run, lines=run.lines[start : start + size])


def test_what_nobody_saw_is_known_from_the_log_afterwards() -> None:
    run = seeded(1)
    run.start()
    run.train(60)
    begin = run.at
    run.train(60)
    end = run.at
    run.train(60)
    run.finish()
    watch = Watch()
    watch.follow(run, blind=(begin, end))
    close(watch.time, run)


def test_silence_that_nobody_saw_is_unknown() -> None:
    run = seeded(1)
    run.start()
    run.train(60)
    begin = run.at
    run.spend(RunState.UNKNOWN, 3600)
    end = run.at
    run.train(60)
    run.finish()
    watch = Watch()
    watch.follow(run, blind=(begin, end))
    close(watch.time, run)


@pytest.mark.parametrize("seconds", [-86400.0, -30.0, 45.1, 86400.3])
def test_a_clock_that_is_set_adds_no_time(seconds: float) -> None:
    run = seeded(2)
    run.start()
    run.train(80)
    middle = len(run.lines)
    run.train(80)
    watch = Watch()
    watch.follow(replace(run, lines=run.lines[:middle], at=run.lines[middle - 1].at))
    watch.set_by = seconds
    before, attempt = watch.time, watch.tracker.state("grpo").attempt.number
    watch.look(watch.now + LOOK)
    for line in run.lines[middle:]:
        while watch.now + LOOK <= line.at:
            watch.look(watch.now + LOOK)
        watch._read(line, unseen=False)
    assert watch.tracker.state("grpo").attempt.number == attempt
    assert watch.time.steps_made == len(steps_of(run))
    elapsed = watch.now - BEGIN
    assert sum(watch.time.seconds.values()) <= elapsed
    assert sum(watch.time.seconds.values()) >= 0.9 * elapsed
    assert all(watch.time.seconds[state] >= spent for state, spent in before.seconds.items())


def test_a_run_without_any_sign_is_unknown_and_not_training() -> None:
    watch = Watch()
    for look in range(100):
        watch.look(BEGIN + LOOK * look)
    assert set(watch.time.seconds) == {RunState.DOWN}
    watch.process = watch.now - 1e6
    for _ in range(100):
        watch.look(watch.now + LOOK)
    assert watch.time.seconds[RunState.UNKNOWN] == pytest.approx(1000, abs=40)


def test_a_search_that_makes_trials_and_no_steps_trains() -> None:
    trial = LinePattern("trial", "trial", phase=Phase.TRAINING, advances=True)
    spec = replace(SPEC, lines={("trainer", "trial"): trial})
    watch = Watch()
    watch.reload(spec)
    watch.process = watch.now
    for _ in range(180):
        watch.look(watch.now + LOOK)
        watch._read(Line(watch.now, "trial"), unseen=False)
    assert watch.time.seconds[RunState.TRAINING] >= 0.98 * 1800
    assert watch.time.interruption is None


def test_a_long_trial_of_a_search_whose_pace_is_unknown_trains() -> None:
    trial = LinePattern("trial", "trial", phase=Phase.TRAINING, advances=True)
    watch = Watch()
    watch.reload(replace(SPEC, lines={("trainer", "trial"): trial}))
    watch.process = watch.now
    for hours in (0.1, 3):
        for _ in range(int(3600 * hours / LOOK)):
            watch.look(watch.now + LOOK)
        watch._read(Line(watch.now, "trial"), unseen=False)
    assert watch.time.seconds.get(RunState.STALLED, 0.0) == 0.0
    assert watch.time.seconds[RunState.TRAINING] >= 3 * 3600
    assert watch.time.interruption is None


def test_a_search_trains_until_its_workers_end_which_no_line_tells() -> None:
    trial = LinePattern("trial", "trial", phase=Phase.TRAINING, advances=True)
    watch = Watch()
    watch.reload(replace(SPEC, lines={("trainer", "trial"): trial}))
    watch.process = watch.now
    for looks in (30, 30, 30, 25):
        for _ in range(looks):
            watch.look(watch.now + LOOK)
        if looks == 30:
            watch._read(Line(watch.now, "trial"), unseen=False)
    ended, watch.finished = watch.now, True
    for _ in range(60):
        watch.look(watch.now + LOOK)
    seconds = watch.time.seconds
    first = BEGIN + LOOK
    assert sum(seconds.values()) - seconds[RunState.FINISHED] == pytest.approx(ended - first, abs=5)
    assert seconds[RunState.FINISHED] == pytest.approx(600, abs=40)


def test_a_start_whose_end_would_not_be_seen_is_unknown() -> None:
    watch = Watch()
    watch.reload(replace(SPEC, lines={}))
    watch.process = watch.now
    for _ in range(180):
        watch.look(watch.now + LOOK)
    assert watch.time.seconds[RunState.UNKNOWN] >= 0.98 * 1800
    assert sum(watch.time.seconds.values()) == watch.time.seconds[RunState.UNKNOWN]


def saves_hourly(watch: Watch, saves: int) -> None:
    """A run that shows nothing but its checkpoints, one an hour, each after 90 s of saving."""
    if watch.process is None:
        watch.process = watch.now
    for number in range(saves):
        ended = watch.now + 3600
        while watch.now < ended:
            watch.look(watch.now + LOOK)
        watch.tracker.record_checkpoint("grpo", "full", 180 * (number + 1), ended, ended - 90)


def test_a_run_that_shows_only_its_checkpoints_is_never_lost() -> None:
    """Nothing shows when its start was over; each later checkpoint shows that it trained."""
    watch = Watch()
    watch.reload(SILENT)
    saves_hourly(watch, 3)
    assert watch.time.seconds == pytest.approx(
        {RunState.UNKNOWN: 3510, RunState.TRAINING: 2 * 3510, RunState.SAVING: 3 * 90}, abs=20
    )
    assert watch.time.interruption is None


@pytest.mark.parametrize("read_before", [0, 3], ids=["start known first", "lines read first"])
@pytest.mark.parametrize(("first", "resumes"), [(1, 0), (151, 1)])
def test_a_checkpoint_of_another_run_in_the_folder_is_no_step_of_this_one(
    first: int, resumes: int, read_before: int
) -> None:
    """A run that begins at step 0 has neither resumed nor repeated a step, whatever lies there."""
    watch = Watch()
    watch.tracker.record_checkpoint("grpo", "full", 150, watch.now - 90)
    process = watch.now + 5
    for step in range(first, first + read_before):
        watch._read(Line(watch.now + 3 * LOOK, "step", step), unseen=True)
    watch.process = process
    for step in range(first + read_before, first + 200):
        watch.look(watch.now + LOOK)
        watch._read(Line(watch.now, "step", step), unseen=False)
    ((_, course),) = watch.tracker.states()
    assert course.resumes == (resumes if not read_before else 0), "else when is not known"
    assert course.repeated == 0
    assert (watch.time.steps_redone, watch.time.interruption) == (0, None)
    assert watch.time.seconds.get(RunState.REDOING, 0.0) == 0.0


def test_such_a_checkpoint_may_be_read_after_the_first_steps() -> None:
    watch = Watch()
    began = watch.now
    watch.look(began)
    for step in range(1, 4):
        watch._read(Line(began + 3, "step", step), unseen=True)
    for step in range(4, 40):
        watch._read(Line(began + step, "step", step), unseen=False)
        if step == 8:
            watch.tracker.record_checkpoint("grpo", "full", 150, began - 90)
    ((_, course),) = watch.tracker.states()
    assert (course.step, course.resumes, course.repeated) == (39, 0, 0)
    assert watch.time.interruption is None


def test_what_a_run_did_after_its_last_checkpoint_is_unknown_where_nothing_else_shows_it() -> None:
    watch = Watch()
    watch.reload(SILENT)
    saves_hourly(watch, 2)
    unknown = watch.time.seconds[RunState.UNKNOWN]
    ended = watch.now + 1800
    while watch.now < ended:
        watch.look(watch.now + LOOK)
    watch.process = None
    for _ in range(30):
        watch.look(watch.now + LOOK)
    assert watch.time.seconds[RunState.UNKNOWN] - unknown == pytest.approx(1800, abs=20)
    assert watch.time.seconds[RunState.DOWN] == pytest.approx(300, abs=40)


def test_a_start_whose_stacks_show_it_stuck_is_a_stall() -> None:
    watch = Watch(movement=Movement.STUCK)
    watch.process = watch.now
    while watch.now < BEGIN + 2400:
        watch.look(watch.now + LOOK)
    assert watch.time.seconds[RunState.STALLED] == pytest.approx(2400, abs=40)


@pytest.mark.parametrize("looks_dead", [False, True])
def test_a_stall_that_a_restart_ends_is_a_stall_until_then(*, looks_dead: bool) -> None:
    run, watch = seeded(5), Watch()
    run.start()
    run.train(60)
    run.spend(RunState.STALLED, 3600)
    run.die(30.0 if looks_dead else 1.0, lost=0)
    run.start()
    run.train(10)
    watch.follow(run)
    trained = watch.time.seconds[RunState.TRAINING]
    assert trained == pytest.approx(run.truth[RunState.TRAINING], abs=0.1)


def test_a_long_start_is_a_start() -> None:
    run, watch = seeded(3), Watch()
    run.start()
    run.lines[1:] = [line._replace(at=line.at + 3000) for line in run.lines[1:]]
    run.truth[RunState.STARTING] += 3000
    run.at += 3000
    run.train(20)
    watch.follow(run)
    close(watch.time, run)


@pytest.mark.parametrize(("seconds", "state"), [(150, RunState.STALLED), (50, RunState.TRAINING)])
def test_a_wait_for_a_server_that_is_down_is_a_stall_if_it_is_longer_than_slow_steps(
    seconds: float, state: RunState
) -> None:
    run, watch = seeded(3), Watch()
    watch.reload(SILENT)
    run.step_seconds = 5.0
    run.start()
    run.train(80)
    down = run.at
    run.spend(state, seconds)
    back = run.at
    run.spend(RunState.TRAINING, 5)
    run._made()
    run.train(80)
    look = watch.look

    def see(at: float) -> None:
        watch.unserved_since = down if down < at <= back else None
        look(at)

    watch.look = see  # type: ignore[method-assign]
    watch.follow(run)
    close(watch.time, run)


def run_unseen_from_step_13_to_40(folder: Path) -> Watch:
    """A run whose log has no times: that of its last write is the latest possible of its steps."""
    watch = Watch(folder=folder)
    watch.process = BEGIN
    watch.look(BEGIN)
    for step in range(1, 13):
        watch._read(Line(BEGIN + step, "step", step), unseen=False)
    watch.tracker.save()
    watch.now = BEGIN + 1000
    watch.restart()
    log = ("grpo", "trainer", "trainer", "step")
    for step in range(1, 41):
        event = LineEvent(*log, {"step": str(step)}, BEGIN + 900, fresh=False, is_bound=True)
        watch.tracker.record_line(replace(event, missed=step > 12))
    return watch


def test_an_interruption_begins_with_the_last_step_though_nobody_has_looked_then(
    tmp_path: Path,
) -> None:
    watch = run_unseen_from_step_13_to_40(tmp_path)
    watch.process = None
    for seconds in range(1000, 1100, 10):
        watch.look(BEGIN + seconds)
    watch.process = BEGIN + 1100
    watch.look(BEGIN + 1100)
    for step in range(31, 42):
        watch._read(Line(BEGIN + 1100 + step, "step", step), unseen=False)
    assert watch.time.interruption == Interruption(BEGIN + 900, BEGIN + 1141, 10)


def test_the_steps_that_nobody_has_seen_a_run_make_are_made(tmp_path: Path) -> None:
    watch = run_unseen_from_step_13_to_40(tmp_path)
    watch.look(BEGIN + 1000)
    for step in (41, 42):
        watch._read(Line(BEGIN + 1000 + step, "step", step), unseen=False)
    assert (watch.time.steps_made, watch.time.steps_redone, watch.time.interruptions) == (42, 0, 0)
