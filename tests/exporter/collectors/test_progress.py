"""The progress of runs, as it is scraped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden_exporter.collectors.progress import ProgressCollector
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.frameworks.base import LinePattern, Phase, ProgressFile
from trainwarden_exporter.logs.events import LineEvent
from trainwarden_exporter.processes.matching import WorkerKey, WorkerLiveness
from trainwarden_exporter.progress.progress_files import ProgressFileSpec
from trainwarden_exporter.progress.run_time import RunState
from trainwarden_exporter.progress.run_time_evidence import ServerSigns
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.stall_limits import StallLimits
from trainwarden_exporter.progress.tracker import ProgressTracker
from trainwarden_exporter.scrape.validation import validated
from trainwarden_exporter.step_dirs.locations import RunLocation

NOW = 1_000_000.0
LINES = (
    LinePattern("step", "…", phase=Phase.TRAINING),
    LinePattern("saving", "…", phase=Phase.SAVING),
    LinePattern("evaluating", "…", phase=Phase.EVALUATING),
    LinePattern("finished", "…", phase=Phase.FINISHED),
)
SPEC = ProgressSpec(
    "grpo",
    limits=StallLimits(phases={Phase.SAVING: 900}),
    lines={("trainer", one.name): one for one in LINES},
    trainers=("trainer",),
)


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Box:
    """A tracker and its collector."""

    def __init__(
        self,
        *specs: ProgressSpec,
        checkpoints: Callable[[], Iterable[tuple[str, str, int, float, float | None]]] = tuple,
        resume_points: Callable[[], Iterable[tuple[str, list[tuple[int, float]]]]] = tuple,
        saves_in_progress: Callable[[], Iterable[tuple[str, float | None]]] = tuple,
        liveness: Callable[[], Iterable[WorkerLiveness]] = tuple,
        servers: Callable[[str, float | None], ServerSigns] = lambda _run, _silence: ServerSigns(),
        state_folder: Path | None = None,
    ) -> None:
        self.clock = Clock()
        self.tracker = ProgressTracker(
            specs, state_folder=state_folder, now=self.clock, elapsed=self.clock
        )
        self.collector = ProgressCollector(
            specs,
            self.tracker,
            checkpoints=checkpoints,
            resume_points=resume_points,
            saves_in_progress=saves_in_progress,
            liveness=liveness,
            servers=servers,
            interval=0.01,
            clock=self.clock,
        )

    def line(self, pattern: str, step: int | None = None, **groups: str) -> None:
        message = groups if step is None else {**groups, "step": str(step)}
        event = LineEvent("grpo", "trainer", "trainer", pattern, message, self.clock.now)
        self.tracker.record_line(event)

    def scrape(self, prefix: str = "trainwarden_training_") -> dict[str, float]:
        """Values by name and labels of the metrics with `prefix`, without it and the run."""
        found = {}
        for family in validated(self.collector.collect(), self.collector.metrics):
            for sample in family.samples:
                run, *more = sample.labels.values()
                assert run in {"grpo", "other"}
                if sample.name.startswith(prefix):
                    name = sample.name.removeprefix(prefix)
                    found[" ".join([name, *more])] = sample.value
        return found


def test_without_runs_there_is_no_data() -> None:
    with pytest.raises(NoData):
        Box().scrape()


def test_an_unknown_run_shows_only_its_limits() -> None:
    assert Box(SPEC).scrape() == {
        "phase_limit_seconds saving": 900,
        "resumes_total": 0,
        "steps_repeated_total": 0,
        "steps_lost_at_resume_total": 0,
        "last_step_made": 0,
        "finished": 0,
    }


def test_the_time_of_a_run_is_counted_by_its_state() -> None:
    box = Box(SPEC)
    box.scrape()
    for step in range(1, 6):
        box.clock.now += 20
        box.line("step", step)
    seen = box.scrape("trainwarden_run_")
    assert seen.pop("time_seconds_total training") == 80
    assert seen.pop("time_seconds_total unknown") == 20
    assert seen.pop("steps_total made") == 5
    assert seen.pop("ettr_minimum_ratio") == 0.7
    assert set(seen.values()) == {0}
    assert len(seen) == len(RunState) - 2 + 4


def test_a_configured_path_that_does_not_exist_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, exists in ((tmp_path, 1), (tmp_path / "typo", 0), (tmp_path / "file", 0)):
        assert Box(replace(SPEC, path=path)).scrape()["path_exists"] == exists


def test_a_run_that_trains() -> None:
    box = Box(SPEC)
    for step in range(1, 6):
        box.line("step", step, total="500")
        box.clock.now += 20
    assert box.scrape() == {
        "step": 5,
        "step_spacing": 1,
        "total_steps": 500,
        "last_step_timestamp_seconds": NOW + 80,
        "step_duration_seconds": 20,
        "step_duration_median_seconds": 20,
        "phase training": 1,
        **{f"phase {phase}": 0 for phase in Phase if phase is not Phase.TRAINING},
        "phase_timestamp_seconds": NOW,
        "progress_timestamp_seconds": NOW + 80,
        "stall_limit_seconds": 100,
        "stall_pause_limit_seconds": 100,
        "stall_restart_limit_seconds": 1800,
        "phase_limit_seconds saving": 900,
        "resumes_total": 0,
        "steps_repeated_total": 0,
        "steps_lost_at_resume_total": 0,
        "last_step_made": 0,
        "finished": 0,
        "source_step log/trainer/step": 5,
        "source_timestamp_seconds log/trainer/step": NOW + 80,
    }


def test_a_run_that_saves() -> None:
    box = Box(SPEC)
    box.line("step", 5)
    box.clock.now += 20
    box.line("saving")
    values = box.scrape()
    assert (values["phase saving"], values["phase training"]) == (1, 0)
    assert values["progress_timestamp_seconds"] == NOW + 20
    assert values["stall_limit_seconds"] == 900


def test_a_save_that_its_folder_shows_lasts_until_none_is_seen() -> None:
    saves: list[tuple[str, float | None]] = []
    box = Box(SPEC, saves_in_progress=lambda: saves)
    box.line("step", 5)
    box.clock.now += 30
    saves[:] = [("grpo", None), ("grpo", NOW + 20), ("grpo", NOW + 10)]
    values = box.scrape()
    assert (values["phase saving"], values["phase_timestamp_seconds"]) == (1, NOW + 10)
    saves.clear()  # no save is known, as right after a reload
    assert box.scrape()["phase saving"] == 1
    saves[:] = [("grpo", None)]
    assert box.scrape()["phase training"] == 1


def test_a_run_that_has_finished_has_no_limit() -> None:
    box = Box(SPEC)
    box.line("step", 5)
    box.line("finished")
    values = box.scrape()
    assert (values["finished"], values["step"]) == (1, 5)
    assert "stall_limit_seconds" not in values


def test_a_run_that_resumed() -> None:
    newest = [("grpo", "default", 1870, NOW - 3600, None)]
    box = Box(SPEC, checkpoints=lambda: newest)
    assert box.scrape()["step"] == 1870
    box.line("step", 1501)
    values = box.scrape()
    assert values["step"] == 1501
    assert values["resumes_total"] == 1
    assert "resume_step" not in values  # not every step may be logged
    box.line("step", 1502)
    assert box.scrape()["resume_step"] == 1500
    assert values["first_step_after_resume"] == 1501
    assert values["steps_repeated_total"] == 370
    assert values["source_step checkpoint/default"] == 1870


class Resumed(Box):
    """A run that dies at step 250 and starts again; its checkpoints were saved each 10 s."""

    def __init__(self, *kinds: tuple[int, ...], folder: Path | None = None) -> None:
        self.life = WorkerLiveness(WorkerKey("grpo", "trainer"), NOW - 60, finished=False)
        self.points = [[(step, NOW + step / 10) for step in kind] for kind in kinds]
        super().__init__(
            SPEC,
            resume_points=lambda: [("grpo", points) for points in self.points],
            liveness=lambda: [self.life],
            state_folder=folder,
        )
        self.scrape()
        for step in range(1, 251):
            self.clock.now = NOW + step / 10
            self.line("step", step)
        self.scrape()

    def start(self, *, after: float = 40) -> None:
        self.clock.now += after
        self.life = replace(self.life, started=self.clock.now - 5)
        self.scrape()

    def resume(self, step: int) -> dict[str, float]:
        """Makes the step after `step`, and saves it."""
        self.clock.now += 60
        self.line("step", step + 1)
        for points in self.points:
            points.append((step + 1, self.clock.now))
        return self.scrape()


@pytest.mark.parametrize(
    ("kinds", "resumed", "expected", "lost"),
    [
        (((100, 200),), 200, 200, 0),
        (((100, 200),), 100, 200, 100),
        (((100, 200),), 0, 200, 200),
        (((100,),), 200, 100, 0),  # the newer one was not read yet
        (((100, 200), (100,)), 100, 100, 0),  # of the critic there is an older one alone
        (((100, 200), ()), 100, 200, 100),
        (((),), 100, None, 0),
        (((100, 90_000),), 100, None, 0),  # names that count something else
    ],
)
def test_the_first_step_is_compared_with_the_checkpoint_at_the_start(
    kinds: tuple[tuple[int, ...], ...], resumed: int, expected: int | None, lost: int
) -> None:
    box = Resumed(*kinds)
    box.points = [[(step, min(at, NOW + 20)) for step, at in kind] for kind in box.points]
    box.start()
    values = box.resume(resumed)
    assert values["resume_step"] == resumed
    assert values.get("resume_checkpoint_step") == expected
    assert values["steps_lost_at_resume_total"] == lost
    assert values["steps_repeated_total"] >= lost


def test_lost_steps_add_up_and_survive_a_restart_of_the_exporter(tmp_path: Path) -> None:
    box = Resumed((100, 200), folder=tmp_path)
    box.start()
    box.points = [[(50, NOW)]]  # the run has deleted the newer ones by now
    assert box.resume(150)["resume_checkpoint_step"] == 200
    for step in range(152, 250):
        box.line("step", step)
    box.points = [[(200, box.clock.now)]]
    box.start()
    assert box.resume(190)["steps_lost_at_resume_total"] == 60
    later = ProgressTracker([SPEC], state_folder=tmp_path, now=box.clock)
    assert later.state("grpo").lost == 60


def test_another_run_in_the_folder_of_a_finished_one_has_lost_nothing() -> None:
    box = Resumed((100, 200))
    box.line("finished")
    box.start()
    values = box.resume(0)
    assert values["steps_lost_at_resume_total"] == 0
    assert "resume_checkpoint_step" not in values


def test_what_was_not_observed_or_has_no_start_is_compared_with_nothing(tmp_path: Path) -> None:
    box = Resumed((100, 200), folder=tmp_path)
    box.line("step", 101)  # the same process: a count that went back
    assert "resume_checkpoint_step" not in box.scrape()
    successor = ProgressTracker([SPEC], state_folder=tmp_path, now=box.clock)
    box.clock.now += 600
    successor.record_trainer("grpo", box.clock.now - 700, finished=False)
    successor.record_resume_points("grpo", (((200, NOW),),))
    assert successor.state("grpo").attempt.expected_origin is None


def test_the_trainer_is_watched_by_its_process() -> None:
    life = WorkerLiveness(WorkerKey("grpo", "trainer"), NOW + 5, finished=False)
    liveness = [life]
    box = Box(SPEC, liveness=lambda: liveness)
    box.clock.now += 10
    values = box.scrape()
    assert values["phase starting"] == 1
    assert values["stall_limit_seconds"] == 1800
    box.line("step", 1)
    liveness[:] = [WorkerLiveness(life.key, None, finished=True)]
    box.clock.now += 600
    assert box.scrape()["finished"] == 1


def test_a_run_that_nothing_tells_of_is_not_stalled_until_it_is_known_what_is_usual() -> None:
    life = WorkerLiveness(WorkerKey("grpo", "trainer"), NOW + 5, finished=False)
    saved: list[tuple[str, str, int, float, float | None]] = []
    error = LinePattern("nccl_timeout", "…", error=True)
    spec = ProgressSpec("grpo", lines={("trainer", error.name): error}, trainers=("trainer",))
    box = Box(spec, liveness=lambda: [life], checkpoints=lambda: saved)
    limits = []
    for number in range(1, 6):
        box.clock.now += 7200
        limits.append(box.scrape().get("stall_limit_seconds"))
        saved[:] = [("grpo", "default", 100 * number, box.clock.now, None)]
        box.scrape()
    assert limits == [None, None, None, None, 5 * 7200]


def test_a_trainer_that_was_not_seen_yet_has_not_finished() -> None:
    box = Box(SPEC, liveness=tuple)
    assert box.scrape()["finished"] == 0


def test_a_restart_of_one_of_several_trainers_is_no_start_of_the_run() -> None:
    keys = [WorkerKey("grpo", name) for name in ("a", "b")]
    liveness = [WorkerLiveness(key, NOW + 5, finished=False) for key in keys]
    spec = ProgressSpec("grpo", lines=SPEC.lines, trainers=("a", "b"))
    box = Box(spec, liveness=lambda: liveness)
    box.clock.now += 10
    box.line("step", 7)
    liveness[1] = WorkerLiveness(keys[1], NOW + 60, finished=False)
    box.clock.now += 100
    assert box.scrape()["phase training"] == 1
    liveness[1] = WorkerLiveness(keys[1], None, finished=True)
    assert box.scrape()["finished"] == 0
    liveness[0] = WorkerLiveness(keys[0], None, finished=True)
    assert box.scrape()["finished"] == 1


def test_the_time_of_a_run_is_written_seldom_and_never_goes_back(tmp_path: Path) -> None:
    box = Box(SPEC, state_folder=tmp_path)
    box.line("step", 1)
    box.line("finished")
    written, shown = set[int](), []
    for _ in range(12):
        box.clock.now += 10
        shown.append(box.scrape("trainwarden_run_")["time_seconds_total finished"])
        written.add((tmp_path / "run_time.json").stat().st_mtime_ns)
        later = ProgressTracker([SPEC], state_folder=tmp_path, now=box.clock)
        assert later.save()["grpo"].seconds.get(RunState.FINISHED, 0.0) == shown[-1]
    assert len(written) == len(set(shown)) == 4
    box.line("step", 2)  # a change of the state is written with the times
    assert box.scrape("trainwarden_run_")["steps_total made"] == 1
    later = ProgressTracker([SPEC], state_folder=tmp_path, now=box.clock)
    assert later.save()["grpo"].steps_made == 1


@pytest.mark.parametrize(("finished", "down"), [(True, 0), (False, 20)])
def test_a_run_that_goes_on_without_one_of_its_trainers_is_not_down(
    finished: bool, down: float
) -> None:
    keys = [WorkerKey("grpo", name) for name in ("a", "b")]
    liveness = [WorkerLiveness(key, NOW - 5, finished=False) for key in keys]
    box = Box(
        ProgressSpec("grpo", lines=SPEC.lines, trainers=("a", "b")), liveness=lambda: liveness
    )
    box.scrape()
    liveness[0] = WorkerLiveness(keys[0], None, finished=finished)
    for step in range(1, 5):
        box.clock.now += 20
        box.scrape()
        box.line("step", step)
    assert box.scrape("trainwarden_run_")["time_seconds_total down"] == down


def test_a_trainer_whose_selector_may_be_wrong_is_not_down() -> None:
    life = WorkerLiveness(WorkerKey("grpo", "trainer"), None, finished=False, unconfirmed=True)
    box = Box(SPEC, liveness=lambda: [life])
    for _ in range(20):
        box.clock.now += 20
        seen = box.scrape("trainwarden_run_")
    assert seen["time_seconds_total down"] == 0
    assert seen["time_seconds_total unknown"] > 300


@pytest.mark.parametrize("working", [False, True])
def test_a_silence_in_which_the_servers_of_a_run_work_is_no_stall(*, working: bool) -> None:
    limits = StallLimits(phases={Phase.EVALUATING: 3600})
    box = Box(
        replace(SPEC, limits=limits),
        servers=lambda run, _: ServerSigns(working=working and run == "grpo"),
    )
    for step in range(1, 7):
        box.clock.now += 20
        box.line("step", step)
    for _ in range(100):
        box.clock.now += 24
        box.scrape()
    box.line("step", 7)
    box.clock.now += 20
    seen = box.scrape("trainwarden_run_")
    assert seen["time_seconds_total stalled"] == pytest.approx(0 if working else 2400, abs=60)


def test_a_search_is_down_without_any_worker_and_finished_when_all_have_ended() -> None:
    keys = [WorkerKey("grpo", name) for name in ("a", "b")]
    liveness = [WorkerLiveness(key, NOW - 5, finished=False) for key in keys]
    search = ProgressSpec("grpo", lines=SPEC.lines, searchers=("a", "b"))
    box = Box(search, liveness=lambda: liveness)

    def after(state: str) -> float:
        """Seconds in `state` after five looks."""
        for _ in range(5):
            box.clock.now += 20
            seen = box.scrape("trainwarden_run_")
        return seen[f"time_seconds_total {state}"]

    box.line("step", 1)
    box.scrape()
    liveness[0] = WorkerLiveness(keys[0], None, finished=False)
    assert after("down") == 0
    liveness[1] = WorkerLiveness(keys[1], None, finished=False)
    assert after("down") == 85
    liveness[:] = [WorkerLiveness(key, NOW + 200, finished=False) for key in keys]
    assert after("finished") == 0
    liveness[:] = [WorkerLiveness(key, None, finished=True) for key in keys]
    assert after("finished") > 80


def test_a_pause_in_which_one_of_several_trainers_restarted_is_not_learned() -> None:
    keys = [WorkerKey("grpo", name) for name in ("a", "b")]
    liveness = [WorkerLiveness(key, NOW - 5, finished=False) for key in keys]
    box = Box(
        ProgressSpec("grpo", lines=SPEC.lines, trainers=("a", "b")), liveness=lambda: liveness
    )
    for step in (*range(1, 6), 6):
        box.clock.now += 20 if step < 6 else 600
        box.line("step", step)
        box.scrape()
    assert box.scrape()["stall_pause_limit_seconds"] == 1200
    liveness[1] = WorkerLiveness(keys[1], box.clock.now + 300, finished=False)
    box.clock.now += 700
    box.scrape()
    box.line("step", 7)
    assert box.scrape()["stall_pause_limit_seconds"] == 1200
    box.clock.now += 700
    box.line("step", 8)
    assert box.scrape()["stall_pause_limit_seconds"] == 1400


def test_where_evaluations_are_reported_a_silence_is_none() -> None:
    limits = []
    for is_live in (True, False):
        box = Box(
            ProgressSpec(
                "grpo", lines=SPEC.lines, trainers=("trainer",), announces_evaluations=is_live
            )
        )
        for step in range(1, 6):
            box.line("step", step)
            box.clock.now += 20
        limits.append(box.scrape()["stall_restart_limit_seconds"])
        box.line("evaluating")
        box.line("step", 6)
        limits.append(box.scrape()["stall_restart_limit_seconds"])
    # Only once an evaluation was seen in the log of this run.
    assert limits == [1800, 100, 1800, 1800]


def test_a_progress_file_is_read_in_the_background(
    tmp_path: Path, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    file = ProgressFile("table", "metrics.jsonl", "jsonl", "step")
    subject = ProgressFileSpec("grpo", RunLocation(tmp_path, (file.file,)), file)
    box = Box(ProgressSpec("grpo", files=(subject,)))
    assert "step" not in box.scrape()
    path = tmp_path / file.file
    path.write_text('{"step": 7, "loss": NaN}\n')
    os.utime(path, (NOW - 30, NOW - 30))
    wait_until(lambda: box.scrape().get("step") == 7)
    values = box.scrape()
    assert values["last_step_timestamp_seconds"] == NOW - 30
    assert values["source_step file/table"] == 7
    assert values["value_finite file/table loss"] == 0
    assert values["value_timestamp_seconds file/table loss"] == NOW - 30
    successor = ProgressCollector((), ProgressTracker())
    successor.take_over_from(box.collector)


def test_a_file_that_cannot_be_read_fails_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    file = ProgressFile("state", "state.json", "json", "step")
    subject = ProgressFileSpec("grpo", RunLocation(tmp_path, (file.file,)), file)
    box = Box(ProgressSpec("grpo", lines=SPEC.lines, files=(subject,)))
    box.line("step", 3)
    assert box.scrape()["step"] == 3
    ProgressCollector((), ProgressTracker()).take_over_from(box.collector)


def test_it_goes_on_after_a_reload() -> None:
    box = Box(SPEC)
    box.line("step", 3)
    box.scrape()
    again = Box(SPEC)
    again.collector.take_over_from(box.collector)
    assert again.scrape()["step"] == 3
