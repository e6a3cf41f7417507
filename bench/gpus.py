"""Measures the cost of observing eight GPUs with eight processes each, against nvitop-exporter.

    python bench/gpus.py

The GPUs are simulated (examples/simulated-gpu): both programs ask the same library of the same
state, which answers without a driver behind it. So this is the cost of asking and of telling.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from peers import python_peer
from programs import COST_COLUMNS, cost_cells, exporter, free_port, running
from results import Result, milliseconds, times
from scrapes import OLD_SECONDS, crowd

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples/simulated-gpu"))

from simulated_gpu import GIB, Process, SimulatedBox, build, gpu
from trainwarden_exporter.processes.procfs import read_command_line, read_processes

GPUS = 8
EACH = 8
SCRAPES = 60


def simulated(folder: Path, gpus: int = GPUS, each: int = EACH) -> SimulatedBox:
    """A host of GPUs with workers of a crowd on each."""
    workers = [
        pid
        for pid in sorted(read_processes())
        if (read_command_line(pid) or ("",))[-1].startswith("worker-")
    ]
    boxes = [
        gpu(
            number,
            processes=[
                Process(pid=pid, memory=GIB, sm=10)
                for pid in workers[number * each : (number + 1) * each]
            ],
        )
        for number in range(gpus)
    ]
    box = SimulatedBox(folder / "gpus", boxes, library=build(folder))
    box.make_device_files()
    return box


def configuration(box: SimulatedBox, workers: int) -> dict[str, Any]:
    """The exporter's configuration for a crowd that holds simulated GPUs."""
    names = [f"worker-{number}" for number in range(workers)]
    found = [{"name": name, "match": {"command": rf" {name}$"}} for name in names]
    return {
        "gpu": {"device_root": str(box.state_file.parent / "dev")},
        "runs": [{"name": "bench", "workers": found}],
    }


def bench(scrapes: int = SCRAPES) -> Result:
    """Measure both."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(GPUS * EACH, GPUS * EACH, folder))
        box = simulated(folder)
        config = folder / "exporter.yml"
        config.write_text(yaml.safe_dump(configuration(box, GPUS * EACH)))
        ports = [free_port(), free_port()]
        theirs, version = python_peer("nvitop-exporter")
        command = [*theirs, "--bind-address", "127.0.0.1", "--port", str(ports[1])]
        programs = {
            "trainwarden": stack.enter_context(
                running(exporter(config, ports[0]), ports[0], environment=box.environment)
            ),
            f"nvitop-exporter {version}": stack.enter_context(
                running(command, ports[1], environment=box.environment)
            ),
        }
        time.sleep(OLD_SECONDS)
        # It polls once a second, with or without scrapes.
        before = {name: (one.cpu(), time.monotonic()) for name, one in programs.items()}
        time.sleep(10)
        idle = {
            name: (one.cpu() - before[name][0]) / (time.monotonic() - before[name][1])
            for name, one in programs.items()
        }
        costs = {name: one.measure(scrapes, seconds=15) for name, one in programs.items()}
    ours = costs["trainwarden"]
    return Result(
        "GPUs",
        f"{GPUS} simulated GPUs with {EACH} processes each, {GPUS * EACH} workers. CPU time of one "
        "scrape, and each second while nobody asks; beside ours: at a scrape each 5 s, all in all.",
        ("program", *COST_COLUMNS, "CPU a second, unasked", "beside ours"),
        tuple(
            (
                name,
                *cost_cells(cost),
                milliseconds(idle[name]),
                times(cost.cpu + 5 * idle[name], ours.cpu + 5 * idle["trainwarden"]),
            )
            for name, cost in costs.items()
        ),
    )


if __name__ == "__main__":
    print(bench().text())
