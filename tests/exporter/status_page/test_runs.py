"""A run at a glance, from the samples of any collector."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.collectors.inference import InferenceCollector
from trainwarden_exporter.collectors.rollouts import RolloutsCollector
from trainwarden_exporter.logs.counters import ErrorLine, UnreadStep
from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.progress.tracker import RunWatch
from trainwarden_exporter.runtime.responsibility import NOBODY, REMEDIATOR, YOU
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page import page as status_page
from trainwarden_exporter.status_page.headline import summarize
from trainwarden_exporter.status_page.host import build_worker_views
from trainwarden_exporter.status_page.part_views import (
    CheckpointView,
    ContainerView,
    HeartbeatView,
    RolloutView,
    ServerView,
)
from trainwarden_exporter.status_page.problems import run_problems, worker_problems
from trainwarden_exporter.status_page.remediator_client import RemediatorAlert, RemediatorStatus
from trainwarden_exporter.status_page.run_text import describe_run
from trainwarden_exporter.status_page.run_views import RunView
from trainwarden_exporter.status_page.run_views_builder import (
    build_heartbeat_views,
    build_run_views,
)
from trainwarden_exporter.status_page.runs import run_section
from trainwarden_exporter.status_page.series import Tone

METRICS = {
    metric.name.removeprefix("trainwarden_"): metric
    for metric in (*declared_metrics(), *InferenceCollector.metrics, *RolloutsCollector.metrics)
}
NOW = 1_000_000.0
EVIL = "<script>alert('x')</script>"

Series = Mapping[str, Mapping[tuple[str, ...], float]]


def outcome(series: Series, *artifacts: object) -> Outcome:
    families = []
    for name, samples in series.items():
        family = METRICS[name].family()
        for labels, value in samples.items():
            family.add_metric(labels, value)
        families.append(family)
    return Outcome("some", 0.1, tuple(families), artifacts=artifacts)


RUN = ("grpo",)
MAIN = ("grpo", "default")
SERVER = ("grpo", "sglang-0", "sglang")
SERIES: Series = {
    "training_finished": {RUN: 0},
    "training_phase": {("grpo", "training"): 1, ("grpo", "saving"): 0},
    "training_phase_timestamp_seconds": {RUN: NOW - 7200},
    "training_step": {RUN: 1501},
    "training_total_steps": {RUN: 4675},
    "training_step_duration_seconds": {RUN: 31.25},
    "training_step_duration_median_seconds": {RUN: 30},
    "training_last_step_timestamp_seconds": {RUN: NOW - 12},
    "training_progress_timestamp_seconds": {RUN: NOW - 12},
    "training_stall_pause_limit_seconds": {RUN: 150},
    "training_resumes_total": {RUN: 1},
    "training_resume_step": {RUN: 1500},
    "checkpoint_seen_timestamp_seconds": {MAIN: NOW},
    "checkpoint_step": {MAIN: 1500},
    "checkpoint_timestamp_seconds": {MAIN: NOW - 740},
    "checkpoint_interval_seconds": {MAIN: 1800},
    "disk_checkpoints_left": {(*MAIN, "/data"): 12.4},
    "rollout_seen_timestamp_seconds": {("grpo", "batches"): NOW},
    "rollout_step": {("grpo", "batches"): 1502},
    "rollout_timestamp_seconds": {("grpo", "batches"): NOW - 5},
    "rollout_lag_steps": {("grpo", "batches"): 0},
    "rollout_lag_limit_steps": {("grpo", "batches"): 8},
    "inference_up": {SERVER: 1},
    "inference_reason": {(*SERVER, "ok"): 1, (*SERVER, "refused"): 0},
    "inference_state_timestamp_seconds": {SERVER: NOW - 3600},
    "inference_running_requests": {SERVER: 48},
    "inference_waiting_requests": {SERVER: 3},
    "inference_kv_cache_usage_ratio": {SERVER: 0.62},
    "inference_weight_version": {SERVER: 1501},
    "container_recent_starts": {("grpo", "pod"): 1},
    "container_state": {("grpo", "pod", "running"): 1, ("grpo", "pod", "exited"): 0},
    "container_last_exit_code": {("grpo", "pod"): 128},
    "container_last_line": {("grpo", "pod", "fatal: destination path exists"): 1},
    "heartbeat_beats_total": {("grpo", "trainer"): 5, ("", "backup"): 0},
    "heartbeat_timestamp_seconds": {("grpo", "trainer"): NOW - 20},
    "heartbeat_interval_seconds": {("grpo", "trainer"): 600, ("", "backup"): 300},
    "heartbeat_awaited_since_timestamp_seconds": {
        ("grpo", "trainer"): NOW,
        ("", "backup"): NOW - 601,
    },
    "heartbeat_step": {("grpo", "trainer"): 1501},
}
TROUBLE = ErrorLine(
    "grpo", "trainer", "connection_refused", "ConnectionRefusedError(111)", NOW - 30, 64
)
WHOLE = outcome(SERIES, ProgressSpec("grpo", framework="AReaL"), TROUBLE, "something else")


class Words(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text = " ".join(f"{self.text} {data}".split())


def words(run: RunView) -> str:
    return Words(run_section(run, "", now=NOW)).text


def test_a_run_is_put_together_from_all_series() -> None:
    assert build_run_views([WHOLE], now=NOW) == (
        RunView(
            name="grpo",
            framework="AReaL",
            phase="training",
            step=1501,
            total=4675,
            step_seconds=31.25,
            usual_seconds=30,
            step_age=12,
            silence=12,
            stall_limit=150,
            resumes=1,
            resume_step=1500,
            checkpoints=(CheckpointView("default", 1500, 740, 1800, left=12.4),),
            rollouts=(RolloutView("batches", 1502, 5, 0, 8),),
            servers=(ServerView("sglang-0", "sglang", True, "ok", 3600, 48, 3, 0.62, 1501),),
            containers=(
                ContainerView(
                    "pod",
                    "running",
                    recent_starts=1,
                    exit_code=128,
                    last_line="fatal: destination path exists",
                ),
            ),
            heartbeats=(HeartbeatView("trainer", 20, 600, silence=0, step=1501),),
            error_lines=(TROUBLE,),
        ),
    )


def test_it_is_read_at_a_glance() -> None:
    (run,) = build_run_views([WHOLE], now=NOW)
    text = words(run)
    assert text.startswith("Run grpo training step 1,501 of 4,675 Framework AReaL")
    for part in (
        "Step time 31 s usually 30 s",
        "Last step 12 s ago counts as stalled after 2 min 30 s",
        "Checkpoint step 1,500, 12 min 20 s ago overdue after 1 h, room for 12 more checkpoints",
        "Rollouts batches step 1,502, 5 s ago, lag 0 of 8",
        "Resumes 1 last from step 1,500",
        "sglang-0 sglang ok for 1 h 62% 48 3 1,501",
        "pod container running 1 128 fatal: destination path exists",
        "trainer heartbeat beats 20 s ago within 10 min 1,501",
        "connection_refused in trainer, 64 times, last 30 s ago ConnectionRefusedError(111)",
    ):
        assert part in text


def test_a_sign_that_is_no_step_is_shown_beside_the_step() -> None:
    text = words(replace(HEALTHY, silence=5))
    assert (
        "Last step 12 s ago Last sign of progress 5 s ago counts as stalled after 2 min 30 s"
        in text
    )


def test_a_run_that_has_stalled_shows_no_limit_that_is_over() -> None:
    text = words(replace(HEALTHY, step_age=200.0, silence=200.0, stall_limit=150.0))
    assert "Last step 3 min 20 s ago" in text
    assert "counts as stalled" not in text


def test_what_is_not_collected_is_not_shown() -> None:
    (run,) = build_run_views([outcome({"training_finished": {RUN: 0}})], now=NOW)
    assert run == RunView("grpo")
    assert words(run) == "Run grpo"
    assert build_run_views([], now=NOW) == ()


def test_a_heartbeat_of_no_run_has_a_place_of_its_own() -> None:
    (backup,) = build_heartbeat_views([WHOLE], now=NOW, runs=["grpo"])
    assert backup == HeartbeatView("backup", None, 300, silence=601)
    text = Words(status_page.render(status_page.PageData(NOW, 0, None, 0, (WHOLE,)))).text
    assert re.search(
        "Heartbeats Heartbeat State Last Expected Step backup heartbeat missed . within 5 min", text
    )
    assert "heartbeat backup is missing" in text


def beat(age: float | None, awaited: float) -> HeartbeatView:
    series: Series = {
        "heartbeat_beats_total": {("", "a"): 1.0},
        "heartbeat_interval_seconds": {("", "a"): 300.0},
        "heartbeat_awaited_since_timestamp_seconds": {("", "a"): NOW - awaited},
        "heartbeat_timestamp_seconds": {} if age is None else {("", "a"): NOW - age},
    }
    (seen,) = build_heartbeat_views([outcome(series)], now=NOW, runs=[])
    return seen


def test_a_heartbeat_is_missed_when_it_did_not_come_while_it_was_awaited() -> None:
    def seen(age: float | None, awaited: float) -> tuple[str, Tone]:
        one = beat(age, awaited)
        return one.state, one.tone

    assert seen(299, 9000) == ("beats", "good")
    assert seen(301, 9000) == ("late", "warn")
    assert seen(601, 9000) == ("missed", "bad")
    assert seen(9000, 20) == ("beats", "good")  # the exporter has only just come
    assert seen(None, 299) == ("awaited", "quiet")
    assert seen(None, 601) == ("missed", "bad")


HEALTHY = build_run_views([WHOLE], now=NOW)[0]


@pytest.mark.parametrize(
    ("changes", "state", "tone"),
    [
        ({}, "training", "good"),
        ({"silence": 151.0}, "stalled, training", "bad"),
        ({"silence": 900.0, "stall_limit": None}, "training", "good"),
        ({"phase": "waiting_for_rollouts"}, "waiting for rollouts", "good"),
        ({"phase": "finished", "finished": True, "silence": 9000.0}, "finished", "quiet"),
        ({"phase": ""}, "not known", "quiet"),
    ],
)
def test_how_a_run_is_fits_in_a_few_words(
    changes: dict[str, object], state: str, tone: Tone
) -> None:
    run = replace(HEALTHY, **changes)  # type: ignore[arg-type]
    assert (run.state, run.tone) == (state, tone)


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"silence": 200.0}, "grpo has made no step for 3 min 20 s (usually 30 s)"),
        (
            {"silence": 200.0, "usual_seconds": 1.0, "report_seconds": 15.0},
            "grpo has made no step for 3 min 20 s (usually 1 s, reported every 15 s)",
        ),
        (
            {"servers": (ServerView("a", "vllm", False, "refused"),)},
            "inference server a of grpo is down (refused)",
        ),
        (
            {"servers": (ServerView("server", "vllm", False, "refused"),)},
            "inference server of grpo is down (refused)",
        ),
        ({"rollouts": (RolloutView("a", lag=9, lag_limit=8),)}, "rollouts of grpo are behind"),
        ({"containers": (ContainerView("pod", "exited"),)}, "container pod: exited"),
        (
            {"containers": (ContainerView("pod", "running", "unhealthy"),)},
            "container pod: unhealthy",
        ),
        (
            {"heartbeats": (HeartbeatView("a", interval=300, silence=601),)},
            "heartbeat a is missing",
        ),
    ],
)
def test_what_is_wrong_with_a_run_is_in_the_verdict(
    changes: dict[str, object], problems: str
) -> None:
    run = replace(HEALTHY, **changes)  # type: ignore[arg-type]
    (problem,) = run_problems(run)
    assert (problem.tone, problem.run) == ("bad", run.name)
    assert problem.clause.startswith(problems)
    assert not list(run_problems(HEALTHY))


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoints": (CheckpointView("a", age=3601, interval=1800),)},
        {"checkpoints": (CheckpointView("a", left=2.9),)},
        {"servers": (ServerView("a", "vllm", False, "starting"),)},
        {"containers": (ContainerView("a", "running", recent_starts=3),)},
        {"heartbeats": (HeartbeatView("a", 301, 300, silence=301),)},
    ],
)
def test_what_is_to_be_watched_is_no_trouble_yet(changes: dict[str, object]) -> None:
    run = replace(HEALTHY, **changes)  # type: ignore[arg-type]
    assert [problem.tone for problem in run_problems(run)] == ["warn"]


def test_a_damaged_checkpoint_is_named_with_its_file_and_damage() -> None:
    problem = "step-2640.ckpt: the directory at its end is missing (truncated)"
    seen = CheckpointView("a", finished=True, resume_problem=problem)
    (found,) = run_problems(replace(HEALTHY, checkpoints=(seen,)))
    assert found.tone == "bad"
    assert problem in str(found)


@pytest.mark.parametrize(("until", "late"), [(1400, True), (1500, False), (None, False)])
def test_a_checkpoint_from_after_a_loss_that_is_not_finite_is_marked(
    until: int | None, *, late: bool
) -> None:
    also: dict[tuple[str, ...], float] = {("grpo", "log", "kl"): 3, ("other", "log", "loss"): 3}
    if until is not None:
        also["grpo", "trainer", "train_loss"] = until
    shown = outcome({**SERIES, "log_value_finite_until_step": also})
    run = next(one for one in build_run_views([shown], now=NOW) if one.name == "grpo")
    text = "saved after step 1,400, the last with a finite loss"
    assert (text in words(run)) is late
    found = [str(one) for one in run_problems(replace(run, containers=(), heartbeats=()))]
    assert any(text in one for one in found) is late
    loss = "the loss of grpo is NaN or infinite: its newest checkpoint was"
    assert any(loss in one for one in found) is late
    assert run.finite_until == until


def test_a_run_that_has_finished_with_a_loss_that_is_not_finite_needs_you() -> None:
    run = replace(HEALTHY, finished=True, finite_until=39, step=400, total=400)
    newest = CheckpointView("checkpoints", step=400, age=60, finished=True, finite_until=39)
    (found,) = run_problems(replace(run, checkpoints=(newest,)))
    last = "step 39, the last with a finite loss"
    assert found.clause == (
        f"{run.name} has finished, and what it saved after {last}, is of no use"
    )
    assert (found.who, found.tone) == ("You, now", "bad")
    again = f"`trainwarden checkpoints {run.name}` names the checkpoint to start it again from."
    assert found.how == again
    assert not list(run_problems(replace(run, finite_until=None)))
    (found,) = run_problems(replace(run, checkpoints=(), sound_checkpoint=None))
    assert found.how == "No complete checkpoint of it is known: it begins at step 0."


@pytest.mark.parametrize(
    ("series", "path"),
    [
        ({"checkpoint_seen_timestamp_seconds": 1.0}, None),  # its folder does not exist
        ({"checkpoint_seen_timestamp_seconds": 1.0, "checkpoint_complete": 0}, None),
        ({"checkpoint_seen_timestamp_seconds": 1.0, "checkpoint_timestamp_seconds": 1.0}, ""),
        ({}, ""),  # not looked at yet
    ],
)
def test_a_run_with_a_nan_and_without_a_checkpoint_has_none_to_resume_from(
    series: dict[str, float], path: str | None
) -> None:
    known = {name: of for name, of in SERIES.items() if not name.startswith("checkpoint_")}
    known |= {name: {("grpo", "a"): value} for name, value in series.items()}
    known["log_value_finite_until_step"] = {("grpo", "trainer", "loss"): 29.0}
    shown = outcome(known)
    run = next(one for one in build_run_views([shown], now=NOW) if one.name == "grpo")
    assert run.sound_checkpoint == path


def test_an_epoch_is_not_from_before_the_step_of_a_nan() -> None:
    series: dict[str, dict[tuple[str, ...], float]] = {
        "checkpoint_proved_step": {("grpo", "a"): 7},
        "checkpoint_proved_info": {("grpo", "a", "/out/epoch_7.pt"): 1},
        "log_value_finite_until_step": {("grpo", "trainer", "train_loss"): 1500},
    }
    shown = outcome({**SERIES, **series})
    run = next(one for one in build_run_views([shown], now=NOW) if one.name == "grpo")
    assert run.sound_checkpoint == ""
    assert CheckpointView("a", step=70, age=60, finite_until=39).is_late
    assert not CheckpointView("a", step=70, age=60, finite_until=39, unit="epoch").is_late


@pytest.mark.parametrize(
    ("until", "unread", "path"),
    [
        (1400, None, ""),
        (1500, None, "/out/60.pt"),
        (1509, 1510, "/out/60.pt"),
        (1510, 1510, ""),  # the newer one may be sound
        (None, None, ""),
    ],
)
def test_the_checkpoint_to_resume_from_is_the_proved_one_of_before_the_nan(
    until: int | None, unread: int | None, path: str
) -> None:
    series: dict[str, dict[tuple[str, ...], float]] = {
        "checkpoint_proved_step": {("grpo", "a"): 1500},
        "checkpoint_proved_info": {("grpo", "a", "/out/60.pt"): 1},
    }
    if until is not None:
        series["log_value_finite_until_step"] = {("grpo", "trainer", "train_loss"): until}
    if unread is not None:
        series["checkpoint_unproved_step"] = {("grpo", "a"): unread}
    shown = outcome({**SERIES, **series})
    run = next(one for one in build_run_views([shown], now=NOW) if one.name == "grpo")
    assert run.sound_checkpoint == path


def test_a_run_that_has_finished_has_no_overdue_checkpoint() -> None:
    assert CheckpointView("a", age=3601, interval=1800, finished=True).tone == "good"
    assert CheckpointView("a", age=3601, interval=1800).tone == "warn"


def test_a_checkpoint_that_is_being_saved_is_not_overdue() -> None:
    saving = CheckpointView("a", age=3601, interval=1800, saving=True, incomplete_step=1550)
    assert saving.tone == "good"
    assert "saving step 1,550" in words(RunView("r", checkpoints=(saving,)))
    broken = replace(saving, saving=False)
    assert "step 1,550 is incomplete" in words(RunView("r", checkpoints=(broken,)))


@pytest.mark.parametrize("settling", [0, 1])
@pytest.mark.parametrize(("name", "unit"), [("epoch-7.pt", "epoch"), ("step-7.pt", "step")])
def test_the_number_of_a_checkpoint_counts_what_its_name_says(
    name: str, unit: str, settling: int
) -> None:
    series: Series = {"checkpoint_step": {MAIN: 6}, "checkpoint_proved_info": {(*MAIN, name): 1}}
    newer: Series = {
        "checkpoint_incomplete_info": {(*MAIN, name): 1},
        "checkpoint_incomplete_step": {MAIN: 7},
        "checkpoint_settling": {MAIN: 1},
    }
    series = {**series, **(newer if settling else {})}
    (run,) = build_run_views([outcome({**SERIES, **series})], now=NOW)
    shown = words(run)
    assert f"{unit} 6" in shown
    assert (f"{unit} 7 settling" in shown) == bool(settling)


def test_a_run_that_was_killed_in_a_save_does_not_save() -> None:
    series: Series = {**SERIES, "checkpoint_saving": {MAIN: 1}}
    for trainers, saving in ((1, True), (0, False)):
        seen: Series = {**series, "run_trainer_processes": {RUN: trainers}}
        (run,) = build_run_views([outcome(seen)], now=NOW)
        assert [one.saving for one in run.checkpoints] == [saving]


def test_the_verdict_of_the_page_counts_runs_in() -> None:
    def verdict(series: Series) -> tuple[str, str]:
        runs = build_run_views([outcome({**SERIES, **series})], now=NOW)
        found = summarize((one for run in runs for one in run_problems(run)), runs, None)
        return found.tone, found.sentence

    tone, sentence = verdict({})
    assert (tone, sentence.partition(",")[0]) == ("good", "No problem is seen: grpo trains")
    tone, sentence = verdict({"training_progress_timestamp_seconds": {RUN: NOW - 600}})
    assert tone == "bad"
    assert sentence.startswith("grpo has made no step for 10 min (usually ")
    tone, sentence = verdict({"checkpoint_timestamp_seconds": {MAIN: NOW - 4000}})
    assert tone == "warn"
    assert sentence.startswith("the newest checkpoint of grpo is 1 h 6 min old")


def test_a_run_that_has_failed_does_not_train() -> None:
    """Its last phase and step stay known."""
    run = RunView("grpo", phase="training", step=7, failure="exit status 3")
    assert describe_run(run) == "grpo has failed (exit status 3), step 7"
    run = RunView("grpo", phase="training", step=7, finished=True)
    assert describe_run(run) == "grpo has finished, step 7"
    # The status of a pipe is that of its last program: `python train.py | tee log`.
    assert describe_run(replace(run, total=1000)) == "grpo has ended early, step 7 of 1,000"


def test_a_run_whose_bar_counts_on_does_not_stand() -> None:
    run = RunView(
        "grpo", phase="training", step=80, total=5000, step_age=880.2, usual_seconds=0.5,
        silence=20, stall_limit=60, counted="120 of 300",
    )  # fmt: skip
    at = "grpo is at step 80 of 5,000 (14 min 40 s ago, usually every 500 ms)"
    assert describe_run(run) == f"{at}; a bar counts on: 120 of 300"
    assert (run.tone, list(run_problems(run)), run.quiet) == ("good", [], False)
    # A bar that stands as well is no sign.
    still = replace(run, silence=59)
    assert describe_run(still).startswith("grpo stands at step 80 of 5,000")
    assert (still.tone, replace(run, silence=61).tone) == ("warn", "bad")
    assert describe_run(replace(run, failure="exit status 3")).startswith("grpo has failed")


def test_a_run_that_stands_still_does_not_train() -> None:
    run = RunView("grpo", phase="training", step=80, total=5000, silence=880, stall_limit=60)
    assert describe_run(run) == "grpo stands at step 80 of 5,000"
    assert describe_run(replace(run, step=None)) == "grpo stands still"
    assert describe_run(replace(run, silence=1)) == "grpo trains, step 80 of 5,000"
    aged = replace(run, step_age=880.2, usual_seconds=0.5)
    assert (
        describe_run(aged)
        == "grpo stands at step 80 of 5,000 (14 min 40 s ago, usually every 500 ms)"
    )


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (9, "All is well: grpo trains."),
        (28, "No problem is seen yet: grpo has made no step for 28 s, usually every 500 ms."),
    ],
)
def test_no_page_states_that_a_run_without_a_step_for_many_usual_ones_trains(
    age: float, text: str
) -> None:
    run = RunView("grpo", phase="training", usual_seconds=0.5, step_age=age, silence=age)
    calm = RemediatorStatus(
        mode="act", tone="good", verdict="", who_acts=NOBODY, open_alerts=0, alerts=(), actions=()
    )
    found = summarize((), [run], calm)
    assert (found.tone, found.who, found.sentence) == ("good", NOBODY, f"{text} The mode is act.")
    paused = summarize((), [replace(run, phase="saving")], None).sentence
    assert "no step" not in paused


@pytest.mark.parametrize(("name", "who"), [("grpo", REMEDIATOR), ("plain", YOU)])
def test_what_was_given_up_of_one_run_makes_no_other_run_yours(name: str, who: str) -> None:
    run = RunView(name, phase="training", step=80, silence=880, stall_limit=60)
    gave_up = RemediatorStatus(
        mode="act",
        may_restart=(),
        may_restart_stalled=("grpo", "plain"),
        given_up=("plain/trainer",),
        tone="bad",
        verdict="",
        operator_needed="The remediator gave up on plain/trainer.",
        open_alerts=0,
        alerts=(),
        actions=(),
        firing=(),
    )
    found = summarize(run_problems(run), [run], gave_up)
    clause = f"{name} has made no step for 14 min 40 s: phase training"
    assert {one.clause: one.who for one in found.problems if one.run} == {clause: who}
    of_all = gave_up.model_copy(update={"operator_needed": "Nothing will be healed."})
    assert {one.who for one in summarize(run_problems(run), [run], of_all).problems} == {YOU}


def test_the_line_of_a_run_has_the_age_of_its_last_step() -> None:
    run = RunView("grpo", phase="training", step=168, usual_seconds=2, step_age=3.2)
    assert describe_run(run) == "grpo trains, step 168 (3 s ago, usually every 2 s)"


def test_a_run_without_a_step_is_shown_with_how_to_show_one() -> None:
    """A program that prints nothing makes steps that nobody sees, and its hang is none."""
    run = RunView("quiet", phase="starting", trainer_processes=1, trainer_age=89)
    assert describe_run(run) == "quiet is starting"
    silent = replace(run, trainer_age=120)
    advice = (
        "quiet has shown no step for 2 min: no hang can be seen until it prints `step 12`, with "
        "PYTHONUNBUFFERED=1, or calls trainwarden.beat"
    )
    assert describe_run(silent) == advice
    assert advice in words(silent)
    headline = summarize((), [silent], None).sentence
    assert headline.startswith("No problem is seen: quiet has shown no step for 2 min. Alerts")
    seen = replace(silent, heartbeats=(HeartbeatView("quiet"),))
    for known in (replace(silent, step=1), replace(silent, stall_limit=60), seen):
        assert "no hang can be seen" not in describe_run(known) + words(known)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ({}, False),
        ({"log_value_timestamp_seconds": {("grpo", "trainer", "train_loss"): NOW - 9}}, True),
        ({"log_value_timestamp_seconds": {("grpo", "trainer", "lr"): NOW - 9}}, False),
        ({"log_value_timestamp_seconds": {("grpo", "trainer", "loss"): NOW - 99}}, False),
        ({"log_value_timestamp_seconds": {("other", "trainer", "loss"): NOW - 9}}, False),
    ],
)
def test_a_run_that_prints_losses_without_steps_is_shown_so_after_some_seconds(
    printed: dict[str, dict[tuple[str, ...], float]], *, shown: bool
) -> None:
    """A loss from before its start may be that of an earlier attempt."""
    series: dict[str, dict[tuple[str, ...], float]] = {
        "training_finished": {("grpo",): 0},
        "run_trainer_processes": {("grpo",): 1},
        "run_trainer_start_timestamp_seconds": {("grpo",): NOW - 25},
    }
    (run,) = build_run_views([outcome({**series, **printed})], now=NOW)
    assert ("has shown no step for 25 s" in describe_run(run)) == shown
    assert "no step" not in describe_run(replace(run, trainer_age=15))
    assert "no step" not in describe_run(replace(run, step=3))
    unread = replace(run, unread_step="phase :: step 12")
    assert "(`phase :: step 12`): no hang can be seen until" in describe_run(unread)


def test_a_run_whose_lines_look_like_a_step_is_shown_with_one_of_them() -> None:
    run = RunView("odd", trainer_processes=1, trainer_age=120, unread_step="phase :: step 12")
    assert describe_run(run) == (
        "odd has shown no step for 2 min: its lines look like a step and cannot be read "
        "(`phase :: step 12`): no hang can be seen until it prints `step 12` at the start of a "
        "line, or calls trainwarden.beat"
    )


def test_a_line_that_is_not_read_reaches_the_view_of_its_run() -> None:
    artifacts = [UnreadStep("grpo", "phase :: step 12"), UnreadStep("other", "step: 9")]
    (run,) = build_run_views([outcome(SERIES, *artifacts)], now=NOW)
    assert run.unread_step == "phase :: step 12"


def test_an_exporter_that_has_just_begun_claims_no_silence() -> None:
    watch = RunWatch("grpo", lambda: NOW - 7, lambda: None)
    (run,) = build_run_views([outcome(SERIES, watch)], now=NOW)
    assert run.watched == 7
    silent = RunView("healthy", trainer_processes=1, trainer_age=116, watched=7)
    assert describe_run(silent) == "healthy runs"
    later = replace(silent, trainer_age=209, watched=100)
    assert describe_run(later).startswith("healthy has shown no step for 1 min 40 s: ")


def test_a_run_that_prints_in_bursts_is_judged_by_its_reports() -> None:
    run = RunView(
        "lit", phase="training", step=900, usual_seconds=0.111, step_age=11, report_seconds=11
    )
    assert not run.quiet
    assert describe_run(run) == (
        "lit trains, step 900 (11 s ago, usually every 111 ms, reported every 11 s)"
    )
    assert not replace(run, step_age=70, report_seconds=60).late
    late = replace(run, step_age=130, report_seconds=60)
    assert late.late
    assert "usually every 111 ms, reported every 1 min" in describe_run(late)


@pytest.mark.parametrize(
    ("finished", "running", "doing"),
    [
        (1, 0, "run0 has finished"),
        (2, 0, "run0 has finished; run1 has finished"),
        (30, 0, "30 runs have finished"),
        (1, 1, "run0 has finished; demo trains"),
        (30, 1, "demo trains; 30 runs have finished"),
    ],
)
def test_many_runs_that_have_finished_are_counted(finished: int, running: int, doing: str) -> None:
    runs = [RunView(f"run{index}", finished=True) for index in range(finished)]
    runs += [RunView("demo", phase="training")] * running
    assert summarize((), runs, None).sentence.startswith(f"No problem is seen: {doing}. Alerts")


def test_a_command_that_outlives_its_run_is_shown_with_what_ends_it() -> None:
    def seen(finished: float, *commands: Announcement) -> RunView:
        started: dict[tuple[str, ...], float] = {
            (one.run, one.worker, one.role): NOW - 60 * one.pid for one in commands
        }
        series: Series = {
            "training_finished": {RUN: finished},
            "training_step": {RUN: 8},
            "worker_processes": dict.fromkeys(started, 1),
            "worker_start_timestamp_seconds": started,
        }
        return build_run_views([outcome(series, *commands)], now=NOW)[0]

    server = Announcement(run="grpo", worker="vllm", role="inference", pid=90)
    env = Announcement(run="grpo", worker="env", pid=2)
    other = Announcement(run="other", worker="vllm", pid=3)
    trainer = Announcement(run="grpo", worker="trainer", pid=7, state="finished")
    finished = "grpo has finished, step 8"
    left = "vllm (inference, for 1 h 30 min) still runs: `trainwarden stop grpo` ends it"
    run = seen(1, trainer, server, other)
    assert describe_run(run) == f"{finished}; {left}"
    assert f" {left}." in words(run)
    assert summarize([], [run], None).sentence.startswith(f"No problem is seen: {finished}. ")
    assert describe_run(seen(1, server, env)).endswith(
        "; vllm (inference, for 1 h 30 min) and env (worker, for 2 min) still run:"
        " `trainwarden stop grpo` ends them"
    )
    stopped = server.model_copy(update={"state": "stopped"})
    assert describe_run(seen(1, trainer, stopped)) == finished
    assert "vllm" not in describe_run(seen(0, server))


def test_a_run_whose_trainers_have_finished_has_finished_before_its_progress_shows_it() -> None:
    def seen(finished: float) -> str:
        series: Series = {
            "training_finished": {RUN: 0},
            "run_trainer_processes": {RUN: 0},
            "worker_finished": {("grpo", "trainer", "trainer"): finished},
        }
        spec = ProgressSpec("grpo", trainers=("trainer",))
        (run,) = build_run_views([outcome(series, spec)], now=NOW)
        return describe_run(run)

    assert (seen(1), seen(0)) == ("grpo has finished", "grpo does not run")


def test_a_run_that_is_stuck_stands_though_the_time_of_its_step_is_unknown() -> None:
    def seen(movement: str) -> str:
        series: Series = {
            **SERIES,
            "training_progress_timestamp_seconds": {RUN: NOW - 200},
            "training_last_step_timestamp_seconds": {},
            "training_stall_pause_limit_seconds": {RUN: 1800},
            "stack_movement": {(*RUN, movement): 1},
        }
        return describe_run(build_run_views([outcome(series)], now=NOW)[0])

    assert seen("stuck").startswith("grpo stands at step ")
    assert seen("unknown").startswith("grpo trains, step ")


def test_what_a_stuck_run_waits_for_is_the_cause_of_its_standstill() -> None:
    chain = "process 7 of trainer waits for a queue at data.py:18"

    def clause(movement: str) -> str:
        series: Series = {
            **SERIES,
            "training_progress_timestamp_seconds": {RUN: NOW - 200},
            "training_last_step_timestamp_seconds": {RUN: NOW - 200},
            "training_stall_restart_limit_seconds": {RUN: 1800},
            "stack_movement": {(*RUN, movement): 1},
            "stack_chain_info": {(*RUN, chain): 1},
        }
        (problem,) = run_problems(build_run_views([outcome(series)], now=NOW)[0])
        assert problem.limit == (None if movement == "undecided" else 1800)
        return problem.clause

    stands = "grpo has made no step for 3 min 20 s (usually 30 s)"
    assert clause("stuck") == f"{stands}: {chain}"
    assert clause("unknown") == clause("undecided") == f"{stands}: phase training"


@pytest.mark.parametrize(
    ("states", "how"),
    [
        (
            {"stack_processes": {(*RUN, "trainer", "prompt"): 1}},
            "The remediator leaves it alone: it waits for you at a prompt.",
        ),
        (
            {"worker_process_states": {(*RUN, "trainer", "stopped"): 2}},
            "The remediator leaves it alone: it is stopped: `kill -CONT` continues it.",
        ),
        (
            {
                "worker_process_states": {(*RUN, "trainer", "stopped"): 1},
                "stack_chain_info": {(*RUN, "process 278 of trainer is stopped"): 1},
            },
            "The remediator leaves it alone: it is stopped: `kill -CONT 278` continues it.",
        ),
        ({"stack_processes": {(*RUN, "trainer", "moving"): 1}}, "It restarts the run"),
        ({"worker_process_states": {("other", "trainer", "stopped"): 2}}, "It restarts the run"),
    ],
)
def test_what_you_have_halted_is_yours(states: Series, how: str) -> None:
    stands: Series = {**SERIES, "training_progress_timestamp_seconds": {RUN: NOW - 200}, **states}
    (run,) = build_run_views([outcome(stands)], now=NOW)
    able = RemediatorStatus(
        mode="act",
        may_restart=("grpo/trainer",),
        may_restart_stalled=("grpo",),
        tone="good",
        verdict="",
        open_alerts=0,
        alerts=(),
        actions=(),
        firing=(),
    )
    (problem,) = summarize(run_problems(run), [run], able).problems
    assert problem.how.startswith(how)
    assert problem.who == (YOU if "leaves" in how else REMEDIATOR)


def test_a_save_with_the_last_step_is_no_sign_of_life_after_it() -> None:
    run = replace(HEALTHY, step_age=200.0, silence=200.0, usual_seconds=0.5)
    saved = (CheckpointView("a", age=199.9), CheckpointView("a", age=20.0))
    assert "though" not in str(list(run_problems(replace(run, checkpoints=saved[:1]))))
    assert "though it saved 20 s ago" in str(list(run_problems(replace(run, checkpoints=saved))))


def test_a_checkpoint_is_overdue_since_the_start_of_the_trainer_and_not_while_it_stands() -> None:
    """After a restart the newest one is from before the fault."""
    seen: Series = {**SERIES, "checkpoint_timestamp_seconds": {MAIN: NOW - 4000}}
    restarted: Series = {**seen, "run_trainer_start_timestamp_seconds": {RUN: NOW - 30}}
    (run,) = build_run_views([outcome(seen)], now=NOW)
    assert [one.clause for one in run_problems(run)] == [
        "the newest checkpoint of grpo is 1 h 6 min old (overdue after 1 h)"
    ]
    stands = [one.stalled for one in run_problems(replace(run, silence=200.0))]
    assert stands == [True]
    (run,) = build_run_views([outcome(restarted)], now=NOW)
    assert not list(run_problems(run))
    assert "1 h 6 min ago" in words(run)
    assert "overdue" not in words(run)


def test_a_run_whose_trainer_is_gone_has_no_overdue_checkpoint() -> None:
    old: Series = {**SERIES, "checkpoint_timestamp_seconds": {MAIN: NOW - 4000}}
    seen: Series = {**old, "run_trainer_processes": {RUN: 0.0}}
    (run,) = build_run_views([outcome(seen)], now=NOW)
    assert not [one for one in run_problems(run) if "checkpoint" in one.clause]
    assert "overdue" not in words(run)


def test_little_room_for_checkpoints_is_shown_also_while_the_run_stands() -> None:
    seen = CheckpointView("default", age=4000, interval=1800, left=2.6)
    stands = replace(HEALTHY, silence=200.0, checkpoints=(seen,))
    room = "there is room for only 2.6 more checkpoints of grpo"
    assert [one.clause for one in run_problems(stands)][1:] == [room]
    assert "room for 2.6 more checkpoints" in words(stands)
    full = replace(stands, checkpoints=(replace(seen, left=0.0),))
    room = "there is room for not even one more checkpoint of grpo"
    assert [one.clause for one in run_problems(full)][1:] == [room]
    assert "room for not even one more checkpoint" in words(full)


def test_whatever_comes_from_outside_is_escaped() -> None:
    def with_evil(labels: Iterable[str]) -> tuple[str, ...]:
        kept = {"grpo", "default", "training", "ok", "running"}
        return tuple(label if label in kept else EVIL for label in labels)

    series = {
        name: {with_evil(labels): value for labels, value in samples.items()}
        for name, samples in SERIES.items()
    }
    trouble = replace(TROUBLE, log=EVIL, pattern=EVIL, line=EVIL)
    evil = outcome(series, ProgressSpec("grpo", framework=EVIL), trouble)
    page = Words(status_page.render(status_page.PageData(NOW, 0, None, 0, (evil,))))
    assert "script" not in page.tags
    assert page.text.count("alert('x')") >= 9


def test_no_cell_is_without_its_name_on_a_phone() -> None:
    section = run_section(HEALTHY, "", now=NOW)
    assert len(re.findall("<td", section)) == len(re.findall(r"<td[^>]* data-label=", section)) > 9


def failed_run(reason: str) -> str:
    """Returns the page of a run whose announced trainer was killed."""
    failure = Announcement(run="grpo", worker="trainer", pid=7, state="failed", exits=((7, 1, 9),))
    seen = [
        outcome(
            {
                "training_finished": {("grpo",): 0},
                "training_progress_timestamp_seconds": {("grpo",): NOW - 900},
                "training_stall_pause_limit_seconds": {("grpo",): 60},
            },
            ProgressSpec("grpo", trainers=("trainer",)),
        ),
        outcome({"worker_expected_processes": {("grpo", "trainer", "trainer"): 1}}, failure),
    ]
    alert = RemediatorAlert(
        alert="TrainingWorkerGone",
        run="grpo",
        worker="trainer",
        since=NOW - 60,
        tone="warn",
        who_acts=REMEDIATOR,
        handling=f"waits: {reason}",
    )
    remediator = RemediatorStatus(
        mode="act", tone="warn", verdict="", open_alerts=1, alerts=(alert,), actions=(), firing=()
    )
    runs, workers = build_run_views(seen, now=NOW), build_worker_views(seen, now=NOW)
    problems = [*worker_problems(workers), *(one for run in runs for one in run_problems(run))]
    headline = summarize(problems, runs, remediator)
    return (
        f"{headline.sentence} {headline.who}. {headline.how}\n{runs[0].state}\n{workers[0].state}"
    )


def test_a_failure_of_an_announced_run_is_named_and_is_no_stall() -> None:
    shown = failed_run("too soon after the last action")
    assert shown.splitlines() == [
        (
            "grpo/trainer has failed (SIGKILL). "
            "The remediator. It waits: too soon after the last action."
        ),
        "failed: SIGKILL",
        "failed: SIGKILL",
    ]


def test_a_failed_run_that_nobody_starts_again_says_so() -> None:
    shown = failed_run("the remediator may not restart it")
    assert "You, now. Nobody starts it again" in shown
    assert "It waits" not in shown
    assert "`trainwarden stop grpo` dismisses it." in shown
    assert "dismisses" not in failed_run("too soon after the last action")
