"""What goes on beside the steps of a run."""

from __future__ import annotations

from collections.abc import Iterator

from verdicts.parts import GIB
from verdicts.run import Run
from verdicts.server import Server
from verdicts.shapes import chance

HUM = 5.0
"""Seconds at which it goes on."""
PROBED_EVERY = 300.0


def hum(run: Run) -> Iterator[float]:
    """What goes on beside the steps: memory grows, servers count, watchdogs beat, logs grow."""
    box = run.box
    probe = box.rng.uniform(0, 120)
    while True:
        for worker in box.workers:
            if worker.alive:
                worker.resident = max(GIB, worker.resident + worker.growth * HUM)
                # a rank that waits for another one spins
                worker.cpu += HUM * (0.01 if run.finished else 0.8)
        probe -= HUM
        for disk in box.disks:
            disk.free -= disk.growth * HUM
            if disk.probed and disk.up and probe <= 0:
                saving = box.saves is not None and box.saves.begun is not None
                speed = disk.speed * box.rng.uniform(0.5, 1.0) * (0.3 if saving else 1.0)
                disk.probe = (disk.writes, speed)
        probe = PROBED_EVERY if probe <= 0 else probe
        for server in box.servers:
            _serve(run, server)
        _speak(run)
        _use_gpus(run)
        yield HUM


def _serve(run: Run, server: Server) -> None:
    if server.serves and run.generating and run.asked and not run.starved:
        server.running = max(1.0, server.running or float(run.box.rng.randrange(4, 40)))
        server.tokens += 500 * HUM
    elif server.state != "hung" and server.waiting == 0:
        server.running = 0.0


def _speak(run: Run) -> None:
    """Watchdogs beat, and the other parts of the run write their logs."""
    box = run.box
    for beat in box.heartbeats:
        if beat.alive and (beat.last is None or box.now - beat.last >= 0.5 * beat.interval):
            beat.last = box.now
    for name, log in box.logs.items():
        if log.grows and name != box.known.log and not run.hangs and not run.finished:
            log.written = box.now


def _use_gpus(run: Run) -> None:
    for gpu in run.box.gpus.devices:
        holder = gpu.holder
        if holder is None or not holder.alive:
            gpu.utilization, gpu.used, gpu.held = 0.0, 1 * GIB, 0.0
            continue
        busy = run.generating if holder.role == "inference" else run.busy
        if holder.role == "worker":
            busy = chance(run.box.rng, 0.6)
        works = busy and not run.hangs and not gpu.unused
        gpu.utilization = run.box.rng.uniform(0.5, 1.0) if works else 0.0
        gpu.used = gpu.held = (1 - gpu.leaves) * gpu.total
