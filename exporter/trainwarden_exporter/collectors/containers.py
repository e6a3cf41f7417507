"""Collects the containers of each run: state, starts and exits.

Sources: the Docker socket; for the exporter's own container, its inside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Self

from trainwarden_exporter.containers.config import (
    ContainerConfig,
    ContainerKey,
    DockerConfig,
    history_path,
)
from trainwarden_exporter.containers.docker_api import HEALTHS, STATES
from trainwarden_exporter.containers.docker_client import DOCKER_ENGINE_STATES, DockerClient
from trainwarden_exporter.containers.follower import ContainerFollower, ContainerObservation
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.containers.own_container import OwnContainer
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.processes.procfs import PROC
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.runtime.state_file import StateFile
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

INTERVAL = 2.0
"""Seconds between two polls of a Docker container."""

OWN_INTERVAL = 10.0
"""Seconds between two polls of the exporter's own container, which changes only with its state
file.
"""

_table = MetricTable("trainwarden_container_", "run", "container")
_gauge, _counter = _table.gauge, _table.counter

ENGINE = _gauge(
    "engine_state", "1 for the current state of the connection to the container engine.", "state"
)
STATE = _gauge("state", "1 for the current state of the container.", "state")
HEALTH = _gauge(
    "health", "1 for the current health check status; absent without a health check.", "health"
)
START = _gauge("start_timestamp_seconds", "Time of the last start.")
RESTARTS = _counter(
    "restarts_total",
    "Restarts as counted by the engine, or as observed for the exporter's own container.",
)
STARTS = _counter("starts_total", "Known starts of all containers of this name.")
RECENT = _gauge(
    "recent_starts",
    "Starts within the last ten minutes, including those before the exporter started.",
)
PERIOD = _gauge(
    "start_period_seconds", "Median time between the recent starts; absent for fewer than three."
)
EXIT_CODE = _gauge("last_exit_code", "Exit code of the last run that ended.")
EXIT_TIME = _gauge("last_exit_timestamp_seconds", "Time at which the last run ended.")
LAST_LINE = _gauge(
    "last_line",
    "Always 1; label: last output line of the last run. Not updated if only numbers in it differ.",
    "line",
)
OOM_KILLS = _counter("oom_kills_total", "OOM kills in the container as reported by the engine.")
SEEN = _gauge("seen_timestamp_seconds", "Last successful observation of the container.")


class ContainersCollector(Collector):
    """Exports the state of each container; queries to the engines run in other threads."""

    name = "containers"
    metrics = _table.metrics

    def __init__(
        self,
        containers: Mapping[ContainerKey, ContainerConfig],
        docker: DockerConfig | None = None,
        *,
        state_folder: Path | None = None,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Observes `containers`; keeps their starts in `state_folder`."""
        self._now = now
        socket = (docker or DockerConfig()).socket

        def build_source(
            key: ContainerKey, config: ContainerConfig
        ) -> Callable[[], ContainerObservation]:
            state = StateFile(
                history_path(state_folder, key), ContainerHistory, empty=ContainerHistory()
            )
            if config.docker is None:
                return OwnContainer(state, config.exit_file, root=root, now=now)
            return ContainerFollower(DockerClient(socket), config.docker, state, now=now)

        self._pollers = BackgroundPollers(
            {
                (key, config, socket): BackgroundPoller(
                    f"container {key.run}/{key.container}",
                    _lazily(partial(build_source, key, config)),
                    interval=OWN_INTERVAL if config.own else INTERVAL,
                    now=now,
                )
                for key, config in containers.items()
            }
        )
        # A container in a restart loop may live for less than a scrape interval.
        self._pollers.start(lambda subject: subject[1].own)

    def take_over_from(self, predecessor: Self) -> None:
        self._pollers.take_over_from(predecessor._pollers)

    def collect(self) -> Iterable[Family]:
        if not len(self._pollers):
            raise NoData("no containers are configured")
        return self.families(self._samples())

    def _samples(self) -> Iterator[Sample]:
        for (key, config, _), poller in self._pollers:
            if (seen := poller.result()) is None:
                continue
            samples = list(_history_samples(seen.value.history, self._now()))
            if poller.failure is None and seen.value.state is not None:
                samples += _state_samples(seen.value, own=config.own)
                samples.append((SEEN, (), seen.timestamp))
            if seen.value.engine is not None:
                samples += ((ENGINE, (s,), s == seen.value.engine) for s in DOCKER_ENGINE_STATES)
            yield from ((metric, (*key, *more), value) for metric, more, value in samples)


def _history_samples(history: ContainerHistory, now: float) -> Iterator[Sample]:
    recent = restart_loop.recent_starts(history.starts, now)
    yield RECENT, (), len(recent)
    yield PERIOD, (), restart_loop.median_interval(recent)
    yield STARTS, (), history.starts_total
    yield OOM_KILLS, (), history.oom_kills
    yield EXIT_CODE, (), history.exit_code
    yield EXIT_TIME, (), history.exit_timestamp
    if history.line:
        yield LAST_LINE, (history.line,), 1


def _state_samples(observation: ContainerObservation, *, own: bool) -> Iterator[Sample]:
    yield START, (), observation.started
    yield RESTARTS, (), observation.restarts
    states = ("running",) if own else (*STATES, "absent")
    yield from ((STATE, (state,), state == observation.state) for state in states)
    if observation.health is not None:
        yield from ((HEALTH, (health,), health == observation.health) for health in HEALTHS)


def _lazily(
    build: Callable[[], Callable[[], ContainerObservation]],
) -> Callable[[], ContainerObservation]:
    """Returns a poll function that calls `build` at its first call, since that may block."""
    source = cache(build)

    def observe() -> ContainerObservation:
        return source()()

    return observe
