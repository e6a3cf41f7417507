"""Harm 17: it kills while a checkpoint is written. A trainer that saves on SIGTERM.

With the real exporter, which sees the checkpoint grow, and the real Alertmanager.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from box import Box, Part, Run, events
from parts import Parts, parts
from running import alive, fetch
from stack import Binaries

LONGEST_SECONDS = 400
GRACE_SECONDS, LARGER_WORKER_WAIT_SECONDS = 1, 8
MIB = 1 << 20

# It has a checkpoint of step 10. On SIGTERM it saves step 11 piece by piece, and syncs each
# piece to the disk, until it may finish. After a restart it resumes from the newest whole one.
TRAINER = """
import itertools, json, os, pathlib, signal, sys, time

folder = pathlib.Path(sys.argv[1])
fresh = "TRAINWARDEN_ACTION" in os.environ

def save(step, done):
    entry = folder / f"step_{step}"
    entry.mkdir(parents=True)
    for piece in itertools.count():
        with open(entry / f"{piece}.json", "w") as file:
            json.dump([step] * 1000, file)
            file.flush()
            os.fsync(file.fileno())
        if done():
            break
        time.sleep(0.2)
    (entry / "COMPLETE").touch()

def end(*_):
    save(11, (folder / "finish").exists)
    sys.exit(0)

if fresh:
    newest = max(folder.glob("step_*/COMPLETE"), key=lambda file: file.parent.name).parent
    loaded = {value for file in newest.glob("*.json") for value in json.loads(file.read_text())}
    (folder / "resumed").write_text(f"{newest.name} {loaded}")
else:
    save(10, lambda: True)
    held = bytearray(b"1") * (100 << 20)
    signal.signal(signal.SIGTERM, end)
while True:
    time.sleep(1)
"""


def a_run(folder: Path, name: str) -> Run:
    find_position = folder / name
    command = (sys.executable, "-S", "-c", TRAINER, find_position)
    match = rf" {re.escape(str(find_position))}$"
    trainer = Part("trainer", "trainer", command, match, {"memory_limit": 60 * MIB})
    entry = {"folder": name, "entry": r"step_(?P<step>\d+)", "complete": {"marker": ["COMPLETE"]}}
    watched = {"path": str(folder), "checkpoints": [{"name": "default", **entry}]}
    return Run(name, [trainer], watched)


RUNS = ("finishes", "hangs")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path, [a_run(tmp_path, name) for name in RUNS])
    box.write()
    file = box.config / "remediator.yml"
    settings = yaml.safe_load(file.read_text())
    for target in settings["targets"]:
        target["process"]["grace"] = GRACE_SECONDS
        target["max_save_delay"] = LARGER_WORKER_WAIT_SECONDS if target["run"] == "hangs" else 600
    file.write_text(yaml.safe_dump(settings))
    for name in RUNS:
        box.start(name, "trainer")
    yield box
    box.close()


@pytest.fixture
def stack(box: Box, tmp_path: Path) -> Iterator[Parts]:
    with parts(tmp_path / "stack", box.config) as stack:
        stack.start("exporter", "alertmanager", "remediator")
        yield stack


def test_what_saves_is_killed_only_when_that_takes_too_long_and_the_newest_whole_one_loads(
    box: Box, stack: Parts, binaries: Binaries, tmp_path: Path
) -> None:
    def shows(metric: str, least: float) -> bool:
        page = fetch(f"{stack.run.url('exporter')}/metrics")[1]
        found = re.findall(rf"^trainwarden_{metric}{{.*}} (\S+)$", page, re.MULTILINE)
        return len(found) == len(RUNS) and all(float(one) >= least for one in found)

    def reported(kind: str, runs: Sequence[str] = RUNS) -> bool:
        return all(events(stack.journal(), name, kind) for name in runs)

    stack.wait_until(lambda: shows("checkpoint_step", 10), LONGEST_SECONDS)
    stack.wait_until(lambda: shows("worker_memory_bytes", 60 * MIB), LONGEST_SECONDS)
    for name in RUNS:
        labels = {"run": name, "worker": "trainer", "remediation": "restart_leaking_worker"}
        given = [f"{label}={text}" for label, text in labels.items()]
        where = f"--alertmanager.url={stack.run.url('alertmanager')}"
        command = ("alert", "add", where, "TrainingWorkerMemoryOverLimit", *given)
        subprocess.run([binaries.amtool, *command], check=True)

    # the grace is over long before the exporter looks at checkpoints again
    stack.wait_until(lambda: reported("kill_deferred"), LONGEST_SECONDS)
    assert alive(box.started["finishes", "trainer"])
    (tmp_path / "finishes" / "finish").touch()
    stack.wait_until(lambda: reported("result"), LONGEST_SECONDS)
    killed = {name: events(stack.journal(), name, "result")[0]["facts"]["killed"] for name in RUNS}
    assert killed == {"finishes": [], "hangs": [box.started["hangs", "trainer"].pid]}

    def resumed(name: str) -> str:
        file = tmp_path / name / "resumed"
        return file.read_text() if file.exists() else ""

    stack.wait_until(lambda: all(map(resumed, RUNS)), LONGEST_SECONDS)
    assert (resumed("finishes"), resumed("hangs")) == ("step_11 {11}", "step_10 {10}")
