"""The callbacks of trainwarden.callbacks in the real frameworks report what was done."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.real.watching import PATIENCE, PROGRAMS, PYTHON, version
from tests.waiting import until

from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.progress.beats import Beat, read_beats

COMMAND = Path(__file__).resolve().parents[2] / "command"
STEPS = 25
TRAINER_STEPS = 65
"""A Trainer saves after each tenth, and evaluates after the sixtieth."""
LAST_LOG = {"loss", "grad_norm", "learning_rate", "epoch", "eval_loss"}
"""Numbers of a Trainer's logs, besides those of the whole training at its end."""


@contextmanager
def training(
    program: str, package: str, steps: int, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program with its callback; at the end of the block it must end with status 0."""
    if not version(package):
        pytest.skip(f"{package} is not installed in {PYTHON.parents[1]}")
    environment = {name: value for name, value in os.environ.items() if name != "RANK"}
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, (PROGRAMS, COMMAND))),
        "BEAT_CALLBACKS": "yes",
        "TRAINWARDEN_FOLDER": str(folder / "state"),
        "TRUTH_FOLDER": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [PYTHON, PROGRAMS / f"{program}.py", str(steps), "0"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
        assert process.wait(2 * PATIENCE) == 0, (folder / "output").read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def made(folder: Path, *kinds: str) -> list[dict[str, float]]:
    path = folder / "truth.jsonl"
    # the last line may be half written
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    events = map(json.loads, lines)
    return [event for event in events if event["kind"] in kinds]


def last_beat(folder: Path) -> Beat:
    (beat,) = read_beats(folder / "state" / "beats")
    return beat


@pytest.mark.parametrize(
    ("program", "package", "steps", "numbers"),
    [
        ("transformers_trainer", "transformers", TRAINER_STEPS, LAST_LOG),
        ("trl_sft", "trl", TRAINER_STEPS, LAST_LOG | {"mean_token_accuracy"}),
        ("lightning_trainer", "lightning", STEPS, set[str]()),
        ("optuna_search", "optuna", STEPS, {"value"}),
        ("ray_loop", "ray", STEPS, {"loss"}),
    ],
)
def test_steps_and_numbers_are_those_of_the_program(
    tmp_path: Path, program: str, package: str, steps: int, numbers: set[str]
) -> None:
    with training(program, package, steps, tmp_path):
        pass
    beat = last_beat(tmp_path)
    done = made(tmp_path, "step", "trial")
    assert beat.step == len({event["step"] for event in done}) == steps
    assert beat.total == (None if package == "optuna" else steps)
    # the others do not report their end
    ends = package in ("transformers", "trl", "lightning")
    assert beat.phase is (Phase.FINISHED if ends else Phase.TRAINING)
    assert numbers <= beat.numbers.keys()
    if "loss" in numbers and (losses := made(tmp_path, "loss")):
        assert beat.numbers["loss"] == losses[-1]["loss"]


@pytest.mark.parametrize(
    ("program", "package"), [("transformers_trainer", "transformers"), ("trl_sft", "trl")]
)
def test_a_save_and_an_evaluation_are_reported_while_they_last(
    tmp_path: Path, program: str, package: str
) -> None:
    saves, evaluates = tmp_path / "do.slow_save", tmp_path / "do.evaluate"
    for order in (saves, evaluates):
        order.touch()
    with training(program, package, TRAINER_STEPS, tmp_path) as process:

        def shown() -> tuple[object, ...]:
            assert process.poll() is None, (tmp_path / "output").read_text()[-2000:]
            beats = read_beats(tmp_path / "state" / "beats")
            losses = made(tmp_path, "loss") if beats else []
            same = losses and beats[0].numbers.get("loss") == losses[-1]["loss"]
            return next(((one.phase, one.step, one.total, same) for one in beats), ())

        for order, phase, step in ((saves, Phase.SAVING, 10), (evaluates, Phase.EVALUATING, 60)):
            expected = (phase, step, TRAINER_STEPS, True)
            until(lambda expected=expected: shown() == expected, PATIENCE)  # type: ignore[misc]
            order.unlink()
    assert last_beat(tmp_path).phase is Phase.FINISHED
