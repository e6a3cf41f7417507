from __future__ import annotations

import time
from typing import Any

import pytest
from tests.remediator.samples import ROLLOUT

from trainwarden_exporter import app
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.observation import exporter_page
from trainwarden_remediator.observation.exporter_page import parse_exporter_page
from trainwarden_remediator.observation.model import (
    DiskState,
    EmergencyBrakeState,
    ExporterState,
    RunState,
    ServerState,
)

BASE = """\
trainwarden_collector_success{collector="host"} 1
trainwarden_collector_success{collector="workers"} 1
trainwarden_memory_effective_available_bytes 2.147483648e+10
trainwarden_memory_available_floor_bytes 2.147483648e+09
"""

WHICH = 'run="demo",server="sglang-0",engine="sglang"'
REASONS = "".join(
    f'trainwarden_inference_reason{{{WHICH},reason="{reason}"}} {int(reason == "hung")}\n'
    for reason in ("ok", "refused", "hung", "starting")
)
INFERENCE = f"""\
trainwarden_inference_info{{{WHICH},worker="rollout-0",role="inference"}} 1
trainwarden_inference_up{{{WHICH}}} 0
{REASONS}trainwarden_inference_state_timestamp_seconds{{{WHICH}}} 1.7e+09
trainwarden_inference_deep_probe_success{{{WHICH}}} 0
trainwarden_inference_deep_probe_timestamp_seconds{{{WHICH}}} 1.70000001e+09
trainwarden_inference_start_grace_seconds{{{WHICH}}} 300
trainwarden_inference_progress_timestamp_seconds{{{WHICH}}} 1.6e+09
trainwarden_inference_seen_timestamp_seconds{{{WHICH}}} 1.70000002e+09
"""

PROGRESS = """\
trainwarden_training_step{run="demo"} 1874
trainwarden_training_last_step_timestamp_seconds{run="demo"} 1.7e+09
trainwarden_training_progress_timestamp_seconds{run="demo"} 1.70000001e+09
trainwarden_training_stall_limit_seconds{run="demo"} 300
trainwarden_training_phase{run="demo",phase="training"} 0
trainwarden_training_phase{run="demo",phase="saving"} 1
trainwarden_training_finished{run="demo"} 0
trainwarden_training_resume_step{run="demo"} 1870
trainwarden_training_first_step_after_resume{run="demo"} 1871
trainwarden_training_resume_checkpoint_step{run="demo"} 1872
trainwarden_training_step_spacing{run="demo"} 1
trainwarden_training_steps_repeated_total{run="demo"} 12
trainwarden_training_step{run="second"} 5
"""

CHECKPOINTS = """\
trainwarden_checkpoint_step{run="demo",checkpoint="default"} 1870
trainwarden_checkpoint_step{run="demo",checkpoint="critic"} 1860
trainwarden_checkpoint_complete{run="demo",checkpoint="default"} 2
trainwarden_checkpoint_complete{run="demo",checkpoint="critic"} 1
trainwarden_checkpoint_saving{run="demo",checkpoint="default"} 0
trainwarden_checkpoint_saving{run="demo",checkpoint="critic"} 1
trainwarden_checkpoint_recovery_matches{run="demo",checkpoint="default"} 1
trainwarden_checkpoint_seen_timestamp_seconds{run="demo",checkpoint="default"} 1.70000003e+09
trainwarden_checkpoint_seen_timestamp_seconds{run="demo",checkpoint="critic"} 1.70000002e+09
"""

DISKS = """\
trainwarden_disk_size_bytes{path="/data"} 1e+12
trainwarden_disk_free_bytes{path="/data"} 5e+11
trainwarden_disk_inodes{path="/data"} 1e+06
trainwarden_disk_free_inodes{path="/data"} 5e+05
trainwarden_disk_read_only{path="/data"} 0
trainwarden_disk_seen_timestamp_seconds{path="/data"} 1.7e+09
trainwarden_disk_checkpoints_left{run="demo",checkpoint="default",path="/data"} 12
trainwarden_disk_free_bytes{path="/scratch"} 0
trainwarden_disk_read_only{path="/scratch"} 1
"""


