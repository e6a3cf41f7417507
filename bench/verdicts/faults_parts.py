"""Faults of workers, inference servers and containers."""

from __future__ import annotations

from verdicts.box import Happening
from verdicts.faults import Strike, late, until
from verdicts.parts import GIB, Container
from verdicts.run import Run
from verdicts.server import Server
from verdicts.shapes import RUN, chance


def _waits(run: Run) -> bool:
    """Whether its trainer waits for what its servers make."""
    return run.generating and not run.evaluating


def _serves(run: Run) -> bool:
    return _waits(run) and all(server.serves for server in run.box.servers)


def _complains(run: Run) -> Happening:
    """Its client tries again and again."""
    log = run.box.logs[run.box.known.log]
    for _ in range(64):
        log.trouble("connection_refused", run.box.now)
        yield run.box.rng.uniform(1, 8)


def server_dies(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run))
    server = run.box.servers[0]
    server.state, server.running = "down", 0.0
    if server.worker is not None:
        server.worker.end(run.box.rng.choice((137, 139, 1)))
    run.box.spawn(_complains(run), 2.0)
    strike()
    yield 0.0


def nobody_knows_its_process(run: Run) -> None:
    run.box.servers[0].worker = None


def server_loads(run: Run, strike: Strike) -> Happening:
    """Its own supervisor restarts it, and it loads until its trainer has waited for too long."""
    yield from until(run, lambda: _waits(run))
    server = run.box.servers[0]
    assert server.worker is not None  # noqa: S101 - as it needs
    server.worker.end(1)
    server.worker.begin(run.box.now)
    server.state, server.running = "loading", 0.0
    strike()
    yield max(run.box.rng.uniform(150, 450), 60 + late(run))
    server.state = "ok"


def engine_dead(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run))
    run.box.servers[0].state = "dead"
    strike()


def silent(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run))
    run.box.servers[0].state = run.box.rng.choice(("silent", "status"))
    strike()


def server_hangs(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run) and run.box.servers[0].running > 0)
    run.box.servers[0].state = "hung"
    strike()


def starts_for_ever(run: Run, strike: Strike) -> Happening:
    server = run.box.servers[0]
    assert server.worker is not None  # noqa: S101 - as it needs
    yield from until(run, lambda: run.generating)
    server.worker.end(1)
    server.worker.begin(run.box.now)
    server.state, server.running = "loading", 0.0
    yield 600.0
    strike()


def stays_paused(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run))
    run.box.servers[0].state = run.box.rng.choice(("paused", "updating"))
    yield 600.0
    strike()


def loses_its_model(run: Run, strike: Strike) -> Happening:
    run.box.servers[0].models = 0
    strike()
    yield 0.0


def flaps(run: Run, strike: Strike) -> Happening:
    server = run.box.servers[0]
    for turn in range(3):
        yield from until(run, lambda: _serves(run))
        server.state = "down"
        if server.worker is not None:
            server.worker.end(139)
        yield run.box.rng.uniform(25, 60)
        if server.worker is not None:
            server.worker.begin(run.box.now)
        server.state = "loading"
        if turn == 2:  # noqa: PLR2004 - the third time
            strike()
        yield run.box.rng.uniform(15, 60)
        server.state = "ok"
        yield run.box.rng.uniform(30, 90)


def nobody_asks(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: _serves(run))
    run.starved, run.asked = True, False
    run.box.servers[0].running = 0.0
    strike()


def flooded(run: Run, strike: Strike) -> Happening:
    server = run.box.servers[0]
    server.waiting = run.box.rng.uniform(200, 2000)
    strike()
    while True:
        server.waiting += run.box.rng.uniform(1, 4)
        yield 5.0


def cache_full(run: Run, strike: Strike) -> Happening:
    server = run.box.servers[0]
    server.kv = run.box.rng.uniform(0.96, 1.0)
    strike()
    while True:
        server.preemptions += run.box.rng.randrange(1, 5)
        yield 5.0


def second_server(run: Run) -> None:
    run.box.servers.append(Server(RUN, "second", run.box.servers[0].engine, None))


def weights_stay(run: Run, strike: Strike) -> Happening:
    yield from until(run, lambda: run.box.servers[0].version is not None)
    run.box.servers[1].stuck = True
    version = run.box.servers[1].version
    yield from until(run, lambda: run.box.servers[0].version != version)
    strike()


def fails_requests(run: Run, strike: Strike) -> Happening:
    strike()
    while True:
        run.box.servers[0].errors += run.box.rng.randrange(1, 4)
        yield 5.0


def leaks_over(run: Run, strike: Strike) -> Happening:
    worker = run.box.rng.choice(run.box.workers)
    worker.limit = 40 * GIB
    worker.resident = run.box.rng.uniform(34, 39) * GIB
    worker.growth = run.box.rng.uniform(0.02, 0.3) * GIB
    yield from until(run, lambda: worker.resident > (worker.limit or 0.0), most=600)
    strike()


