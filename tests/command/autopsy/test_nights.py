"""The five nights: the true cause is named first, from the files alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import night_folders as nights
from autopsying import examine, first_cause
from night_folders import ALREADY_EXISTS, BUSY, REFUSED, WAITING, at, write
from trainwarden.autopsy.json_report import as_data
from trainwarden.autopsy.report import render
from trainwarden.autopsy.verdict import Verdict
from trainwarden_exporter.config import load_config

NIGHTS = [
    (nights.restart_loop, "restart_loop"),
    (nights.inference_down, "inference_down"),
    (nights.memory_leak, "memory_full"),
    (nights.waiting_for_rollouts, "rollouts_missing"),
    (nights.gpu_held, "gpu_held"),
]


Night = Callable[[Path], Path]
Examined = Callable[[Night], Verdict]


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Examined:
    """Examines each night once."""
    return cache(lambda night: examine(night(tmp_path_factory.mktemp("night"))))


@pytest.mark.parametrize(("night", "cause"), NIGHTS)
def test_the_true_cause_is_named_first_and_with_evidence(
    night: Night, cause: str, examined: Examined
) -> None:
    verdict = examined(night)
    first = verdict.likely[0]
    assert first.cause.name == cause
    assert first.score == sum(points for points, _ in first.evidence)
    assert f"### 1. {first.cause.title} (score {first.score})" in render(verdict)


@pytest.mark.parametrize(("night", "cause"), NIGHTS)
def test_the_proposed_file_is_accepted_by_check(
    night: Night, cause: str, examined: Examined, tmp_path: Path
) -> None:
    data = as_data(examined(night))
    file = tmp_path / "exporter.yml"
    file.write_text(data["exporter_yml"])
    assert load_config(file).runs
    assert data["causes"][0]["name"] == cause
    assert data["alerts"]


def test_a_restart_loop_is_distinguished_from_a_step_that_fails(examined: Examined) -> None:
    verdict = examined(nights.restart_loop)
    report = render(verdict)
    assert "4 of 5 ended at step 57 ± 1" in report
    assert "40 starts in a row without progress, one each 17 s" in report
    same = next(one for one in verdict.weighed if one.cause.name == "same_step")
    assert not same.likely


def test_attempts_that_end_at_one_step_are_a_cause_without_a_restart_loop(tmp_path: Path) -> None:
    nights.restart_loop(tmp_path)
    (tmp_path / "container.log").unlink()
    assert first_cause(tmp_path) == "same_step"


def test_errors_count_once_although_two_files_contain_them(examined: Examined) -> None:
    data = as_data(examined(nights.inference_down))
    (refused,) = data["errors"]
    assert (refused["kind"], refused["count"]) == ("connection_refused", 64)
    assert refused["first_at"] == at("2025-11-12 05:09:12")


def test_a_resume_begins_after_the_last_complete_checkpoint(examined: Examined) -> None:
    verdict = examined(nights.inference_down)
    data = as_data(verdict)
    assert data["checkpoint"]["name"] == "epoch1epochstep934globalstep1869"
    assert data["checkpoint"]["completed_at"] == at("2025-11-12 05:04:00")
    assert data["recovery"] == {"step": 1870, "complete": True}
    assert data["resume_step"] == 1871
    assert "step 1871, which the framework's own records count as 1870" in render(verdict)
    assert data["last_sign_of_life"]["at"] == at("2025-11-12 18:33:00")


def test_ctrl_c_after_hours_of_standstill_is_not_the_cause(examined: Examined) -> None:
    verdict = examined(nights.inference_down)
    stopped = next(one for one in verdict.weighed if one.cause.name == "interrupted")
    assert not stopped.likely
    assert any("13 h 29 min" in evidence.text for _, evidence in stopped.opposing)


def test_a_dead_watchdog_is_named_beside_the_full_memory(examined: Examined) -> None:
    verdict = examined(nights.memory_leak)
    assert [one.cause.name for one in verdict.likely] == ["memory_full", "watchdog_dead"]
    report = render(verdict)
    assert "94.2 % full" in report
    assert "The emergency brake fired: 951 times" in report
    assert "3 boots" in report


def test_the_error_of_the_part_that_wrote_no_batch_is_shown(examined: Examined) -> None:
    report = render(examined(nights.waiting_for_rollouts))
    assert "The newest complete batch is that of step 3" in report
    assert "environment not found: wordle" in report


def test_exclusive_mode_is_a_different_cause_than_leftovers(tmp_path: Path) -> None:
    nights.gpu_held(tmp_path)
    write(tmp_path / "nvidia-smi.txt", ["compute_mode", "Exclusive_Process"])
    (tmp_path / "lsof.txt").unlink()
    assert first_cause(tmp_path) == "gpu_exclusive"


@pytest.mark.parametrize(
    ("files", "cause"),
    [
        ({"start.log": [ALREADY_EXISTS] * 12}, "restart_loop"),
        ({"train.log": [REFUSED] * 64, "wandb/output.log": [REFUSED] * 64}, "inference_down"),
        (
            {
                "worker_safe_1.log": [
                    "Memory usage: 29.41 GB / 31.23 GB (94.2%)",
                    "Available: 1.82 GB (below 2.0 GB threshold)",
                    "Emergency brake triggered: 951 times",
                ]
            },
            "memory_full",
        ),
        (
            {"worker.log": ["Trial starts → Check memory → 1.82GB < 2.0GB → Kill trial"] * 951},
            "memory_full",
        ),
        ({"trainer.log": [WAITING]}, "rollouts_missing"),
        (
            {"trainer.log": [WAITING], "orchestrator.log": ["All connection attempts failed"] * 5},
            "inference_down",
        ),
        ({"train.log": [BUSY]}, "gpu_held"),
    ],
)
def test_a_few_lines_without_times_are_enough(
    files: dict[str, list[str]], cause: str, tmp_path: Path
) -> None:
    for name, lines in files.items():
        write(tmp_path / name, lines)
    assert first_cause(tmp_path) == cause