def see(*parts: str) -> ExporterState:
    return parse_exporter_page("".join((BASE, *parts)).encode())


def test_sees_inference_servers_by_the_worker_that_serves_them() -> None:
    exporter = see(INFERENCE)
    assert exporter.servers_of(ROLLOUT) == (
        ServerState(
            name="sglang-0",
            worker="rollout-0",
            role="inference",
            up=False,
            reason="hung",
            since=1.7e9,
            answered=False,
            asked_at=1.70000001e9,
            worked_at=1.6e9,
            start_grace=300,
            seen_at=1.70000002e9,
            engine="sglang",
        ),
    )
    assert exporter.servers_of(WorkerKey("demo", "trainer")) == ()
    assert exporter.servers_of(WorkerKey("second", "rollout-0")) == ()


def test_the_trials_in_the_storage_of_a_search_are_its_checkpoints() -> None:
    of = 'run="demo",log="{}",pattern="{}"'
    page = (
        'trainwarden_training_stall_limit_seconds{run="demo"} 60\n'
        'trainwarden_training_stall_restart_limit_seconds{run="demo"} 120\n'
        'trainwarden_stack_movement{run="demo",movement="moving"} 0\n'
        'trainwarden_stack_movement{run="demo",movement="stuck"} 1\n'
        'trainwarden_stack_chain_info{run="demo",chain="rank 0 waits"} 1\n'
        'trainwarden_stack_processes{run="demo",worker="trainer",activity="queue"} 1\n'
        'trainwarden_stack_processes{run="demo",worker="trainer",activity="prompt"} 1\n'
        f"trainwarden_log_matches_total{{{of.format('workers', 'trial_finished')}}} 99\n"
    )
    journal = f"trainwarden_log_matches_total{{{of.format('journal', 'journaled')}}} 37\n"
    assert see(page, journal).runs["demo"] == RunState(
        stall_limit=60,
        restart_limit=120,
        stuck=True,
        waits="rank 0 waits",
        at_prompt=True,
        trials=37,
        checkpoint=37,
    )
    # in the memory of the program
    assert see(page).runs["demo"] == RunState(
        stall_limit=60, restart_limit=120, stuck=True, waits="rank 0 waits", at_prompt=True
    )


@pytest.mark.parametrize(
    ("movement", "activities", "awake"),
    [
        ("moving", ("sleep",), False),
        ("unknown", ("sleep",), True),
        ("unknown", ("sleep", "idle", "server"), True),
        ("unknown", ("idle", "server"), False),
        ("unknown", ("sleep", "collective"), False),
        ("unknown", ("sleep", "unknown"), False),
        ("stuck", ("sleep",), False),
        ("unknown", (), False),
        ("undecided", ("sleep",), False),
    ],
)
def test_a_run_that_sleeps_a_moment_at_a_time_is_awake(
    movement: str, activities: tuple[str, ...], *, awake: bool
) -> None:
    """As an evaluation that polls; the error before it may have been caught."""
    stacks = "".join(
        f'trainwarden_stack_processes{{run="demo",worker="w",activity="{name}"}} {count}\n'
        for name, count in ({"queue": 0} | dict.fromkeys(activities, 1)).items()
    )
    page = (
        'trainwarden_training_stall_limit_seconds{run="demo"} 60\n'
        f'trainwarden_stack_movement{{run="demo",movement="{movement}"}} 1\n'
    )
    run = see(page + stacks).runs["demo"]
    assert (run.awake, run.undecided) == (awake, movement == "undecided")