def nears_limit(run: Run, strike: Strike) -> Happening:
    worker = run.box.rng.choice(run.box.workers)
    worker.limit = 40 * GIB
    worker.resident = run.box.rng.uniform(0.92, 0.99) * worker.limit
    worker.growth = 1.0
    strike()
    yield 0.0


def worker_dies(run: Run, strike: Strike) -> Happening:
    worker = run.box.rng.choice(run.box.workers)
    if worker is run.trainer and not run.box.shape.search:
        run.end()
    for server in run.box.servers:
        if server.worker is worker:
            server.worker = None  # another fault covers its server
    worker.end(run.box.rng.choice((1, 137, 134)))
    strike()
    yield 0.0


def leaves(run: Run, absence: str) -> None:
    """Its trainer ends, and the exporter takes that for no failure, because of `absence`."""
    worker = run.trainer
    run.end()
    worker.end(130)
    worker.exit_code, worker.absence = None, absence


def ends_unseen(run: Run, strike: Strike) -> Happening:
    """Nobody could read its exit status."""
    leaves(run, "exit_unknown")
    strike()
    yield 0.0


def is_interrupted(run: Run, strike: Strike) -> Happening:
    """Somebody presses Ctrl-C."""
    leaves(run, "interrupted")
    strike()
    yield 0.0


def is_not_found(run: Run, strike: Strike) -> Happening:
    """Its selector no longer matches, and the run goes on."""
    run.trainer.processes, run.trainer.absence = 0, "progressing"
    strike()
    yield 0.0


def is_suspended(run: Run, strike: Strike) -> Happening:
    run.trainer.stopped, run.hangs = 1, True
    strike()
    yield 0.0


def holds_lines_back(run: Run, strike: Strike) -> Happening:
    run.box.rng.choice(list(run.box.logs.values())).buffered = True
    strike()
    yield 0.0


def loses_its_folder(run: Run, strike: Strike) -> Happening:
    run.box.path_exists = False
    strike()
    yield 0.0


def worker_loops(run: Run, strike: Strike) -> Happening:
    worker, period = run.trainer, run.box.rng.uniform(15, 60)
    for turn in range(1, 12):
        run.end()
        worker.end(1)
        yield 4.0
        run.begin(resumed=run.step)
        if turn == 3:  # noqa: PLR2004 - the third restart at the latest
            strike()
        yield period


def leaks_slowly(run: Run, strike: Strike) -> Happening:
    worker = run.trainer
    worker.limit, worker.resident = 64 * GIB, 40 * GIB
    worker.growth = run.box.rng.uniform(8, 12) * GIB / 3600
    strike()
    yield 0.0


def old_and_growing(run: Run, strike: Strike) -> Happening:
    worker = run.trainer
    worker.age_limit, worker.limit, worker.resident = 3600.0, None, 20 * GIB
    worker.growth = run.box.rng.uniform(3, 8) * GIB / 3600
    strike()
    yield 0.0


def trials_done(run: Run, strike: Strike) -> Happening:
    """It continues beyond its limit: only the remediator restarts it."""
    run.recycles = False
    worker = run.box.rng.choice([one for one in run.box.workers if one.alive])
    worker.trials_limit = run.box.rng.randrange(10, 500)
    worker.trials = worker.trials_limit - run.box.rng.randrange(1, 9)
    yield from until(run, lambda: (worker.trials or 0) >= (worker.trials_limit or 0))
    strike()


def container_loops(run: Run, strike: Strike) -> Happening:
    """As on the night: every 17 s or so, and on some boxes with the exporter in it."""
    box = run.box
    container, period = box.containers[0], box.rng.uniform(12, 25)
    with_exporter = chance(box.rng, 0.5)
    strike()
    for _ in range(20):
        run.end()
        for worker in box.workers:
            worker.end(128)
        container.exit_code = 128.0
        if with_exporter:
            box.exporter_up = False
        yield 2.0
        container.starts.append(box.now)
        if with_exporter:
            box.exporter_begins()
        yield period - 2.0


def container_stops(run: Run, strike: Strike) -> Happening:
    container = run.box.containers[0]
    container.state, container.exit_code = "exited", run.box.rng.choice((1.0, 2.0, 137.0))
    run.box.workers, run.box.logs = [], {}
    run.end()
    run.finished = True
    strike()
    yield 0.0


def only_a_container(run: Run) -> None:
    """A run with only its container monitored."""
    run.end()
    run.hangs = True  # a search begins no trial any more
    run.box.workers.clear()
    run.box.logs.clear()
    run.box.saves = None
    run.box.watch_progress()  # without reports
    for gpu in run.box.gpus.devices:
        gpu.holder = None


def container_oom(run: Run, strike: Strike) -> Happening:
    run.box.containers[0].oom_kills += run.box.rng.randrange(1, 4)
    strike()
    yield 0.0


def container_unhealthy(run: Run, strike: Strike) -> Happening:
    run.box.containers[0].health = "unhealthy"
    strike()
    yield 0.0


def healthy_container(run: Run) -> None:
    run.box.containers = [Container(RUN, "pod", [run.trainer.started - 60], health="healthy")]
