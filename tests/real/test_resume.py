"""A real Trainer that dies in the middle of a save goes on from the newest proved checkpoint."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.real.watching import PATIENCE, PROGRAMS, PYTHON, version

from box import Box, Part, Run, events
from parts import Parts, parts
from running import fetch

STEPS, DIES_AT, PROVED = 50, 30, 20
PROGRAM = PROGRAMS / "dying_trainer.py"


def command(folder: Path, dies_at: int, checkpoint: str) -> list[str]:
    return [str(PYTHON), str(PROGRAM), str(folder), str(STEPS), str(dies_at), checkpoint]


def truth(folder: Path) -> list[dict[str, Any]]:
    path = folder / "truth.jsonl"
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


@pytest.fixture
def undisturbed(tmp_path: Path) -> list[dict[str, Any]]:
    """What the same run computes without a fault."""
    if not version("transformers"):
        pytest.skip("transformers is not installed")
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    subprocess.run(command(folder, STEPS + 1, "none"), check=True, capture_output=True)
    return truth(folder)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    folder = tmp_path / "run"
    folder.mkdir()
    start = command(folder, DIES_AT, "none")
    trainer = Part("trainer", "trainer", tuple(start), re.escape(f"{PROGRAM.name} {folder}"), {})
    run = Run("run", [trainer], {"path": str(folder / "out"), "framework": "trl"})
    box = Box(tmp_path, [run])
    box.write()
    file = box.config / "remediator.yml"
    settings = yaml.safe_load(file.read_text())
    (target,) = settings["targets"]
    target["process"]["start"] = [*start[:-1], "{checkpoint}"]
    file.write_text(yaml.safe_dump(settings))
    box.start("run", "trainer")
    yield box
    box.close()


@pytest.fixture
def stack(box: Box, tmp_path: Path) -> Iterator[Parts]:
    with parts(tmp_path / "stack", box.config) as stack:
        stack.start("exporter", "prometheus", "alertmanager", "remediator")
        yield stack


def test_it_computes_what_an_undisturbed_run_does(
    undisturbed: list[dict[str, Any]], box: Box, stack: Parts
) -> None:
    folder = box.folder / "run"

    def proved() -> float:
        page = fetch(f"{stack.run.url('exporter')}/metrics")[1]
        found = re.search(r"^trainwarden_checkpoint_proved_step{.*} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    stack.wait_until(lambda: proved() == PROVED, PATIENCE)
    (folder / "go").touch()
    stack.wait_until(lambda: "weights" in (truth(folder) or [{}])[-1], 2 * PATIENCE)
    *steps, end = truth(folder)
    assert (folder / "died").exists()
    assert end["resumed_from"] == str(folder / "out" / f"checkpoint-{PROVED}")
    made = [one["step"] for one in steps]
    assert made == [*range(1, DIES_AT + 1), *range(PROVED + 1, STEPS + 1)]
    *expected, expected_end = undisturbed
    assert {one["step"]: one for one in steps} == {one["step"]: one for one in expected}
    assert end["weights"] == expected_end["weights"]
    assert len(events(stack.journal(), "run", "intent")) == 1
