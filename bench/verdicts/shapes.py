"""The shapes of runs: what each framework tells and has, and at what pace it goes.

What a framework's log and files tell is read from its layout: where it names no line for a phase,
the exporter of the model hears of none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import LinePattern, Phase
from trainwarden_exporter.progress.specs import ProgressSpec
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs, log_specs, progress_spec, rollout_specs

RUN = "night"
WITH_INFERENCE = frozenset(
    {"areal", "prime_rl", "verl", "openrlhf", "slime", "nemo_rl", "skyrl", "trl"}
)
WITH_PRODUCER = frozenset({"prime_rl", "skyrl"})
"""Frameworks whose batches are made by a process of their own."""
SEARCHES = frozenset({"optuna"})
"""Those in which workers take one short trial after the other; there is no trainer."""
FRAMEWORK_NAMES: tuple[str, ...] = tuple(framework.name for framework in FRAMEWORKS)


@dataclass(frozen=True, slots=True)
class Shape:
    """What one box and its run are like. Durations in seconds."""

    framework: str
    gpus: int
    inference: bool
    producer: bool
    rollout_folder: bool
    search: bool
    container: bool
    heartbeat: bool
    probed: bool
    remediator: bool
    saves: bool
    step: float
    share_of_rollouts: float
    update: float
    save: float
    save_every: float
    interval_configured: bool
    evaluation: float
    evaluate_every: float
    compile: float
    sleeps: bool
    """Whether its server sleeps while it trains, on the same GPUs."""
    worker_limit: float | None
    age_limit: float | None
    recycled_after: float | None
    """The time of a search worker between restarts; limited by the number of trials."""
    silence_limit: float | None
    cgroup: bool
    pause: str
    """How a server is while it gets new weights."""
    logged: bool = True
    """Whether it has logs where the exporter looks for them."""
    trains: bool = True
    """Whether there is a trainer, or its servers are for others."""

    @property
    def ranks(self) -> int:
        """How many ranks report their steps by `trainwarden.beat`."""
        return self.gpus if self.trains and self.heartbeat and self.gpus > 1 else 0


def chance(rng: random.Random, share: float) -> bool:
    """True in so many of all cases."""
    return rng.random() < share


def draw(rng: random.Random, framework: str | None = None) -> Shape:
    """A shape as users have them, of `framework` or of any."""
    name = framework or rng.choice(FRAMEWORK_NAMES)
    search = name in SEARCHES
    rl = name in WITH_INFERENCE and not (name == "trl" and chance(rng, 0.5))
    inference = rl and chance(rng, 0.9)
    step = rng.choice((2.0, 6.0, 12.0, 20.0, 45.0, 120.0, 300.0)) * rng.uniform(0.8, 1.25)
    save = min(rng.choice((3.0, 30.0, 90.0, 400.0)), 20 * step)
    evaluation = min(rng.choice((20.0, 120.0, 500.0)), 40 * step)
    gpus = 0 if search and chance(rng, 0.7) else rng.choice((0, 1, 1, 2, 4, 8))
    return Shape(
        framework=name,
        gpus=max(1, gpus) if rl else gpus,
        inference=inference,
        producer=rl and name in WITH_PRODUCER,
        rollout_folder=rl and name == "prime_rl" and chance(rng, 0.8),
        search=search,
        container=chance(rng, 0.4),
        heartbeat=chance(rng, 0.4),
        probed=chance(rng, 0.3),
        remediator=chance(rng, 0.8),
        saves=not search and chance(rng, 0.9),
        step=step,
        share_of_rollouts=rng.uniform(0.3, 0.7) if rl else 0.0,
        update=min(rng.choice((1.0, 8.0, 60.0)), step / 2) if rl else 0.0,
        save=save,
        save_every=max(300.0, 6 * step, 4 * save) * rng.uniform(1, 1.5),
        interval_configured=chance(rng, 0.5),
        evaluation=evaluation,
        evaluate_every=max(900.0, 10 * step, 3 * evaluation) * rng.uniform(1, 1.5),
        compile=rng.choice((20.0, 200.0, 700.0, 1300.0)),
        sleeps=inference and chance(rng, 0.2),
        worker_limit=rng.choice((None, 48.0, 96.0)),
        age_limit=rng.choice((None, None, 3600.0)),
        silence_limit=None if chance(rng, 0.7) else max(900.0, 12 * step, 4 * save, 4 * evaluation),
        cgroup=chance(rng, 0.4),
        pause=rng.choice(("updating", "paused")),
        recycled_after=rng.choice((None, 900.0, 3600.0)) if search else None,
    )


@dataclass(frozen=True, slots=True)
class Telling:
    """How the exporter hears of a run: its configuration, and the lines and files that tell."""

    spec: ProgressSpec
    logs: tuple[tuple[str, str], ...]
    """Name and role of each log."""
    log: str
    """The log that the trainer writes; empty where there is none."""
    checkpoint: str
    """What its checkpoints are called; empty where it has none."""
    rollout: str
    lag_limit: int | None
    staleness_limit: int | None

    def lines(self) -> Iterator[LinePattern]:
        """All lines of the trainer's log that the exporter goes by."""
        return (line for (log, _), line in self.spec.lines.items() if log == self.log)

    def step_line(self) -> LinePattern | None:
        """The line that tells a step done."""
        for line in self.lines():
            steps = line.phase in (None, Phase.TRAINING) and line.ends is None
            if "?P<step>" in line.regex and steps and not line.error:
                return line
        return None

    def advancing_line(self) -> LinePattern | None:
        """A line that shows progress without a step."""
        return next((line for line in self.lines() if line.advances and not line.error), None)

    def begins(self, phase: Phase) -> LinePattern | None:
        lines = (line for line in self.lines() if line.phase is phase and not line.error)
        return next(lines, None)

    def ends(self, phase: Phase) -> LinePattern | None:
        lines = (line for line in self.lines() if line.ends is phase and not line.error)
        return next(lines, None)

    def waits_after_update(self) -> LinePattern | None:
        """The line that ends a weight update by the wait that it begins."""
        lines = (line for line in self.lines() if line.phase is Phase.WAITING_FOR_ROLLOUTS)
        return next((line for line in lines if "update_weights end" in line.regex), None)


def telling(shape: Shape, *, total_steps: int) -> Telling:
    """How a run of `shape` is configured and followed."""
    roles = ["worker", "worker"] if shape.search else ["trainer"]
    roles += ["orchestrator"] * shape.producer + ["inference"] * shape.inference
    run = RunConfig.model_validate(
        {
            "name": RUN,
            "path": "/outputs",
            "framework": shape.framework,
            "workers": [
                {"name": f"{role}-{at}", "role": role, "match": {"command": f"{role}.py"}}
                for at, role in enumerate(roles)
            ],
            "progress": {"total_steps": total_steps},
        }
    )
    logs = log_specs(run)
    trainer = [log.name for log in logs if log.role == "trainer"]
    checkpoints, rollouts = checkpoint_specs(run), rollout_specs(run)
    batches = next((one for one in rollouts if one.carries == "batches"), None)
    return Telling(
        spec=progress_spec(run),
        logs=tuple((log.name, log.role) for log in logs),
        log=trainer[0] if trainer else "",
        checkpoint=checkpoints[0].labels[1] if checkpoints else "",
        rollout=batches.labels[1] if batches else "",
        lag_limit=batches.lag_limit if batches else None,
        staleness_limit=batches.staleness_limit if batches else None,
    )
