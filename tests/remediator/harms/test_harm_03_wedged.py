"""Harm 3: what is to end waits in the kernel, or the driver keeps the memory of the dead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.harms.deadmount import dead_mount
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery
from tests.waiting import until

import simulated_gpu
from running import fetch
from trainwarden_exporter.processes.procfs import read_process

HANGING = """
import os, sys, time
print("up", flush=True)
if "TRAINWARDEN_ACTION" not in os.environ:
    open(sys.argv[2])
time.sleep(600)
"""

# What holds a GPU ends, and the driver goes on saying of its memory that it is in use.
KEEPS = """
import json, os, pathlib, subprocess, sys
from simulated_gpu import Process, SimulatedBox, gpu, load
from trainwarden_exporter.config import Config
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.config.targets import GpuCleanup

load(pathlib.Path(sys.argv[2]))
box = SimulatedBox(pathlib.Path(sys.argv[1]), [gpu(0)])
os.environ.update(box.environment)
dev = box.make_device_files()
leftover = subprocess.Popen(["sleep", "1000"], stdin=open(dev / "nvidia0"))
listed = [Process(pid=leftover.pid, memory=1 << 30)]
box.change_gpu(0, processes=listed, memory_used=1 << 30)
run = {"name": "demo", "workers": [{"name": "w", "match": {"command": "never there"}}]}
watched = Config.model_validate({"gpu": {"device_root": str(dev)}, "runs": [run]})
cleanup = GpuCleanup.model_validate({"min_age": 0, "gpu_memory_release_timeout": 1})
try:
    print(GpuCleanupAction(cleanup, watched).perform("7", lambda *_, **__: None))
except Exception as error:
    print(leftover.wait(), error)
"""


@pytest.fixture
def program(box: Box) -> Iterator[Program]:
    program = Program(box)
    yield program
    program.close()


def test_a_process_stuck_in_the_kernel_is_given_up_and_no_replacement_is_started(
    program: Program, tmp_path: Path
) -> None:
    box, find_position = program.box, tmp_path / "mount"
    find_position.mkdir()
    box.command = [sys.executable, "-c", HANGING, box.mark, str(find_position / "data")]
    process = {"start": box.command, "grace": "1s"}
    target = {"run": "demo", "worker": "rollout-0", "cooldown": 0, "attempts": 2}
    box.configure(targets=[{**target, "process": process}])
    with dead_mount(find_position):
        worker = box.start_worker()
        program.start()
        assert program.ask("/webhook", delivery(box.alert())) == 200

        def given_up() -> bool:
            reasons = [one.facts.get("reason") for one in box.events() if one.kind == "decision"]
            return "attempts_exhausted" in reasons

        until(given_up, 120)
        waiting = read_process(worker.pid)
        assert waiting is not None
        assert waiting.state == "D"
        errors = [one.facts.get("error") for one in box.events() if one.kind == "result"]
        assert errors == [f"[{worker.pid}] survived SIGKILL: blocked in the kernel"] * 2
        assert [identity.pid for identity in box.workers()] == [worker.pid]
        # it does not wait for the process, and reports that an operator is needed
        assert program.ask("/-/healthy") == 200
        _, page = fetch(f"http://127.0.0.1:{program.port}/metrics")
        assert (
            'trainwarden_remediator_incident_abandoned{run="demo",worker="rollout-0"} 1.0' in page
        )
    assert worker.wait(60) < 0
    assert box.workers() == []


def test_a_driver_that_keeps_the_memory_of_the_dead_is_reported(tmp_path: Path) -> None:
    library = simulated_gpu.build(tmp_path / "library")
    folder = Path(simulated_gpu.__file__).parent
    output = subprocess.run(
        [sys.executable, "-c", KEEPS, tmp_path / "box", library],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (
        output
        == "-15 the processes have ended, but their memory is not released: 1.0 GiB on GPU 0\n"
    )
