"""The shape of exporter.yml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwarden_exporter.config import (
    _NUMBERED_ENTRY,
    _OVERWRITTEN_ENTRY,
    _UNFINISHED_ENTRY,
    Config,
    load_config,
)
from trainwarden_exporter.exceptions import ConfigError

WHOLE = r"""
host:
  memory_available_floor: 2GiB
  cgroup: /sys/fs/cgroup/training
runs:
  - name: demo
    workers:
      - name: rollout-0
        role: rollout
        match: {command: 'rollout\.py --name rollout-0'}
        memory_limit: 8GiB
        age_limit: 1h
      - name: trainer
        match: {executable: /usr/bin/python3, environment: {ROLE: 'trainer.*'}}
        expected: 2
        finishes: true
  - name: sweep
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exporter.yml"


def test_a_whole_file_is_read(path: Path) -> None:
    path.write_text(WHOLE)

    config = load_config(path)

    assert config.host.memory_available_floor == 2 * 1024**3
    assert [run.name for run in config.runs] == ["demo", "sweep"]
    assert [worker.name for worker in config.runs[0].workers] == ["rollout-0", "trainer"]
    assert config.runs[0].workers[0].memory_limit == 8 * 1024**3


@pytest.mark.parametrize("text", ["", "host:\nruns:\n", "runs: []\n"])
def test_an_empty_file_watches_the_host_alone(path: Path, text: str) -> None:
    path.write_text(text)
    assert load_config(path) == Config()


def test_runs_have_names_of_their_own(path: Path) -> None:
    path.write_text("runs:\n  - name: a\n  - name: b\n  - name: a\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}:4: runs[2].name: another run is named a"


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ("copies: /mnt/b", "mirrors the run's path, which is not configured"),
        ("path: /srv/run, copies: /srv/run", "must lie outside the run's path, and not contain it"),
        ("path: /srv/run, copies: /srv/run/b", "must lie outside the run's path, and not contain"),
        ("path: /srv/run, copies: /srv", "must lie outside the run's path, and not contain it"),
    ],
)
def test_copies_lie_in_a_second_place(path: Path, places: str, problem: str) -> None:
    path.write_text(f"runs:\n  - {{name: a, framework: trl, {places}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:2: runs[0].copies: {problem}")


def test_all_that_is_wrong_is_reported_at_once(path: Path) -> None:
    path.write_text(
        "hots: {}\n"
        "host:\n"
        "  memory_available_floor: much\n"
        "runs:\n"
        "  - name: demo\n"
        "    workers:\n"
        "      - match: {command: x}\n"
        "        memory_limits: 8GiB\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert [(problem.line, problem.where) for problem in caught.value.problems] == [
        (1, "hots"),
        (3, "host.memory_available_floor"),
        (7, "runs[0].workers[0].name"),
        (8, "runs[0].workers[0].memory_limits"),
    ]


@pytest.mark.parametrize(
    ("name", "is_complete"),
    [
        ("checkpoint-500", True),
        ("attempt-3-step-100", True),
        ("checkpoint-500.tmp", False),
        ("tmp-checkpoint-500", False),
        ("checkpoint-500-partial", False),
        ("100_incomplete", False),
        ("epoch=3-step=120.ckpt.part", False),
    ],
)
def test_names_of_checkpoints_that_are_being_written(name: str, is_complete: bool) -> None:
    assert (re.fullmatch(_NUMBERED_ENTRY, name) is not None) is is_complete
    assert (re.fullmatch(_UNFINISHED_ENTRY, name) is not None) is not is_complete


@pytest.mark.parametrize(
    ("name", "is_checkpoint"),
    [
        ("ckpt.pt", True),
        ("last.ckpt", True),
        ("model_state.safetensors", True),
        ("grpo-latest.pth", True),
        ("ckpt.pt.tmp", False),
        ("best.pt", False),
        ("checkpoint.json", True),
        ("trainer_state.json", False),  # describes a checkpoint
        ("latest_checkpoint.json", False),  # may only name one
        ("optimizer.pt", False),
        ("events.out", False),
        ("model_500.pt", False),  # numbered
    ],
)
def test_names_of_checkpoints_that_are_overwritten(name: str, is_checkpoint: bool) -> None:
    assert (re.fullmatch(_OVERWRITTEN_ENTRY, name) is not None) is is_checkpoint
