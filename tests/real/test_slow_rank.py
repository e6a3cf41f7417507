"""Ranks of PyTorch that wait for each other: the slow one is named, and nobody else."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from trainwarden_exporter.progress.beats import lags_by_run, read_beats

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("programs") / "ranks_in_step.py"
PYTHON = Path(os.environ.get("TRAINWARDEN_REAL_PYTHON", ".venv-real/bin/python")).absolute()
START_SECONDS = 300.0
"""Imports of PyTorch take long on a loaded machine."""
WATCHED_SECONDS = 60.0


def limit() -> float:
    """What the rule compares with."""
    rules = yaml.safe_load((PROJECT / "rules" / "alerts" / "progress.yml").read_text())
    (expression,) = (
        rule["expr"]
        for group in rules["groups"]
        for rule in group["rules"]
        if rule["alert"] == "TrainingRankSlow"
    )
    (compared,) = re.findall(r"> ([\d.]+)$", expression, re.MULTILINE)
    return float(compared)


@contextmanager
def training(folder: Path, slow: str) -> Iterator[None]:
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {
        "PYTHONPATH": str(PROJECT / "command"),
        "TRAINWARDEN_FOLDER": str(folder),
        "TRAINWARDEN_RUN": "demo",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with (
        (folder / "output").open("wb") as output,
        subprocess.Popen(
            [PYTHON, PROGRAM, slow, "100000", folder],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as ranks,
    ):
        try:
            yield
        finally:
            os.killpg(ranks.pid, 9)


def look(folder: Path) -> Mapping[int, float]:
    beats = read_beats(folder / "beats")
    return lags_by_run(beats, lambda beat: beat.run, time.time()).get("demo", {})


@pytest.mark.parametrize(("slow", "named"), [("2", {2}), ("nobody", set()), ("random", set())])
def test_the_rank_that_is_slow_in_each_step_is_named(
    tmp_path: Path, slow: str, named: set[int]
) -> None:
    if subprocess.run([PYTHON, "-c", "import torch"], check=False).returncode:
        pytest.skip("needs PyTorch: run make test-real")
    always: set[int] = set(range(4))
    with training(tmp_path, slow):
        end = time.monotonic() + START_SECONDS
        while not look(tmp_path):
            assert time.monotonic() < end, (tmp_path / "output").read_text()[-2000:]
            time.sleep(0.5)
        end = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < end:
            lags = look(tmp_path)
            assert lags.keys() == set(range(4))
            always &= {rank for rank, lag in lags.items() if lag > limit()}
            time.sleep(1.0)
    assert always == named
