"""Discovers the inference servers of a run in its workers' processes.

A discovered server remains known when its process ends, because then it is down; a new process in
its place may listen elsewhere and counts as the same server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlsplit

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.inference.command_lines import (
    ENGINE_PORTS,
    ServerCommand,
    local_url,
    parse_server_command,
)
from trainwarden_exporter.inference.config import AnnouncedServer, ServerConfig
from trainwarden_exporter.inference.health_model import ProcessInfo
from trainwarden_exporter.inference.local_sockets import WorkerSockets, read_sockets
from trainwarden_exporter.inference.process_activity import ProcessActivity, read_activity
from trainwarden_exporter.inference.target import ServerTarget
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.listening_ports import Listener, read_listeners
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import PROC, Identity, Process, read_command_line
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.runtime.background_poller import BackgroundPoller
from trainwarden_exporter.runtime.linear_search import is_found

INTERVAL = 10.0
"""Seconds between two discoveries."""

_STALE = 3 * INTERVAL
_UNKNOWN_ENGINE = "generic"


class InferenceRun(Protocol):
    """The part of a run's configuration for its servers."""

    @property
    def name(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def workers(self) -> tuple[WorkerConfig, ...]: ...
    @property
    def inference(self) -> tuple[ServerConfig, ...]: ...


@dataclass(frozen=True, slots=True)
class DiscoveryResult:
    """The known servers, and the start of each server's process; None for no process."""

    targets: tuple[ServerTarget, ...] = ()
    started: Mapping[ServerTarget, float | None] = field(default_factory=dict)
    processes: Mapping[ServerTarget, tuple[Identity, ...]] = field(default_factory=dict)
    """The processes of each server's worker."""


class ServerDiscovery:
    """Knows the servers; discovers those without a configured address in a thread of its own."""

    def __init__(
        self,
        runs: Sequence[InferenceRun],
        *,
        root: Path = PROC,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._runs = tuple(run for run in runs if run.inference)
        self._root = root
        self._now = now
        self._known: dict[tuple[str, str], list[DiscoveredServer | None]] = {}
        self._commands: dict[tuple[Identity, tuple[str, int]], tuple[str, ...]] = {}
        self._wants_processes = any(server.worker for run in self._runs for server in run.inference)
        self._matcher = Matcher(
            {
                WorkerKey(run.name, worker.name): worker.match
                for run in self._runs
                for worker in run.workers
            },
            root=root,
        )
        self._poller = BackgroundPoller(
            "inference servers", self.discover, interval=INTERVAL, now=now
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the servers of `predecessor`, so a down server stays known."""
        self._known = {**predecessor._known, **self._known}
        predecessor.close()

    def close(self) -> None:
        """Stops the discovery."""
        self._poller.close()

    def result(self, *, wait_seconds: float) -> DiscoveryResult:
        """Returns the current result; waits up to `wait_seconds` for the first discovery."""
        seen = self._poller.result(timeout=wait_seconds) if self._wants_processes else None
        if seen is not None:
            return seen.value
        return DiscoveryResult(
            tuple(_configured_target(run, server) for run, server in self._servers() if server.url)
        )

    def process(self, target: ServerTarget) -> ProcessInfo | None:
        """Returns the known process of `target`; does not block."""
        seen = self._poller.result(timeout=0) if self._wants_processes else None
        if seen is None or target not in seen.value.started:
            return None
        if self._poller.failure is not None or self._now() - seen.timestamp > _STALE:
            return None
        started = seen.value.started[target]
        if started is not None and self._has_ended(started, seen.value.processes[target]):
            started = None
        return ProcessInfo(started, 0.0 if started is None else self._now() - started)

    def activity(self, target: ServerTarget) -> ProcessActivity | None:
        """Returns what the processes of `target` do now; None while they are unknown."""
        seen = self._poller.result(timeout=0) if self._wants_processes else None
        processes = () if seen is None else seen.value.processes.get(target, ())
        try:
            return read_activity(processes, self._root)
        except CollectError:
            return None

    def _has_ended(self, started: float, processes: Sequence[Identity]) -> bool:
        """Whether the process with that start has ended since it was discovered."""
        serving = [one for one in processes if start_timestamp(one) == started]
        try:
            return bool(serving) and read_activity(serving, self._root) is None
        except CollectError:
            return False

    def discover(self) -> DiscoveryResult:
        """Runs one discovery. Raises CollectError if processes cannot be listed."""
        trees = self._matcher.find()
        self._forget(trees.values())
        targets: dict[tuple[str, str], ServerTarget] = {}
        started: dict[ServerTarget, float | None] = {}
        processes: dict[ServerTarget, tuple[Identity, ...]] = {}
        for run, server in self._servers():
            tree = trees.get(WorkerKey(run.name, server.worker or ""), ProcessTree())
            candidates = self._candidates(tree) if server.worker else []
            living = tuple(process.identity for process in tree.members if process.alive)
            pids = [identity.pid for identity in living]
            for target, start in self._targets(run, server, candidates, pids):
                first = targets.setdefault((target.run, target.server), target)
                if first is target and server.worker:
                    started[target] = start
                    processes[target] = living
        return DiscoveryResult(tuple(targets.values()), started, processes)

    def _servers(self) -> Iterator[tuple[InferenceRun, ServerConfig]]:
        return ((run, server) for run in self._runs for server in run.inference)

    def _targets(
        self,
        run: InferenceRun,
        server: ServerConfig,
        candidates: Sequence[CandidateProcess],
        pids: Sequence[int],
    ) -> Iterator[tuple[ServerTarget, float | None]]:
        if server.url is not None:
            yield _configured_target(run, server), process_start(server.url, candidates)
            return
        expected = next((one.expected for one in run.workers if one.name == server.worker), 1)
        sockets = read_sockets(pids, self._root)
        patterns = engine_patterns(run.framework)
        servers = find_servers(server.engine, candidates, patterns)
        started = newest_start(candidates)
        if not servers and started and isinstance(server, AnnouncedServer) and server.ready:
            servers = (DiscoveredServer(_UNKNOWN_ENGINE, server.ready, started),)
        found = [local for one in servers if (local := one.confined(sockets))]
        # Where an unknown program listens is not known, so neither is that it does not serve.
        hidden = not found and _is_unknown(server, candidates, patterns)
        key = (run.name, server.name)
        known = self._known[key] = assign_slots(self._known.get(key, []), found, expected)
        living = {one.url: one.started for one in found}
        for index, one in enumerate(known):
            name = server.name if index == 0 and expected <= 1 else f"{server.name}-{index}"
            if one is None and hidden:
                continue
            if one is None:
                engine = server.engine or _UNKNOWN_ENGINE
                yield ServerTarget(run.name, name, engine, None, server), started
            else:
                target = ServerTarget(
                    run.name, name, one.engine, one.url, server, one.metrics_url, one.model
                )
                yield target, living.get(one.url)

    def _candidates(self, tree: ProcessTree) -> list[CandidateProcess]:
        """Returns the running processes of a worker; their ports only if no command names one."""
        roots = {process.identity for process in tree.roots}
        candidates = {}
        for process in tree.members:
            if process.alive:
                arguments = self._arguments(process)
                candidates[process.pid] = CandidateProcess(
                    start_timestamp(process.identity),
                    arguments,
                    parse_server_command(arguments),
                    root=process.identity in roots,
                )
        if not any(one.server_command and one.server_command.port for one in candidates.values()):
            listeners = read_listeners(candidates, self._root)
            candidates = {
                pid: replace(one, listeners=listeners[pid]) for pid, one in candidates.items()
            }
        return list(candidates.values())

    def _arguments(self, process: Process) -> tuple[str, ...]:
        key = (process.identity, process.exec_mark)
        if key not in self._commands:
            self._commands[key] = read_command_line(process.pid, self._root) or ()
        return self._commands[key]

    def _forget(self, trees: Iterable[ProcessTree]) -> None:
        members = (process for tree in trees for process in tree.members)
        alive = {(process.identity, process.exec_mark) for process in members}
        self._commands = {key: line for key, line in self._commands.items() if key in alive}


def _configured_target(run: InferenceRun, server: ServerConfig) -> ServerTarget:
    engine = server.engine or _UNKNOWN_ENGINE
    return ServerTarget(run.name, server.name, engine, server.url, server)


def engine_patterns(framework: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Returns command-line patterns of the engines that a framework starts itself."""
    try:
        roles = get_framework(framework).roles
    except ValueError:
        return ()
    return tuple((role.engine, re.compile(role.command)) for role in roles if role.engine)


@dataclass(frozen=True, slots=True)
class CandidateProcess:
    """A running process of a worker. `started` is in Unix seconds."""

    started: float
    arguments: tuple[str, ...] = ()
    server_command: ServerCommand | None = None
    listeners: tuple[Listener, ...] = ()
    root: bool = False
    """Whether it is a root of the worker."""


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """A server at `url` whose process started at `started`."""

    engine: str
    url: str
    started: float
    metrics_url: str | None = None
    model: str | None = None

    def confined(self, sockets: WorkerSockets) -> Self | None:
        """Returns the server at a local address; None if another process has its port."""
        url = sockets.confine(self.url)
        metrics_url = self.metrics_url and sockets.confine(self.metrics_url)
        return None if url is None else replace(self, url=url, metrics_url=metrics_url)


def newest_start(candidates: Iterable[CandidateProcess]) -> float | None:
    """Returns the start of the youngest root process."""
    return max((one.started for one in candidates if one.root), default=None)


def process_start(url: str, candidates: Sequence[CandidateProcess]) -> float | None:
    """Returns the start of the process that serves `url`; None without one.

    If no command line names the port, the youngest root process counts.
    """
    port = urlsplit(url).port
    starts = [
        one.started for one in candidates if one.server_command and one.server_command.port == port
    ]
    return max(starts, default=None) or newest_start(candidates)


def find_servers(
    engine: str | None,
    candidates: Sequence[CandidateProcess],
    patterns: Sequence[tuple[str, re.Pattern[str]]] = (),
) -> tuple[DiscoveredServer, ...]:
    """Returns the servers among the processes of one worker, by command line or by port."""
    found: dict[str, DiscoveredServer] = {}
    for one in candidates:
        command = one.server_command
        if command is None or engine not in (None, command.engine):
            continue
        ports = [listener.port for listener in one.listeners]
        url = command.url(ports[0] if len(ports) == 1 else None)
        if url is not None:
            found[url] = DiscoveredServer(
                command.engine, url, one.started, command.metrics_url, command.model
            )
    if not found:
        found = {one.url: one for one in _by_ports(engine, candidates, patterns)}
    return tuple(sorted(found.values(), key=lambda one: one.url))


def _is_unknown(
    server: ServerConfig,
    candidates: Sequence[CandidateProcess],
    patterns: Sequence[tuple[str, re.Pattern[str]]],
) -> bool:
    """Whether processes of the worker may serve, and none is known to be of an engine.

    A program that announced itself may serve on another host, as through ssh, or by a process
    outside the worker, as through Docker.
    """
    announced = isinstance(server, AnnouncedServer)
    return any(one.listeners or announced for one in candidates) and not any(
        one.server_command or _engine_of(one, server.engine, patterns) for one in candidates
    )


def _engine_of(
    one: CandidateProcess, engine: str | None, patterns: Sequence[tuple[str, re.Pattern[str]]]
) -> str | None:
    command = " ".join(one.arguments)
    return engine or next((name for name, regex in patterns if is_found(regex, command)), None)


def _by_ports(
    engine: str | None,
    candidates: Sequence[CandidateProcess],
    patterns: Sequence[tuple[str, re.Pattern[str]]],
) -> Iterator[DiscoveredServer]:
    """Yields servers of processes with an unknown command whose port is unambiguous."""
    for one in candidates:
        kind = _engine_of(one, engine, patterns)
        usual = ENGINE_PORTS.get(kind or "")
        chosen = [listener for listener in one.listeners if listener.port == usual]
        if not chosen and len(one.listeners) == 1:
            chosen = [one.listeners[0]]
        if kind is not None and chosen:
            yield DiscoveredServer(kind, local_url(chosen[0].address, chosen[0].port), one.started)


def assign_slots(
    known: Sequence[DiscoveredServer | None], found: Sequence[DiscoveredServer], expected: int
) -> list[DiscoveredServer | None]:
    """Assigns `found` to the slots of the known servers; None in a slot that was never taken.

    A server keeps its slot by its URL. A new server takes the slot of a missing one. There are
    at least `expected` slots.
    """
    urls = {one.url for one in found}
    by_url = {one.url: one for one in found}
    slots = [by_url.pop(one.url, one) if one else None for one in known]
    slots += [None] * (expected - len(slots))
    free_slots = [index for index, one in enumerate(slots) if not one or one.url not in urls]
    for one in by_url.values():
        if free_slots:
            slots[free_slots.pop(0)] = one
        else:
            slots.append(one)
    return slots
