"""What happens to healthy runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from verdicts.box import Happening
from verdicts.page import BASE
from verdicts.parts import GIB
from verdicts.run import Run


@dataclass(frozen=True, slots=True)
class Night:
    """A healthy run to which something happens that is no fault."""

    name: str
    happens: Callable[[Run], Happening]
    length: float = 1800.0
    true_alerts: Mapping[str, str] = field(default_factory=dict)
    """Alerts that may fire, because they say what is true: `name`, or `name/severity`."""
    muted_alerts: Mapping[str, str] = field(default_factory=dict)
    """Alerts that may fire as long as another one mutes them, so that they reach nobody."""
    needs: Mapping[str, object] = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()
    prepare: Callable[[Run], None] | None = None
    gap: bool = False
    """Whether there is a time in which no Prometheus runs."""
    young: bool = False
    """Whether the run begins only when it is first looked at."""
    steps_left: int | None = None
    """Where it is to finish while it is looked at."""


def nothing(_: Run) -> Happening:
    yield 0.0


def lost_scrape(run: Run) -> Happening:
    for _ in range(run.box.rng.randrange(1, 6)):
        run.box.lost = 1
        yield run.box.rng.uniform(60, 600)


def two_lost_scrapes(run: Run) -> Happening:
    for _ in range(2):
        run.box.lost = 2
        yield run.box.rng.uniform(60, 600)


def network_gap(run: Run) -> Happening:
    run.box.reachable = False
    yield 120.0
    run.box.reachable = True


def clock_forward(run: Run) -> Happening:
    run.box.clock_sets.append((run.box.now - BASE, run.box.rng.uniform(1, 60)))
    yield 0.0


def clock_back(run: Run) -> Happening:
    run.box.clock_sets.append((run.box.now - BASE, -run.box.rng.uniform(1, 60)))
    yield 0.0


def machine_stands_still(run: Run) -> Happening:
    """A virtual machine that is moved: for its processes no time goes by."""
    run.box.clock_sets.append((run.box.now - BASE, run.box.rng.uniform(15, 50)))
    yield 0.0


def keeps_state(run: Run) -> None:
    """The running exporter gets a state folder."""
    box, knows = run.box, run.box.tracker
    if box.state_folder is not None:
        return
    box.state_folder = Path(mkdtemp(prefix="verdicts-"))
    box.watch_progress()
    box.tracker.take_over_from(knows)


def exporter_restarts(run: Run) -> Happening:
    for _ in range(2):
        run.box.tracker.save()
        run.box.exporter_up = False
        yield run.box.rng.uniform(1, 14)
        run.box.exporter_begins()
        yield run.box.rng.uniform(300, 900)


def prometheus_restarts(run: Run) -> Happening:
    run.box.scraped = False
    yield run.box.rng.uniform(15, 120)
    run.box.scraped = True


def deliberate_restart(run: Run) -> Happening:
    """An operator ends the trainer, and restarts it at once from the newest checkpoint."""
    saves = run.box.saves
    step = saves.complete[-1][0] if saves is not None and saves.complete else 0
    run.end()
    run.trainer.end(143)
    yield run.box.rng.uniform(1, 9)
    run.begin(resumed=step)


def restart_in_an_update(run: Run) -> Happening:
    """The same in the midst of a weight update: its servers stay paused until it has started."""
    while all(server.state != run.box.shape.pause for server in run.box.servers):
        yield 1.0
    yield from deliberate_restart(run)


def deploy(run: Run) -> Happening:
    """All workers are replaced, one start each."""
    box = run.box
    run.end()
    for worker in box.workers:
        worker.end(143)
    for server in box.servers:
        server.state, server.running = "loading", 0.0
    yield box.rng.uniform(1, 8)
    for worker in box.workers:
        if worker is not run.trainer:
            worker.begin(box.now)
    for server in box.servers:
        server.version = None
    run.begin(resumed=run.step)
    yield box.rng.uniform(20, 400)
    for server in box.servers:
        server.state = "ok"


def container_recreated(run: Run) -> Happening:
    """A deploy that replaces the container, and so all that is in it."""
    container = run.box.containers[0]
    container.state = "exited"
    container.exit_code = 143.0
    for pause in deploy(run):
        yield pause
        if container.state == "exited":
            container.state = "running"
            container.starts.append(run.box.now)


def trainer_slow_steps(run: Run) -> Happening:
    """Answers grow longer, so do steps; no step takes as long as three."""
    for _ in range(8):
        run.slow = min(1.9, run.slow * 1.12)
        yield 200.0


def slow_disk_with_saves(run: Run) -> Happening:
    for disk in run.box.disks:
        disk.speed = 180e6
    yield 0.0


def study_ends(run: Run) -> Happening:
    """The trials are done: each worker ends after its last one, while the others go on."""
    for worker in run.box.workers:
        yield run.box.rng.uniform(1, 60)
        while not worker.alive:  # it restarts at this moment, and has no work
            yield 1.0
        worker.end(0)
    run.finished = True


def then_exporter_restarts(run: Run) -> Happening:
    """A run finishes; the servers stay; the exporter is restarted hours later."""
    yield 900.0
    run.box.tracker.save()
    run.box.exporter_up = False
    yield 6.0
    run.box.exporter_begins()


def server_restarts_alone(run: Run) -> Happening:
    """It is back before any notification: its worker is its own supervisor."""
    server = run.box.servers[0]
    if server.worker is not None:
        server.worker.end(1)
        server.worker.begin(run.box.now)
    server.state, server.running = "loading", 0.0
    yield run.box.rng.uniform(20, 240)
    server.state = "ok"


def boxed_in(run: Run) -> Happening:
    """Reads wait: a gigabyte each minute comes and goes on the disk."""
    while True:
        run.box.disks[0].free -= 30 * GIB
        yield 60.0
        run.box.disks[0].free += 30 * GIB
        yield 60.0