def test_the_trials_of_a_search_in_a_database_are_those_of_its_logs() -> None:
    def trials(**counts: int) -> float | None:
        page = 'trainwarden_training_stall_limit_seconds{run="demo"} 60\n' + "".join(
            f'trainwarden_log_matches_total{{run="demo",log="workers",pattern="{name}"}} {count}\n'
            for name, count in counts.items()
        )
        return see(page).runs["demo"].trials

    ended = {"trial_finished": 5, "trial_pruned": 2, "trial_failed": 1}
    assert trials(**ended, stored_study=2, unstored_study=0) == 8
    assert trials(trial_finished=0, stored_study=1) is None
    assert trials(**ended, stored_study=0) is None
    # two searches in one run, and one of them is only in memory
    assert trials(**ended, stored_study=1, unstored_study=1) is None


def test_what_is_not_shown_of_a_server_is_not_made_up() -> None:
    few = "".join(f"{line}\n" for line in INFERENCE.splitlines()[:2])
    assert see(few).servers_of(ROLLOUT) == (
        ServerState("sglang-0", "rollout-0", "inference", up=False, reason="", engine="sglang"),
    )
    assert see(few.splitlines()[0] + "\n").servers_of(ROLLOUT) == ()


def test_sees_how_far_a_run_has_come() -> None:
    exporter = see(PROGRESS, CHECKPOINTS)
    assert exporter.runs["demo"] == RunState(
        step=1874,
        last_step_at=1.7e9,
        progress_at=1.70000001e9,
        stall_limit=300,
        phase="saving",
        finished=False,
        resume_step=1870,
        resume_checkpoint=1872,
        step_spacing=1,
        steps_repeated=12,
        first_step=1871,
        checkpoint=1870,
        checkpoints=3,
        checkpoints_seen_at=1.70000002e9,
        saving=True,
        recovery_matches=True,
    )
    assert exporter.runs["second"] == RunState(step=5)
    assert see(CHECKPOINTS).runs["demo"].step is None


PROVED = """\
trainwarden_checkpoint_proved_info{run="demo",checkpoint="critic",path="/srv/critic/860"} 1
trainwarden_checkpoint_proved_step{run="demo",checkpoint="critic"} 860
trainwarden_checkpoint_proved_info{run="demo",checkpoint="default",path="/srv/run/1870"} 1
trainwarden_checkpoint_proved_step{run="demo",checkpoint="default"} 1870
"""


def test_sees_until_which_step_a_value_was_finite() -> None:
    line = 'trainwarden_log_value_finite_until_step{run="demo",log="trainer",name="loss"} 29\n'
    assert see(PROGRESS, line).runs["demo"].finite_until == {("trainer", "loss"): 29.0}


def test_an_epoch_is_compared_with_no_step() -> None:
    """Neither is it from before the step of a NaN, nor from after it."""
    line = 'trainwarden_log_value_finite_until_step{run="demo",log="trainer",name="loss"} %s\n'
    epochs = PROVED.replace("/srv/run/1870", "/srv/run/epoch-1870")
    for proved, is_compared in ((PROVED, True), (epochs, False)):
        run = see(PROGRESS, CHECKPOINTS, proved, line % 1900).runs["demo"]
        assert run.sound_checkpoint(1900) == ("/srv/run/1870" if is_compared else "")
        run = see(PROGRESS, CHECKPOINTS, proved, line % 29).runs["demo"]
        assert run.saves_spoilt is is_compared


def test_the_newest_proved_checkpoint_has_a_path() -> None:
    seen = see(CHECKPOINTS, PROVED).runs["demo"]
    assert (seen.proved_checkpoint, seen.proved_step) == ("/srv/run/1870", 1870)
    assert seen.unproved_step is None
    assert seen.checkpoints_end_unknown == 0
    cut = "".join(
        f'trainwarden_checkpoint_end_unknown{{run="demo",checkpoint="{kind}"}} 1\n'
        for kind in ("critic", "default")
    )
    assert see(CHECKPOINTS, PROVED, cut).runs["demo"].checkpoints_end_unknown == 2
    unread = 'trainwarden_checkpoint_unproved_step{run="demo",checkpoint="default"} 1880\n'
    assert see(CHECKPOINTS, PROVED, unread).runs["demo"].unproved_step == 1880
    damaged = (
        'trainwarden_checkpoint_damaged_info{run="demo",checkpoint="default",path="/srv/9"} 1\n'
    )
    assert see(CHECKPOINTS, damaged).runs["demo"].damaged_checkpoints == {"/srv/9"}
    labels = 'run="demo",checkpoint="default",problem="9: a"'
    problem = f"trainwarden_checkpoint_resume_problem_info{{{labels}}} 1\n"
    assert see(CHECKPOINTS, problem).runs["demo"].resume_problem == "9: a"
    relative = PROVED.replace("/srv/run/1870", "-c rm")
    assert see(CHECKPOINTS, relative).runs["demo"].proved_checkpoint == ""


