"""Faults of the host: memory, disks, GPUs."""

from __future__ import annotations

from verdicts.box import Happening
from verdicts.faults import Strike, at, until
from verdicts.gpus import HARDWARE_REASONS, Gpu
from verdicts.parts import Disk, Heartbeat
from verdicts.run import Run
from verdicts.shapes import RUN, chance

ENOUGH = 960.0
"""Seconds for which a box is seen before it reboots: what was 15 min before is known then."""


def _gpu(run: Run) -> Gpu:
    return run.box.rng.choice(run.box.gpus.devices)


def memory_floor(run: Run, strike: Strike) -> Happening:
    host = run.box.host
    held = sum(worker.resident for worker in run.box.workers)
    host.total = held + host.other + 0.8 * host.floor
    strike()
    while True:
        held = sum(worker.resident for worker in run.box.workers)
        host.total = held + host.other + run.box.rng.uniform(0.5, 0.9) * host.floor
        yield 2.0


def oom_kill(run: Run, strike: Strike) -> Happening:
    run.box.host.oom_kills += run.box.rng.randrange(1, 4)
    strike()
    yield 0.0


def reboot(run: Run, strike: Strike) -> Happening:
    """Everything restarts automatically except the workers, as after the nights."""
    yield max(0.0, ENOUGH - at(run))
    yield from boot(run)
    strike()


def reboots_again(run: Run, strike: Strike) -> Happening:
    """Each time it comes back, for some minutes."""
    for turn in range(1, 5):
        yield from boot(run)
        if turn == 3:  # noqa: PLR2004 - the third time within three hours
            strike()
        yield run.box.rng.uniform(800, 1500)


def boot(run: Run) -> Happening:
    """The host goes down with everything on it; only the exporter starts again."""
    box = run.box
    run.end()
    for worker in box.workers:
        worker.end(137)
    box.box_up, box.exporter_up, box.scraped = False, False, False
    yield box.rng.uniform(40, 180)
    box.host.boot, box.booted = box.now, box.world
    yield 20.0
    box.box_up, box.scraped = True, True
    for server in box.servers:
        server.state = "down"
    box.exporter_begins()


def heartbeat_stops(run: Run, strike: Strike) -> Happening:
    beat = run.box.heartbeats[0]
    yield from until(run, lambda: beat.last is not None and run.box.now - beat.last < 5)  # noqa: PLR2004 - it beat just now
    beat.alive = False
    yield 2 * beat.interval
    strike()


def watchdog(run: Run) -> None:
    interval, file = run.box.rng.choice((20.0, 60.0, 300.0)), chance(run.box.rng, 0.5)
    beat = Heartbeat(RUN, "watchdog", interval, run.trainer.started, file=file)
    beat.last = run.box.now
    run.box.heartbeats = [beat]


def disk_full(run: Run, strike: Strike) -> Happening:
    saves, disk = run.box.saves, run.box.disks[0]
    assert saves is not None  # noqa: S101 - as it needs
    yield from until(run, lambda: bool(saves.complete) and saves.begun is None, most=3600)
    run.saves_nothing, disk.free = True, run.box.rng.uniform(0.0, 0.9) * saves.size
    strike()


def disk_nearly_full(run: Run, strike: Strike) -> Happening:
    saves, disk = run.box.saves, run.box.disks[0]
    assert saves is not None  # noqa: S101 - as it needs
    yield from until(run, lambda: bool(saves.complete) and saves.begun is None, most=3600)
    run.saves_nothing, disk.free = True, run.box.rng.uniform(1.1, 2.9) * saves.size
    strike()


def few_inodes(run: Run, strike: Strike) -> Happening:
    disk = run.box.disks[0]
    disk.free_inodes = run.box.rng.uniform(0.012, 0.048) * disk.inodes
    strike()
    yield 0.0


def no_inodes(run: Run, strike: Strike) -> Happening:
    disk = run.box.disks[0]
    disk.free_inodes = run.box.rng.uniform(0.0, 0.009) * disk.inodes
    strike()
    yield 0.0


def disk_slow(run: Run, strike: Strike) -> Happening:
    run.box.disks[0].speed = run.box.rng.uniform(5e6, 95e6)
    strike()
    yield 0.0


