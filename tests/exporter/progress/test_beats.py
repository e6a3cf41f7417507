"""Beats: what programs report of themselves, read from files and believed before all else."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.frameworks.error_lines import FATAL_PREFIX
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.procfs import Identity, read_process
from trainwarden_exporter.progress.beats import (
    MAX_FILES,
    MAX_STEPS,
    Beat,
    lags_by_run,
    newest_by_run,
    parse_beat,
    read_beats,
)
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.state import RunProgress
from trainwarden_exporter.progress.tracker import ProgressTracker

NOW = 1_000_000.0
HERE = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link of proc(5), not a path
CONTENT: dict[str, Any] = {
    "written": NOW,
    "run": None,
    "pid": 12,
    "start_ticks": 34,
    "pid_namespace": HERE,
    "step": 7,
    "step_time": NOW - 1,
    "total": 100,
    "phase": "evaluating",
    "phase_time": NOW - 2,
    "numbers": {"loss": 0.5},
}
PATTERNS = (
    LinePattern("step", "…", phase=Phase.TRAINING),
    LinePattern("saving", "…", phase=Phase.SAVING),
    LinePattern("finished", "…", phase=Phase.FINISHED),
    LinePattern(f"{FATAL_PREFIX}kill", "…", error=True),
)
SPEC = ProgressSpec("grpo", lines={("trainer", one.name): one for one in PATTERNS})


def parsed(**changes: Any) -> Beat | None:
    return parse_beat(json.dumps(CONTENT | changes).encode(), namespace=HERE)


def test_a_file_is_parsed() -> None:
    assert parsed() == Beat(
        written=NOW,
        identity=Identity(12, 34),
        started=(34, 12),
        step=7,
        step_time=NOW - 1,
        total=100,
        phase=Phase.EVALUATING,
        phase_time=NOW - 2,
        numbers={"loss": 0.5},
    )


def test_a_pid_of_another_namespace_identifies_nothing() -> None:
    beat = parsed(pid_namespace=HERE + 1)
    assert beat is not None
    assert beat.identity is None


def test_numbers_that_are_not_finite_are_kept() -> None:
    beat = parsed(numbers={"loss": math.nan, "kl": math.inf, "": 1, "two\nlines": 2, "x" * 101: 3})
    assert beat is not None
    assert beat.numbers.keys() == {"loss", "kl"}


@pytest.mark.parametrize(
    ("changes", "step", "phase"),
    [
        ({"step": -1}, None, Phase.EVALUATING),
        ({"step": 10**400}, None, Phase.EVALUATING),
        ({"step": 1.5}, None, Phase.EVALUATING),
        ({"phase": "generating"}, 7, None),
        ({"phase": ["saving"]}, 7, None),
    ],
)
def test_a_value_without_a_meaning_is_left_out(
    changes: dict[str, Any], step: int | None, phase: Phase | None
) -> None:
    beat = parsed(**changes)
    assert beat is not None
    assert (beat.step, beat.phase) == (step, phase)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff" * 100, b"[" * 60_000, b'{"written": 1}'],
)
def test_a_file_without_a_beat_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "1.beat").write_bytes(content)
    assert read_beats(tmp_path) == ()


@pytest.mark.parametrize("moment", [math.nan, math.inf, -1, "soon"])
def test_a_time_that_is_none_makes_no_beat(moment: object) -> None:
    assert parsed(written=moment) is None


def test_a_folder_that_is_not_there_holds_none(tmp_path: Path) -> None:
    assert read_beats(tmp_path / "beats") == ()


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.beat")
    assert read_beats(tmp_path) == ()


def own_beat(folder: Path, **changes: Any) -> Path:
    """The file of this process."""
    process = read_process(os.getpid())
    assert process is not None
    identity = {"pid": process.pid, "start_ticks": process.identity.start_ticks}
    path = folder / f"{process.pid}.beat"
    path.write_text(json.dumps(CONTENT | identity | changes))
    return path


def test_a_process_that_has_ended_is_known(tmp_path: Path) -> None:
    own_beat(tmp_path)
    assert [beat.ended for beat in read_beats(tmp_path)] == [False]
    own_beat(tmp_path, start_ticks=1)
    assert [beat.ended for beat in read_beats(tmp_path)] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give a file away")
def test_another_account_cannot_speak_for_a_process(tmp_path: Path) -> None:
    os.chown(own_beat(tmp_path), 65534, 65534)
    assert read_beats(tmp_path) == ()


def test_of_several_processes_a_living_one_with_a_step_speaks() -> None:
    living = Beat(written=NOW, step=3)
    others = [
        Beat(written=NOW + 9, step=9, ended=True),
        Beat(written=NOW + 8),
        Beat(written=NOW - 500, step=8),
    ]
    for order in ([living, *others], [*others, living]):
        assert newest_by_run(order, lambda _: "grpo") == {"grpo": living}
    assert newest_by_run([living], lambda _: None) == {}


def test_of_two_processes_that_report_the_older_one_speaks_while_it_does() -> None:
    older, newer = Beat(NOW, step=500, started=(1, 2)), Beat(NOW, step=3, started=(1, 3))
    for seconds in (0, 1, 2):
        beats = [replace(older, written=NOW + seconds), replace(newer, written=NOW + seconds + 0.5)]
        for order in (beats, beats[::-1]):
            found = newest_by_run(order, lambda _: "grpo")["grpo"]
            assert found.step == 500
    late = replace(newer, written=NOW + 100)
    assert newest_by_run([older, late], lambda _: "grpo") == {"grpo": late}
    ended = replace(older, ended=True)
    assert newest_by_run([ended, newer], lambda _: "grpo") == {"grpo": newer}


def rank(number: int | None, *, late: float = 0.0, **more: Any) -> Beat:
    steps = {step: NOW - 20 + step + late for step in range(20)}
    return replace(Beat(NOW, step=19, rank=number, steps=steps), **more)


def test_only_rank_0_speaks_for_a_run() -> None:
    first = rank(0)
    assert newest_by_run([rank(3, written=NOW + 9), first], lambda _: "grpo") == {"grpo": first}
    assert newest_by_run([rank(3), rank(None)], lambda _: "grpo") == {}


def test_the_living_ranks_of_a_run_are_compared() -> None:
    before = rank(1, written=NOW - 500, steps={3: NOW - 500})
    beats = [
        rank(1, late=0.5),
        before,
        rank(2, late=9.0, ended=True),
        rank(None),
        rank(7, steps={}),
    ]
    found = lags_by_run([rank(0), *beats], lambda _: "grpo", NOW)
    assert found == {"grpo": {0: -0.5, 1: 0.5}}
    assert lags_by_run(beats, lambda _: None, NOW) == {}
    assert lags_by_run([rank(0)], lambda _: "grpo", NOW) == {"grpo": {}}


def test_ranks_and_steps_are_parsed() -> None:
    beat = parsed(rank="3", steps=[[step, NOW + step] for step in range(MAX_STEPS + 5)])
    assert beat is not None
    assert beat.rank == 3
    assert min(beat.steps) == 5
    for odd in ("", "-1", "x", None, "1e9999"):
        beat = parsed(rank=odd)
        assert beat is not None
        assert beat.rank is None
    for steps in ([[-1, NOW]], [[1, math.nan]], [[1]], {"1": 2}):
        assert parsed(steps=steps) is None


def test_of_more_files_than_are_read_the_last_written_count(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 20):
        path = tmp_path / f"{number}.beat"
        path.write_text(json.dumps(CONTENT | {"pid_namespace": 1, "step": number}))
        os.utime(path, (NOW + number, NOW + number))
    assert {beat.step for beat in read_beats(tmp_path)} == set(range(20, MAX_FILES + 20))


class Night:
    """A tracker whose clock is set by hand."""

    def __init__(self) -> None:
        self.now = NOW
        self.tracker = ProgressTracker([SPEC], now=lambda: self.now, elapsed=lambda: self.now)

    def line(self, pattern: str, step: int | None = None, **groups: str) -> None:
        message = groups if step is None else {**groups, "step": str(step)}
        event = LineEvent("grpo", "trainer", "trainer", pattern, message, self.now)
        self.tracker.record_line(event)

    def beat(self, step: int | None = None, **changes: Any) -> None:
        beat = Beat(written=self.now, step=step, step_time=self.now)
        self.tracker.record_beat("grpo", replace(beat, **changes))

    @property
    def state(self) -> RunProgress:
        return self.tracker.states()[0][1]


def test_steps_of_lines_and_checkpoints_count_no_more_once_the_run_reports_them() -> None:
    night = Night()
    night.line("step", 800, total="9000")  # batches, which are not steps
    night.now += 10
    night.beat(100, total=1000)
    assert (night.state.step, night.state.total_steps) == (100, 1000)
    night.now += 10
    night.line("step", 808, total="9000")
    night.tracker.record_checkpoint("grpo", "default", 900, night.now)
    night.tracker.record_heartbeat("grpo", "trainer", 901, night.now)
    assert (night.state.step, night.state.total_steps) == (100, 1000)
    night.beat(101, total=1000)
    assert night.state.step == 101
    assert night.state.resumes == 0
    assert night.state.timing.last == 10


def test_phases_of_lines_count_until_the_run_reports_phases() -> None:
    night = Night()
    night.beat(1)
    night.now += 5
    night.line("saving")
    assert night.state.phase == Phase.SAVING.value
    night.beat(2, phase=Phase.EVALUATING, phase_time=night.now)
    assert night.state.phase is Phase.EVALUATING
    night.now += 5
    night.line("saving")
    night.line("finished")
    assert night.state.phase is Phase.EVALUATING
    night.beat(2, step_time=night.now - 5, phase=Phase.FINISHED, phase_time=night.now)
    assert night.state.finished


def test_a_save_that_its_folder_shows_counts_beside_the_phases_that_the_run_reports() -> None:
    night = Night()
    began = NOW
    night.beat(1, phase=Phase.TRAINING, phase_time=began)
    night.now += 30
    night.tracker.record_saving("grpo", NOW + 10)
    night.beat(1, step_time=began, phase=Phase.TRAINING, phase_time=began)
    assert (night.state.phase, night.state.phase_began_at) == (Phase.SAVING, NOW + 10)
    night.tracker.record_saving("grpo", None)
    night.beat(1, step_time=began, phase=Phase.TRAINING, phase_time=began)
    assert night.state.phase == Phase.TRAINING.value
    night.tracker.record_saving("grpo", night.now)
    night.now += 10
    night.beat(2, phase=Phase.EVALUATING, phase_time=night.now)
    assert night.state.phase is Phase.EVALUATING
    night.tracker.record_saving("grpo", None)
    assert night.state.phase is Phase.EVALUATING


def test_a_run_at_its_last_step_has_finished() -> None:
    night = Night()
    night.beat(10, total=10)
    assert night.state.finished


def test_an_error_in_the_log_counts_all_the_same() -> None:
    night = Night()
    night.beat(1, phase=Phase.TRAINING, phase_time=NOW)
    night.tracker.record_line(
        LineEvent("grpo", "trainer", "trainer", f"{FATAL_PREFIX}kill", {}, night.now, fresh=True)
    )
    assert night.tracker.signs("grpo").failed_at == night.now


def test_lines_count_again_when_the_next_attempt_does_not_report() -> None:
    night = Night()
    night.beat(100)
    last = Beat(written=night.now, step=100, step_time=night.now)
    night.now += 60
    night.tracker.record_trainer("grpo", night.now, finished=False)
    night.now += 60
    night.tracker.record_beat("grpo", replace(last, ended=True))
    night.line("step", 5)
    assert night.state.step == 5


def test_lines_count_again_as_soon_as_the_next_attempt_has_begun() -> None:
    night = Night()
    night.beat(100)
    night.now += 60
    night.tracker.record_trainer("grpo", night.now, finished=False)
    night.line("step", 5)
    assert night.state.step == 5


def test_lines_count_again_when_the_beats_belong_to_no_run_any_more(tmp_path: Path) -> None:
    own_beat(tmp_path)
    tracker, owners = ProgressTracker([SPEC], now=lambda: NOW), {7: "grpo"}
    collector = ProgressCollector(
        [SPEC], tracker, beats_folder=tmp_path, run_of=lambda _: owners.get(7)
    )
    for step in (7, 9):
        list(collector.collect())
        owners.clear()
        tracker.record_line(LineEvent("grpo", "trainer", "trainer", "step", {"step": "9"}, NOW))
        assert tracker.step("grpo") == step


def test_a_resumed_run_begins_where_its_beats_begin() -> None:
    night = Night()
    for step in (100, 101, 102):
        night.beat(step)
        night.now += 10
    night.tracker.record_trainer("grpo", night.now, finished=False)
    night.now += 30
    night.beat(91)
    assert (night.state.step, night.state.resumes, night.state.repeated) == (91, 1, 12)


def test_repeated_reads_of_one_beat_change_nothing() -> None:
    night = Night()
    night.beat(5, phase=Phase.SAVING, phase_time=NOW)
    before = night.state
    night.now += 60
    night.beat(5, step_time=NOW, phase=Phase.SAVING, phase_time=NOW)
    assert night.state == before


def test_the_lags_of_the_ranks_are_exported(tmp_path: Path) -> None:
    now = time.time()
    for number, late in enumerate((0.0, 0.0, 0.25)):
        steps = [[step, now - 20 + step + late] for step in range(20)]
        file = CONTENT | {"run": "grpo", "pid_namespace": 1, "rank": str(number), "steps": steps}
        (tmp_path / f"{number}.beat").write_text(json.dumps(file))
    shown = scrape(tmp_path, None)
    lags = [shown[f"rank_lag_ratio grpo {number}"] for number in range(3)]
    assert lags == [pytest.approx(lag, abs=1e-6) for lag in (-0.125, -0.125, 0.25)]


def scrape(folder: Path, identity_run: str | None) -> dict[str, float]:
    """What a collector shows whose process table places this process in that run."""
    tracker = ProgressTracker([SPEC], now=lambda: NOW)
    collector = ProgressCollector(
        [SPEC], tracker, beats_folder=folder, run_of=lambda _: identity_run, interval=60
    )
    return {
        " ".join([sample.name.removeprefix("trainwarden_training_"), *sample.labels.values()]): (
            sample.value
        )
        for family in collector.collect()
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("named", "placed", "shown"),
    [("grpo", None, True), (None, "grpo", True), ("other", "grpo", True), (None, None, False)],
)
def test_a_beat_belongs_to_the_run_it_names_or_whose_worker_it_is(
    tmp_path: Path, named: str | None, placed: str | None, shown: bool
) -> None:
    own_beat(tmp_path, run=named, numbers={"loss": math.nan, "reward": 2})
    found = scrape(tmp_path, placed)
    assert ("step grpo" in found) == shown
    if shown:
        assert found["source_step grpo beat"] == 7
        assert found["total_steps grpo"] == 100
        assert found["value_finite grpo beat loss"] == 0
        assert found["value grpo beat reward"] == 2
        assert found["value_timestamp_seconds grpo beat reward"] == NOW


def test_a_number_has_the_time_at_which_it_was_reported(tmp_path: Path) -> None:
    own_beat(tmp_path, numbers={"loss": math.nan, "kl": 1}, number_times={"loss": NOW - 600})
    found = scrape(tmp_path, "grpo")
    assert found["value_timestamp_seconds grpo beat loss"] == NOW - 600
    assert found["value_timestamp_seconds grpo beat kl"] == NOW