def test_one_record_that_does_not_fit_is_enough() -> None:
    odd = 'trainwarden_checkpoint_recovery_matches{run="demo",checkpoint="critic"} 0\n'
    assert see(CHECKPOINTS, odd).runs["demo"].recovery_matches is False


def test_no_checkpoint_is_not_the_same_as_no_news_of_any() -> None:
    none = 'trainwarden_checkpoint_complete{run="demo",checkpoint="default"} 0\n'
    assert see(none).runs["demo"].checkpoints == 0
    assert see(PROGRESS).runs["demo"].checkpoints is None


def test_sees_disks_and_which_runs_keep_checkpoints_there() -> None:
    assert see(DISKS).disks == (
        DiskState(
            *("/data", True, 1e12, 5e11, 1e6, 5e5, False, 1.7e9),
            runs=frozenset({"demo"}),
            checkpoints_left={"demo": 12},
        ),
        DiskState("/scratch", free=0, read_only=True),
    )
    gone = 'trainwarden_disk_up{path="/data"} 0\n'
    assert see(gone).disks == (DiskState("/data", up=False),)


BRAKES = """\
trainwarden_log_info{run="demo",log="out",role="",worker="rollout-0"} 1
trainwarden_log_info{run="demo",log="err",role="",worker="rollout-0"} 1
trainwarden_log_info{run="demo",log="all",role="",worker=""} 1
trainwarden_log_info{run="demo",log="train",role="trainer",worker="trainer"} 1
trainwarden_log_match_streak{run="demo",log="out",pattern="emergency_brake"} 12
trainwarden_log_match_streak{run="demo",log="err",pattern="emergency_brake"} 3
trainwarden_log_match_streak{run="demo",log="out",pattern="oom"} 99
trainwarden_log_match_streak{run="demo",log="all",pattern="emergency_brake"} 99
trainwarden_log_last_match_timestamp_seconds{run="demo",log="out",pattern="emergency_brake"} 1.7e+09
trainwarden_log_last_match_timestamp_seconds{run="demo",log="err",pattern="emergency_brake"} 1.8e+09
trainwarden_log_last_match_timestamp_seconds{run="demo",log="out",pattern="oom"} 1.8e+09
trainwarden_log_last_match_timestamp_seconds{run="demo",log="all",pattern="emergency_brake"} 1.8e+09
"""


def test_sees_the_brakes_that_the_logs_of_a_worker_tell_of() -> None:
    assert see(BRAKES).emergency_brakes == {ROLLOUT: EmergencyBrakeState(streak=12, last_at=1.7e9)}


def test_a_page_without_any_of_it_shows_none_of_it() -> None:
    exporter = see()
    assert (exporter.servers, exporter.runs, exporter.disks, exporter.gpu_orphans) == (
        {},
        {},
        (),
        None,
    )


@pytest.mark.parametrize("count", [200])
def test_many_servers_are_seen_quickly(count: int) -> None:
    page = "".join(
        INFERENCE.replace('"sglang-0"', f'"s{n}"').replace('"rollout-0"', f'"w{n}"')
        for n in range(count)
    )
    began = time.process_time()
    exporter = see(page)
    assert time.process_time() - began < 2
    assert len(exporter.servers["demo"]) == count


