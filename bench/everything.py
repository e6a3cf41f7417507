"""A box on which everything is switched on, and an exporter that watches it."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpus import configuration, simulated
from inference_probes import serve
from programs import Program, exporter, free_port, running
from scrapes import crowd
from simulated_gpu import SimulatedBox

SERVERS = 10


@dataclass(frozen=True, slots=True)
class Everything:
    """The exporter, and what it watches beside its workers: eight GPUs, a disk and so on."""

    program: Program
    folder: Path
    box: SimulatedBox
    disk: Path
    log: Path
    checkpoints: Path
    server: int
    """The pid of the process that answers as so many inference servers."""


@contextmanager
def everything(workers: int) -> Iterator[Everything]:
    """Until the block ends, with so many workers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(crowd(workers, workers, folder))
        box = simulated(folder, each=workers // 8)
        disk, run = folder / "disk", folder / "run"
        log, checkpoints, beat = run / "train.log", run / "checkpoints", folder / "beat"
        for place in (disk, run, checkpoints, checkpoints / "step_1"):
            place.mkdir()
        (checkpoints / "step_1" / "model.safetensors").touch()
        log.write_text("step 1\n")
        beat.touch()

        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        server = context.Process(target=serve, args=[there], daemon=True)
        server.start()
        stack.callback(server.join)
        stack.callback(server.kill)
        url = f"http://127.0.0.1:{here.recv()}"

        content = configuration(box, workers)
        (one,) = content["runs"]
        saved = {
            "name": "all",
            "folder": checkpoints.name,
            "entry": r"step_(?P<step>\d+)",
            "complete": {"settled": ["*"]},
        }
        for worker in one["workers"]:
            worker |= {"memory_limit": "64GiB", "age_limit": "30d"}
        one["path"] = str(run)
        one["logs"] = [{"name": "train", "files": [log.name]}]
        one["checkpoints"] = [saved]
        one["inference"] = [
            {"name": f"s{number}", "engine": "vllm", "url": url} for number in range(SERVERS)
        ]
        content["state_folder"] = str(folder / "state")
        content["disks"] = [{"path": str(disk)}]
        content["heartbeats"] = [{"name": "beat", "file": str(beat), "interval": "1h"}]
        config, port = folder / "exporter.yml", free_port()
        config.write_text(yaml.safe_dump(content))
        program = stack.enter_context(
            running(exporter(config, port), port, environment=box.environment)
        )
        yield Everything(program, folder, box, disk, log, checkpoints, server.pid or 0)
