"""A real search in a database whose workers all hang is restarted by the whole stack.

The finished trials are still there, though the exporter reads only the logs of the workers.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.real.cases import Case
from tests.real.watching import PATIENCE, PROGRAMS, PYTHON, record_seen, version

from box import Box, Part, Run, events
from parts import Parts, parts

PROGRAM = PROGRAMS / "optuna_search.py"
CASE = Case("optuna_search", "optuna", "optuna", counts="trial")
TRIALS, SECONDS, WORKERS = 400, 1.0, 3
HEALED_SECONDS = 4 * PATIENCE
"""The stacks must show for two minutes that all workers are stuck."""

DATABASE = "sqlite:///{folder}/study.db"


def of_kind(folder: Path, kind: str) -> list[dict[str, float]]:
    """The events that all workers have recorded."""
    path = folder / "truth.jsonl"
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [event for line in lines if (event := json.loads(line))["kind"] == kind]


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    if not version("optuna"):
        pytest.skip("optuna is not installed")
    workers = []
    for number in range(WORKERS):
        name = f"worker-{number}"
        command = ["env", f"TRUTH_FOLDER={tmp_path}", f"PYTHONPATH={PROGRAMS}", PYTHON, PROGRAM]
        command += [str(TRIALS), str(SECONDS), DATABASE.format(folder=tmp_path), name]
        match = f"{PROGRAM.name} .*{re.escape(str(tmp_path))}/study.db {name}$"
        workers.append(Part(name, "trainer", tuple(map(str, command)), match, {}))
    box = Box(tmp_path, [Run("search", workers, {"path": str(tmp_path), "framework": "optuna"})])
    box.write()
    _restart_together(box, workers)
    box.start("search", "worker-0")
    first = time.monotonic()
    while not of_kind(tmp_path, "step") and time.monotonic() - first < PATIENCE:
        time.sleep(0.2)  # it has made the tables: two workers cannot make them at once
    for part in workers[1:]:
        box.start("search", part.name)
    yield box
    box.close()


def _restart_together(box: Box, workers: Sequence[Part]) -> None:
    """Makes all workers one target: if all hang, the restart of one would leave the others."""
    file = box.config / "remediator.yml"
    settings = yaml.safe_load(file.read_text())
    first, *others = settings["targets"]
    first["additional_workers"] = [target["worker"] for target in others]
    text = " ".join(f"{shlex.join(part.start)} &" for part in workers)
    first["process"]["start"] = ["sh", "-c", f"{text} wait"]
    settings["targets"] = [first]
    file.write_text(yaml.safe_dump(settings))


@pytest.fixture
def stack(box: Box, tmp_path: Path) -> Iterator[Parts]:
    with parts(tmp_path / "stack", box.config) as stack:
        stack.start("exporter", "prometheus", "alertmanager", "remediator")
        yield stack


def test_a_search_in_a_database_whose_workers_all_hang_is_restarted(box: Box, stack: Parts) -> None:
    folder = box.folder

    def workers(kind: str) -> set[float]:
        return {event["pid"] for event in of_kind(folder, kind)}

    stack.wait_until(lambda: len(workers("step")) == WORKERS, PATIENCE)
    stack.wait_until(lambda: len(of_kind(folder, "step")) >= 12 * WORKERS, PATIENCE)
    order = folder / "do.starve"
    order.touch()
    stack.wait_until(lambda: len(workers("hang")) == WORKERS, PATIENCE)
    order.unlink()
    hung = workers("hang")
    before = len(of_kind(folder, "step"))
    began = time.monotonic()
    assert box.unchanged("search")

    stack.wait_until(lambda: len(workers("step") - hung) == WORKERS, HEALED_SECONDS)
    healed = time.monotonic() - began
    stack.wait_until(lambda: len(of_kind(folder, "step")) > before + 10, PATIENCE)

    assert healed > 60  # silence alone is no reason
    intents = events(stack.journal(), "search", "intent")
    assert len(intents) == 1
    with closing(sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True)) as database:
        (studies,) = database.execute("SELECT COUNT(*) FROM studies").fetchone()
        query = "SELECT COUNT(*) FROM trials WHERE state = 'COMPLETE'"
        (complete,) = database.execute(query).fetchone()
    assert studies == 1
    assert complete >= before + 10 - WORKERS  # none of the finished trials is lost
    record_seen(CASE, "restart of hung workers with a study in SQLite")
    print(f"{healed:.0f} s after the hang, {len(intents)} restart, load {os.getloadavg()}")  # noqa: T201 - for -s
