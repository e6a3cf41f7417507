"""The containers of a run: how they are, how often they start, and how they ended.

Of Docker by its socket; or the one this program runs in itself, from inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter import starts
from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.containers.docker import ENGINE_STATES, Engine
from trainwarden_exporter.containers.dockerformat import HEALTHS, STATES
from trainwarden_exporter.containers.following import Follower, Sighting
from trainwarden_exporter.containers.own import OwnContainer
from trainwarden_exporter.containers.past import Past
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.statefile import StateFile
from trainwarden_exporter.units import LocalPath, Name
from trainwarden_exporter.watching import Watch, Watches
from trainwarden_exporter.yamlfile import MisplacedError, Section

INTERVAL = 2.0
"""Seconds between two looks at a container of Docker."""
OWN_INTERVAL = 10.0
"""The same of our own, of which nothing can change but the file that remembers it."""

Sample = tuple[Metric, tuple[str, ...], float | None]


class DockerConfig(Section):
    """The Docker engine of the machine."""

    socket: LocalPath = Path("/var/run/docker.sock")
    """Where it listens. Whoever may read and write this socket is as good as root."""


class ContainerConfig(Section):
    """One container: of Docker by its name, or the one that the exporter runs in."""

    name: Name
    """Label `container`."""

    docker: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = None
    """Its name in Docker."""

    own: Annotated[bool, Field(alias="self")] = False
    """Whether it is the container that the exporter runs in. Its starts are counted in
    `state_folder`, which so has to be on a volume, and of this container alone."""

    exit_file: LocalPath | None = None
    """Where the start command of that container writes how it ended, for the next start to read:
    its exit code in the first line, and what was printed last in the last one."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if self.own == (self.docker is not None):
            raise ValueError("either `docker: NAME` or `self: true` is needed")
        if self.exit_file is not None and not self.own:
            raise MisplacedError("only for `self: true`: Docker tells it by itself", "exit_file")
        return self


def check_names(containers: Sequence[ContainerConfig]) -> Sequence[ContainerConfig]:
    """Raise MisplacedError where two containers share a name."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        if container.name in seen:
            raise MisplacedError(f"another container is named {container.name}", index, "name")
        seen.add(container.name)
    return containers


Containers = Annotated[tuple[ContainerConfig, ...], AfterValidator(check_names)]


class ContainerKey(NamedTuple):
    """The configured names of a container."""

    run: str
    container: str


def _gauge(name: str, text: str, *more: str) -> Metric:
    return Metric(f"trainwarden_container_{name}", "gauge", text, ("run", "container", *more))


def _counter(name: str, text: str) -> Metric:
    return Metric(f"trainwarden_container_{name}", "counter", text, ("run", "container"))


ENGINE = _gauge("engine_state", "1 for how the container's engine can be asked.", "state")
STATE = _gauge("state", "1 for the state the container is in.", "state")
HEALTH = _gauge("health", "1 for what its health check says; absent without one.", "health")
START = _gauge("start_timestamp_seconds", "When it started last.")
RESTARTS = _counter("restarts_total", "Restarts, as its engine counts them, or of our own as seen.")
STARTS = _counter("starts_total", "Starts of all that had its name, as far as known.")
RECENT = _gauge("recent_starts", "Starts within ten minutes, also before the exporter's own.")
PERIOD = _gauge("start_period_seconds", "Median distance of the recent starts, if three or more.")
EXIT_CODE = _gauge("last_exit_code", "Exit code of the run that ended last.")
EXIT_TIME = _gauge("last_exit_timestamp_seconds", "When that run ended.")
LINE = _gauge(
    "last_line",
    "Always 1; what that run printed last. Of lines that differ in numbers only, the first stays.",
    "line",
)
OOM_KILLS = _counter("oom_kills_total", "Kills in it for want of memory, as its engine tells.")
SEEN = _gauge("seen_timestamp_seconds", "When it was last looked at with success.")


class ContainersCollector(Collector):
    """Shows what is known of each container; what asks the engines has threads of its own."""

    name = "containers"
    metrics = (
        ENGINE,
        STATE,
        HEALTH,
        START,
        RESTARTS,
        STARTS,
        RECENT,
        PERIOD,
        EXIT_CODE,
        EXIT_TIME,
        LINE,
        OOM_KILLS,
        SEEN,
    )

    def __init__(
        self,
        containers: Mapping[ContainerKey, ContainerConfig],
        docker: DockerConfig | None = None,
        *,
        state_folder: Path | None = None,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Watch `containers`; their starts are remembered in `state_folder`."""
        self._now = now
        socket = (docker or DockerConfig()).socket

        def look(key: ContainerKey, config: ContainerConfig) -> Callable[[], Sighting]:
            state = StateFile(state_path(state_folder, key), Past, empty=Past())
            if config.docker is None:
                return OwnContainer(state, config.exit_file, root=root, now=now)
            return Follower(Engine(socket), config.docker, state, now=now)

        self._watches = Watches(
            {
                (key, config, socket): Watch(
                    f"container {key.run}/{key.container}",
                    _made_there(partial(look, key, config)),
                    interval=OWN_INTERVAL if config.own else INTERVAL,
                    now=now,
                )
                for key, config in containers.items()
            }
        )
        # A container in a loop may live for less than it takes until somebody scrapes.
        self._watches.start(lambda subject: subject[1].own)

    def adopt(self, predecessor: Self) -> None:
        """Go on with the looks of `predecessor`."""
        self._watches.adopt(predecessor._watches)

    def collect(self) -> Iterable[Family]:
        if not len(self._watches):
            raise NoData("no containers are configured")
        families = {metric: metric.family() for metric in self.metrics}
        for (key, config, _), watch in self._watches:
            if (seen := watch.seen()) is None:
                continue
            samples = list(_past(seen.value.past, self._now()))
            if watch.failure is None and seen.value.state is not None:
                samples += _present(seen.value, own=config.own)
                samples.append((SEEN, (), seen.timestamp))
            if seen.value.engine is not None:
                samples += ((ENGINE, (s,), s == seen.value.engine) for s in ENGINE_STATES)
            for metric, more, value in samples:
                if value is not None:
                    families[metric].add_metric([*key, *more], value)
        return families.values()


def _past(past: Past, now: float) -> Iterator[Sample]:
    recent = starts.recent(past.starts, now)
    yield RECENT, (), len(recent)
    yield PERIOD, (), starts.period(recent)
    yield STARTS, (), past.starts_total
    yield OOM_KILLS, (), past.oom_kills
    yield EXIT_CODE, (), past.exit_code
    yield EXIT_TIME, (), past.exit_timestamp
    if past.line:
        yield LINE, (past.line,), 1


def _present(sighting: Sighting, *, own: bool) -> Iterator[Sample]:
    yield START, (), sighting.started
    yield RESTARTS, (), sighting.restarts
    states = ("running",) if own else (*STATES, "absent")
    yield from ((STATE, (state,), state == sighting.state) for state in states)
    if sighting.health is not None:
        yield from ((HEALTH, (health,), health == sighting.health) for health in HEALTHS)


def _made_there(make: Callable[[], Callable[[], Sighting]]) -> Callable[[], Sighting]:
    """The look that `make` makes at the first call: to read its file may block."""
    made: list[Callable[[], Sighting]] = []

    def look() -> Sighting:
        if not made:
            made.append(make())
        return made[0]()

    return look


def state_path(folder: Path | None, key: ContainerKey) -> Path | None:
    """Where the past of a container is kept in `folder`."""
    return None if folder is None else folder / "containers" / key.run / f"{key.container}.json"
