"""The callbacks of trainwarden.callbacks in the real frameworks report what was done."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.beats import read_beats

PROGRAMS = Path(__file__).parent / "programs"
COMMAND = Path(__file__).resolve().parents[2] / "command"
PYTHON = Path(os.environ.get("TRAINWARDEN_REAL_PYTHON", ".venv-real/bin/python")).absolute()
STEPS = 25
RUN_SECONDS = 600.0
"""Imports of a framework take long on a loaded machine."""


@pytest.mark.parametrize(
    ("program", "package", "total", "numbers"),
    [
        ("transformers_trainer", "transformers", STEPS, {"loss", "epoch"}),
        ("lightning_trainer", "lightning", STEPS, set[str]()),
        ("optuna_search", "optuna", None, {"value"}),
        ("ray_loop", "ray", STEPS, {"loss"}),
    ],
)
def test_steps_phases_and_numbers_are_those_of_the_program(
    tmp_path: Path, program: str, package: str, total: int | None, numbers: set[str]
) -> None:
    look: list[str | Path] = [PYTHON, "-c", f"import {package}"]
    try:
        missing = subprocess.run(look, capture_output=True, check=False).returncode
    except OSError as error:
        pytest.skip(f"{PYTHON}: {error.strerror}; run make test-real")
    if missing:
        pytest.skip(f"{package} is not installed in {PYTHON.parents[1]}")
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, (PROGRAMS, COMMAND))),
        "BEAT_CALLBACKS": "yes",
        "TRAINWARDEN_FOLDER": str(tmp_path / "state"),
        "TRUTH_FOLDER": str(tmp_path),
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            [PYTHON, PROGRAMS / f"{program}.py", str(STEPS), "0"],
            cwd=tmp_path,
            env=environment,
            stdout=output,
            stderr=output,
            timeout=RUN_SECONDS,
            check=False,
        )
    assert done.returncode == 0, (tmp_path / "output").read_text()[-2000:]
    (beat,) = read_beats(tmp_path / "state" / "beats")
    events = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines())
    made = [event for event in events if event["kind"] in ("step", "trial")]
    assert beat.step == len({event["step"] for event in made}) == STEPS
    assert beat.total == total
    ends = package in ("transformers", "lightning")  # the others do not report their end
    assert beat.phase is (Phase.FINISHED if ends else Phase.TRAINING)
    assert numbers <= beat.numbers.keys()
