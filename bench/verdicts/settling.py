"""Sets up a box and a run on it that has been going for a while."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from verdicts.box import Box
from verdicts.gpus import Gpu, Gpus
from verdicts.humming import hum
from verdicts.parts import GIB, Container, Heartbeat, Log, Worker
from verdicts.run import Run
from verdicts.saves import Saves
from verdicts.server import Server
from verdicts.shapes import RUN, Shape, chance, telling


def settle(
    name: str,
    rng: random.Random,
    shape: Shape,
    *,
    age: float,
    total: int,
    folder: Path | None = None,
) -> Run:
    """A box on which a run of `shape` has been going for `age` seconds, never scraped before.

    `folder` is the state folder of its exporter.
    """
    known = telling(shape, total_steps=total)
    box = Box(name, rng, shape, known)
    box.world, box.state_folder = -age, folder
    started = box.now
    _people(box, started)
    box.watch_progress()
    run = Run(box, total, whole_log=folder is not None)
    if shape.saves and known.checkpoint:
        every = 1.2 * shape.save_every + 2 * shape.step if shape.interval_configured else None
        box.saves = Saves(RUN, known.checkpoint, every)
        box.saves.recovery = True if chance(rng, 0.5) else None
    box.spawn(hum(run))
    if not shape.trains:
        box.spawn(serve_others(run))
    elif shape.search:
        for worker in box.workers:
            box.spawn(search(run, worker))
    else:
        run.begin(compile_seconds=min(shape.compile, 0.3 * age))
    while box.world < 0:
        box.look()
        box.advance(min(0.0, box.world + 30.0))
    return run


def _people(box: Box, started: float) -> None:
    """Workers, servers, GPUs and all that stands beside them."""
    shape, rng = box.shape, box.rng
    limit = None if shape.worker_limit is None else shape.worker_limit * GIB
    for at, (name, role) in enumerate(_roles(shape)):
        worker = Worker(RUN, name, role, started, limit=limit, age_limit=shape.age_limit)
        worker.resident = rng.uniform(3, 25) * GIB
        worker.finishes = role != "inference"
        if shape.recycled_after is not None:
            worker.trials, worker.trials_limit = 0, round(shape.recycled_after / shape.step)
        box.workers.append(worker)
        if role == "inference":
            engine = "sglang" if shape.framework in ("areal", "slime") else "vllm"
            server = Server(RUN, f"server-{at}", engine, worker)
            box.servers.append(server)
    devices = [Gpu(str(index)) for index in range(shape.gpus)]
    holders = [one for one in box.workers if one.role in ("trainer", "worker", "inference")]
    for at, gpu in enumerate(devices):
        gpu.holder = holders[at % len(holders)]
    box.gpus = Gpus(devices, expected=len(devices) if chance(rng, 0.5) else None)
    if shape.container:
        box.containers.append(Container(RUN, "pod", [started - 60]))
        box.containers[0].health = rng.choice((None, "healthy"))
    if shape.heartbeat:
        interval = rng.choice((30.0, 60.0, 300.0))
        box.heartbeats.append(Heartbeat(RUN, "watchdog", interval, started))
    writers = {worker.role: worker.name for worker in box.workers}
    for name, role in box.known.logs if shape.logged else ():
        if role not in writers and role != "trainer":
            continue
        log = box.logs[name] = Log(RUN, name, role, writers.get(role, ""), started)
        if name == box.known.log:
            log.silence_limit = shape.silence_limit
            log.finite = {"loss": True, "grad_norm": True} if chance(rng, 0.7) else {}


def _roles(shape: Shape) -> Iterator[tuple[str, str]]:
    if shape.search:
        yield from (("worker-0", "worker"), ("worker-1", "worker"))
        return
    if shape.trains:
        yield "trainer-0", "trainer"
    if shape.producer:
        yield "orchestrator-1", "orchestrator"
    if shape.inference:
        yield f"inference-{1 + shape.producer}", "inference"


def serve_others(run: Run) -> Iterator[float]:
    """Requests come for a while, and then for a while none do."""
    while True:
        run.generating = not run.generating
        yield run.box.rng.uniform(60, 1800)


def search(run: Run, worker: Worker) -> Iterator[float]:
    """A worker that takes one trial after the other, each of about a step's length, and logs it.

    If its trials are counted, it ends at the limit, and its launcher restarts it.
    """
    box = run.box
    failed = next((line for line in box.known.lines() if line.name == "trial_failed"), None)
    while not run.finished:
        yield box.shape.step * box.rng.uniform(0.2, 1.8)
        if run.hangs or not worker.alive:
            continue
        worker.resident = box.rng.uniform(1, 3) * GIB if worker.growth == 0 else worker.resident
        log = box.logs.get(box.known.log)
        if log is not None and chance(box.rng, 0.02):
            log.trouble("trial_failed", box.now)
            box.tell(failed)
        else:
            box.tell(box.known.advancing_line())
        run.tried = True
        if worker.trials is None:
            continue
        worker.trials += 1
        if (
            run.recycles
            and worker.trials_limit is not None
            and worker.trials >= worker.trials_limit
        ):
            worker.end(0)
            yield box.rng.uniform(1, 8)
            worker.begin(box.now)
