"""What happens to healthy runs, and the few alerts that are then right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from verdicts.box import Happening
from verdicts.healthy_use import (
    LONG_EVALUATION,
    SILENT,
    a_notebook_takes_a_gpu,
    ctrl_c,
    memory_breathes,
)
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


HALF = {
    "TrainingCheckpointIncomplete": "a save that the restart broke off stays half-written",
    "TrainingWaitingForServer": "its trainer waits until the servers have loaded",
}
UNSEEN = {"TrainingExporterDown": "nothing came from it for two minutes"}
UNSEEN["TrainingRemediatorDown"] = "nor from this"
FIRST = {"evaluation": 20.0}
"""A first long unreported evaluation rightly causes a warning; rules/tests assert that."""
SERVED = {"inference": True}
STEADY = ("areal", "prime_rl", "verl", "openrlhf", "slime", "nemo_rl", "torchtitan", "skyrl")

NIGHTS: tuple[Night, ...] = (
    *(Night(f"goes on ({number})", nothing) for number in range(1, 5)),
    Night("begins", nothing, young=True, needs=FIRST),
    Night("begins, and compiles for long", nothing, young=True, needs={**FIRST, "compile": 1300.0}),
    Night("finishes", nothing, steps_left=60, needs={"step": 15.0}),
    Night(
        "finishes, the exporter restarts",
        then_exporter_restarts,
        steps_left=20,
        needs={"step": 8.0},
        prepare=keeps_state,
        length=3600,
    ),
    Night(
        "finishes and its servers sleep",
        nothing,
        steps_left=40,
        needs={**SERVED, "sleeps": True, "step": 12.0},
        frameworks=("verl", "nemo_rl", "skyrl"),
        length=3600,
    ),
    Night("evaluates for long", nothing, needs={"evaluation": 500.0, "evaluate_every": 900.0}),
    Night(
        "begins, and soon evaluates for 40 minutes without a line",
        nothing,
        young=True,
        needs={
            "step": 12.0,
            "update": 2.0,
            "compile": 60.0,
            "inference": False,
            "saves": False,
            "evaluation": 2400.0,
            "evaluate_every": 7200.0,
            "silence_limit": None,
        },
        frameworks=("verl", "torchtitan", "areal"),
        true_alerts={"TrainingStepStalled/warning": "its first evaluation, which nothing reports"},
        length=4200,
    ),
    Night("saves for long", nothing, needs={"saves": True, "save": 400.0, "save_every": 900.0}),
    Night(
        "gets weights for long",
        nothing,
        needs={"update": 60.0, "step": 60.0},
        frameworks=("areal", "prime_rl", "slime", "nemo_rl", "skyrl"),
    ),
    Night("loses a scrape now and then", lost_scrape),
    Night("loses two scrapes in a row", two_lost_scrapes),
    Night("is out of reach for two minutes", network_gap, true_alerts=UNSEEN),
    Night("its clock is set forward", clock_forward, gap=True, needs={"step": 45.0}),
    Night("its clock is set back", clock_back),
    Night("its machine stands still", machine_stands_still, gap=True, needs={"step": 45.0}),
    Night("the exporter restarts twice", exporter_restarts, prepare=keeps_state),
    Night("Prometheus restarts", prometheus_restarts, gap=True),
    Night(
        "is restarted by an operator", deliberate_restart, true_alerts=HALF, needs={"search": False}
    ),
    Night(
        "is restarted in a weight update, and compiles for long",
        restart_in_an_update,
        true_alerts=HALF,
        needs={**SERVED, "sleeps": False, "compile": 1300.0, "step": 20.0, "update": 8.0},
        frameworks=STEADY[:6],
        length=3000,
    ),
    Night("is deployed again", deploy, true_alerts=HALF, needs={"search": False}),
    Night(
        "its container is replaced",
        container_recreated,
        true_alerts=HALF,
        needs={"container": True, "search": False},
    ),
    Night("takes longer and longer steps", trainer_slow_steps, frameworks=STEADY),
    Night("saves to a disk that is not fast", slow_disk_with_saves, needs={"probed": True}),
    Night("its memory comes and goes", memory_breathes, length=3600),
    Night("is a search that ends", study_ends, frameworks=("optuna",)),
    Night(
        "is a search of short trials",
        nothing,
        needs={"step": 11.0},
        frameworks=("optuna",),
        length=3600,
    ),
    Night(
        "is a search whose workers restart after so many trials",
        nothing,
        needs={"step": 11.0, "recycled_after": 440.0},
        frameworks=("optuna",),
        length=3600,
    ),
    Night(
        "its server restarts alone",
        server_restarts_alone,
        true_alerts={"TrainingWaitingForServer": "its trainer waits until it is back"},
        needs={**SERVED, "sleeps": False},
        frameworks=STEADY[:6],
    ),
    Night("another fills and empties its disk", boxed_in),
    Night(
        "saves once an hour and shows nothing else",
        nothing,
        needs=SILENT,
        frameworks=("trl", "torchtitan", "lightning", "megatron", "deepspeed"),
        length=10800,
    ),
    Night(
        "is a search of trials of hours",
        nothing,
        true_alerts={
            "TrainingStepStalled/warning": "how long its trials take is known only after several",
        },
        needs={"step": 9000.0, "recycled_after": None, "silence_limit": None},
        frameworks=("optuna",),
        length=10800,
    ),
    Night(
        "evaluates for forty minutes",
        nothing,
        needs=LONG_EVALUATION,
        frameworks=("openrlhf", "nemo_rl", "skyrl", "lightning"),
        length=5400,
    ),
    Night(
        "evaluates on its servers for forty minutes, and does not log it",
        nothing,
        true_alerts={
            "TrainingStepStalled": "a warning: an evaluation of unknown length is not logged",
            "TrainingCheckpointOverdue": "it saves nothing for as long",
            "TrainingGpuIdle": "the GPU of its trainer is idle for as long",
            "TrainingWeightUpdateSlow": "the update before it is the last that its log shows",
        },
        needs={**SERVED, **LONG_EVALUATION, "sleeps": False, "update": 2.0},
        frameworks=("areal", "prime_rl", "verl", "slime"),
        length=5400,
    ),
    Night(
        "has a notebook beside it",
        a_notebook_takes_a_gpu,
        true_alerts={"TrainingGpuHeldByLeftovers": "reported after ten minutes, and left alone"},
        needs={"gpus": 2},
        length=3600,
    ),
    Night(
        "is nothing but servers",
        nothing,
        needs={
            **SERVED,
            "trains": False,
            "producer": False,
            "saves": False,
            "search": False,
            "silence_limit": None,
        },
        frameworks=STEADY[:6],
        length=5400,
    ),
    Night(
        "ends by Ctrl-C",
        ctrl_c,
        true_alerts={
            "TrainingWorkerInterrupted": "its trainer is missing, and that is deliberate",
            "TrainingCheckpointIncomplete": HALF["TrainingCheckpointIncomplete"],
        },
        muted_alerts={
            "TrainingStepStalled": "the interruption explains it",
            "TrainingLogSilent": "the interruption explains it",
        },
        needs={"search": False},
        length=3600,
    ),
    Night(
        "has neither GPU nor server nor checkpoint",
        nothing,
        needs={
            "gpus": 0,
            "inference": False,
            "saves": False,
            "producer": False,
            "rollout_folder": False,
            "share_of_rollouts": 0.0,
            "update": 0.0,
        },
    ),
)