def disk_read_only(run: Run, strike: Strike) -> Happening:
    run.saves_nothing, run.box.disks[0].read_only = True, True
    strike()
    yield 0.0


def probe_fails(run: Run, strike: Strike) -> Happening:
    run.box.disks[0].writes = False
    strike()
    yield 0.0


def copies_end(run: Run, strike: Strike) -> Happening:
    """What copies the checkpoints has ended; the copies are made once a day."""
    saves = run.box.saves
    assert saves is not None  # noqa: S101 - as it needs
    yield from until(run, lambda: bool(saves.complete), most=3600)
    saves.uncopied = run.box.now - 26 * 3600.0
    strike()


def probed(run: Run) -> None:
    run.box.disks = [Disk(probed=True)]


def driver_fails(run: Run, strike: Strike) -> Happening:
    run.box.gpus.driver = run.box.rng.choice(("failed", "no_devices", "absent"))
    strike()
    yield 0.0


def gpu_lost(run: Run, strike: Strike) -> Happening:
    gpu = _gpu(run)
    if chance(run.box.rng, 0.5) and len(run.box.gpus.devices) > 1:
        gpu.gone = True
    else:
        gpu.up = False
    strike()
    yield 0.0


def gpu_held(run: Run, strike: Strike) -> Happening:
    _gpu(run).orphans = run.box.rng.randrange(1, 4)
    strike()
    yield 0.0


def gpu_in_use(run: Run, strike: Strike) -> Happening:
    """Somebody works with it, in a notebook."""
    _gpu(run).in_use = run.box.rng.randrange(1, 3)
    strike()
    yield 0.0


def gpu_exclusive(run: Run, strike: Strike) -> Happening:
    _gpu(run).mode = run.box.rng.choice(("exclusive_process", "prohibited"))
    strike()
    yield 0.0


def xid_fatal(run: Run, strike: Strike) -> Happening:
    _gpu(run).xids[run.box.rng.choice(("79", "119", "48")), "fatal"] = run.box.now
    strike()
    yield 0.0


def xid_warning(run: Run, strike: Strike) -> Happening:
    severity = run.box.rng.choice(("warning", "unknown"))
    _gpu(run).xids["63" if severity == "warning" else "999", severity] = run.box.now
    strike()
    yield 0.0


def ecc(run: Run, strike: Strike) -> Happening:
    _gpu(run).uncorrected += run.box.rng.randrange(1, 100)
    strike()
    yield 0.0


def remap_fails(run: Run, strike: Strike) -> Happening:
    _gpu(run).remap_failed = True
    strike()
    yield 0.0


def remap_pending(run: Run, strike: Strike) -> Happening:
    _gpu(run).remap_pending = True
    strike()
    yield 0.0


def throttled(run: Run, strike: Strike) -> Happening:
    gpu = next(one for one in run.box.gpus.devices if one.holder is run.trainer)
    gpu.throttled.add(run.box.rng.choice(HARDWARE_REASONS))
    strike()
    yield 0.0


def gpu_straggles(run: Run, strike: Strike) -> Happening:
    """A power limit that somebody set: neither hot nor throttled by its hardware."""
    gpu = next(one for one in run.box.gpus.devices if one.holder is run.trainer)
    gpu.speed = run.box.rng.uniform(0.4, 0.7)
    strike()
    yield 0.0


def gpu_link_slow(run: Run, strike: Strike) -> Happening:
    """The link was negotiated again, with fewer lanes."""
    gpu = next(one for one in run.box.gpus.devices if one.holder is run.trainer)
    gpu.lanes = run.box.rng.choice((4, 8))
    strike()
    yield 0.0


def gpu_full(run: Run, strike: Strike) -> Happening:
    _gpu(run).leaves = run.box.rng.uniform(0.002, 0.027)
    strike()
    yield 0.0


def gpu_idle(run: Run, strike: Strike) -> Happening:
    """Steps go on, but the work is done elsewhere: a second GPU is held for nothing."""
    gpu = next(one for one in run.box.gpus.devices if one.holder is run.trainer)
    gpu.unused = True
    strike()
    yield 0.0
