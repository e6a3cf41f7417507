"""Harm 2: the driver counts pids as the host does, and a container has strangers of these pids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.remediator.harms.namespaces import run_apart

import simulated_gpu

COLLIDE = """
import sys
from trainwarden_exporter.gpu.holders import read_pid_numbering
from trainwarden_exporter.processes.procfs import read_processes

processes = read_processes()
# small numbers; the host has each of them as well
assert max(processes) < 100, sorted(processes)
for version in ("470.256.02", "580.65.06"):
    print(version, read_pid_numbering(processes.values(), version))
"""

# A stranger, and a leftover that has the files of a GPU open, where the driver lists the pids of
# both: to an old driver these are pids of the host's, and to a new one a pid alone is no proof.
CLEAN = """
import json, os, pathlib, subprocess, sys
from simulated_gpu import Process, SimulatedBox, gpu, load
from trainwarden_exporter.config import Config
from trainwarden_remediator.actions.gpu_cleanup import GpuCleanupAction
from trainwarden_remediator.config.targets import GpuCleanup

folder, library, version = sys.argv[1:]
load(pathlib.Path(library))
box = SimulatedBox(pathlib.Path(folder), [gpu(0)])
os.environ.update(box.environment)
dev = box.make_device_files()

def start(redirections):
    script = f"exec {redirections}; echo ready; exec sleep 1000"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    child.stdout.readline()
    return child

files = enumerate(("nvidiactl", "nvidia-uvm", "nvidia0"), 3)
opened = " ".join(f"{number}<'{dev}/{name}'" for number, name in files)
children = {"stranger": start(""), "leftover": start(opened)}
names = {child.pid: name for name, child in children.items()}
box.change_driver(driver_version=version)

def hold(*pids):
    listed = [Process(pid=pid, memory=1 << 30) for pid in pids]
    box.change_gpu(0, processes=listed, memory_used=len(pids) << 30)

hold(*names)

run = {"name": "demo", "workers": [{"name": "w", "match": {"command": "never there"}}]}
watched = Config.model_validate({"gpu": {"device_root": str(dev)}, "runs": [run]})
action = GpuCleanupAction(GpuCleanup.model_validate({"min_age": 0}), watched)
unmapped = sum(action._read_gpus().survey.unmapped.values())
# as it is about to be ended, the driver forgets it
done = action.perform("7", lambda *_, **__: hold(children["stranger"].pid))
lives = [name for name, child in children.items() if child.poll() is None]
print(json.dumps([unmapped, [names[one["pid"]] for one in done["ended"]], lives]))
for child in children.values():
    child.kill()
"""


def test_in_a_namespace_of_its_own_no_pid_of_an_old_driver_is_believed() -> None:
    assert run_apart(COLLIDE).splitlines() == ["470.256.02 foreign", "580.65.06 translated"]


@pytest.mark.parametrize(("version", "unknown"), [("470.256.02", 2), ("580.65.06", 1)])
def test_a_stranger_whose_pid_the_driver_lists_is_spared_where_a_leftover_is_ended(
    version: str, unknown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an old driver lists there counts as not known, the leftover's own pid, too."""
    library = simulated_gpu.build(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(Path(simulated_gpu.__file__).parent))
    output = run_apart(CLEAN, str(tmp_path / "box"), str(library), version)
    assert json.loads(output) == [unknown, ["leftover"], ["stranger"]]