def test_what_is_looked_for_is_what_the_exporter_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, frozenset[str]]] = set()
    page = exporter_page._Page
    real_all, real_values = page.all, page.values

    def note_all(self: Any, name: str, **labels: str) -> Any:
        asked.add((name, frozenset(labels)))
        return real_all(self, name, **labels)

    def note_values(self: Any, label: str, *names: str) -> Any:
        asked.update((name, frozenset({label})) for name in names)
        return real_values(self, label, *names)

    monkeypatch.setattr(page, "all", note_all)
    monkeypatch.setattr(page, "values", note_values)
    worker = (
        'trainwarden_worker_processes{run="demo",worker="w"} 1\n'
        'trainwarden_worker_expected_processes{run="demo",worker="w"} 1\n'
        'trainwarden_worker_memory_bytes{run="demo",worker="w"} 1\n'
        'trainwarden_collector_success{collector="gpu"} 1\n'
    )
    see(worker, INFERENCE, PROGRESS, CHECKPOINTS, PROVED, DISKS, BRAKES)
    declared = {metric.name: set(metric.labels) for metric in app.declared_metrics()}
    assert len(asked) > 40
    for name, labels in asked:
        assert labels <= declared[f"trainwarden_{name}"], name


def test_checkpoints_that_the_exporter_cannot_show_are_not_taken_for_none() -> None:
    success = 'trainwarden_collector_success{collector="checkpoints"}'
    assert see(PROGRESS, f"{success} 1\n").saves_unknown == ""
    assert see(PROGRESS).saves_unknown == ""
    assert (
        see(PROGRESS, f"{success} 0\n").saves_unknown
        == "the exporter's checkpoints collector fails"
    )


def test_how_long_processes_have_waited_for_memory_is_read_by_scope_and_kind() -> None:
    page = """\
trainwarden_collector_success{collector="host"} 1
trainwarden_collector_success{collector="workers"} 1
trainwarden_memory_effective_available_bytes 1
trainwarden_memory_available_floor_bytes 2
trainwarden_memory_pressure_stalled_seconds_total{scope="host",kind="some"} 5.5
trainwarden_memory_pressure_stalled_seconds_total{scope="cgroup",kind="full"} 2
"""
    stalled = parse_exporter_page(page.encode()).memory_stalled
    assert stalled == {("host", "some"): 5.5, ("cgroup", "full"): 2}


def test_what_counts_towards_the_limit_counts_for_the_remediator_too() -> None:
    """Else a restarted worker would be above its limit for the remediator alone."""
    labels = '{run="demo",worker="w"}'
    worker = (
        f"trainwarden_worker_processes{labels} 1\n"
        f"trainwarden_worker_expected_processes{labels} 1\n"
        f"trainwarden_worker_resident_bytes{labels} 16e9\n"
        f"trainwarden_worker_memory_bytes{labels} 10e9\n"
    )
    found = see(worker).workers[WorkerKey("demo", "w")]
    assert found.memory_bytes == 10e9


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_without_a_step_has_finished_as_its_trainers_have(*, ended: bool) -> None:
    """Its server goes on: a server does not finish."""
    page = BASE + f'trainwarden_training_finished{{run="demo"}} {int(ended)}\n'
    for worker, finished in (("trainer", int(ended)), ("server", 0)):
        which = f'{{run="demo",worker="{worker}"}}'
        for name, value in (("processes", 1), ("expected_processes", 1), ("memory_bytes", 1)):
            page += f"trainwarden_worker_{name}{which} {value}\n"
        page += f"trainwarden_worker_finished{which} {finished}\n"
    state = parse_exporter_page(page.encode())
    assert not state.runs
    assert state.all_runs == {"demo": RunState(finished=ended)}


def test_when_the_last_line_of_a_pattern_was_read_is_that_of_its_log() -> None:
    names = 'run="demo",log="trainer",pattern="gpu_fault"'
    seen = see(f"trainwarden_log_last_match_timestamp_seconds{{{names}}} 1.7e+09\n")
    assert seen.last_lines == {("demo", "trainer", "gpu_fault"): 1.7e9}
