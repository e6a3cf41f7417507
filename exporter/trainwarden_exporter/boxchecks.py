"""Whether the box lets a run start: memory, ports, and no restart loop under way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden_exporter import starts
from trainwarden_exporter.collectors.containers import ContainerConfig, ContainerKey, state_path
from trainwarden_exporter.collectors.host import read_room
from trainwarden_exporter.containers.docker import Engine
from trainwarden_exporter.containers.following import Follower
from trainwarden_exporter.containers.own import is_same, read_start
from trainwarden_exporter.containers.past import Past
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.findings import Finding, Subject
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import (
    PROC,
    read_command_line,
    read_processes,
    read_text,
)
from trainwarden_exporter.processes.sockets import Listener, parse_listeners, read_listeners
from trainwarden_exporter.processes.startlog import StartLog, start_log_path
from trainwarden_exporter.statefile import StateFile
from trainwarden_exporter.wording import plural, size, span

ENGINE_SECONDS = 3.0
"""How long a Docker engine has to answer."""

_PORTS = {"http": 80, "https": 443}
_COMMAND = 80


def check_memory(subject: Subject) -> Finding:
    """Refuses where less memory is available than should stay so. Raises CollectError."""
    total, available, floor = read_room(subject.config.host)
    seen = f"{size(available)} of {size(total)} available"
    if available >= floor:
        return Finding("memory", "ok", seen)
    return Finding(
        "memory",
        "refuse",
        f"{seen}, {size(floor)} should be",
        advice="find out what holds it, and end that first",
    )


def check_ports(subject: Subject, root: Path = PROC) -> Finding | None:
    """Refuses while somebody listens where an inference server of the run is to listen.

    Only ports of this machine, and of servers that a worker of the run is. Raises CollectError.
    """
    wanted = {
        port: f"{run.name}/{server.name}"
        for run in subject.runs
        for server in run.inference
        if server.worker is not None and (port := local_port(server.url)) is not None
    }
    if not wanted:
        return None
    taken = sorted(wanted.keys() & {one.port for one in _listeners(root) if is_local(one.address)})
    if not taken:
        return Finding("ports", "ok", f"free: {', '.join(map(str, sorted(wanted)))}")
    holders = dict(_holders(taken, root))
    return Finding(
        "ports",
        "refuse",
        f"{plural(len(taken), 'port')} of the run taken already",
        tuple(
            f"{port} ({wanted[port]}): {holders.get(port, 'by whom is not seen from here')}"
            for port in taken
        ),
        "end what listens there, or give the server another port",
    )


def check_loops(subject: Subject, root: Path = PROC) -> Finding | None:
    """Refuses while a container or a worker of the run starts over and over."""
    watched = [*_containers(subject, root), *_workers(subject)]
    if not watched:
        return None
    loops = [said for said, looping in watched if looping]
    if not loops:
        return Finding("restart loop", "ok", "nothing of it starts over and over")
    return Finding(
        "restart loop",
        "refuse",
        "what ends it will end it again",
        tuple(loops),
        "find what makes it end, in its log or its start command; another start heals nothing",
    )


def local_port(url: str | None) -> int | None:
    """The port of `url` if that leads to this machine by its loopback address."""
    parts = urlsplit(url or "")
    if not is_local(parts.hostname or ""):
        return None
    return parts.port or _PORTS.get(parts.scheme)


def is_local(host: str) -> bool:
    """Whether what listens at `host` is reached by the loopback address."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _listeners(root: Path) -> Iterator[Listener]:
    for name in ("tcp", "tcp6"):
        yield from parse_listeners(read_text(f"{root}/self/net/{name}") or "").values()


def _holders(ports: Iterable[int], root: Path) -> Iterator[tuple[int, str]]:
    """Who listens on each of `ports`, as far as that may be seen."""
    wanted = set(ports)
    for pid, listeners in read_listeners(read_processes(root), root).items():
        for port in wanted & {listener.port for listener in listeners}:
            command = " ".join(read_command_line(pid, root) or ())
            shown = "".join(letter if letter.isprintable() else "?" for letter in command)
            yield port, f"pid {pid}, {shown[:_COMMAND]}"


def _containers(subject: Subject, root: Path) -> Iterator[tuple[str, bool]]:
    """Each container of the run: how it starts, and whether that is a loop."""
    for run in subject.runs:
        for container in run.containers:
            past = _past(subject, ContainerKey(run.name, container.name), container, root)
            recent = starts.recent(past.starts, subject.now)
            said = _told(f"container {run.name}/{container.name}", recent)
            if past.exit_code is not None:
                said += f", ended with exit code {past.exit_code}"
            yield said + (f": {past.line}" if past.line else ""), starts.is_loop(recent)


def _past(subject: Subject, key: ContainerKey, config: ContainerConfig, root: Path) -> Past:
    """What is remembered of a container, and what can be seen of it now; nothing is written."""
    path = state_path(subject.config.state_folder, key)
    past = StateFile(path, Past, empty=Past()).value
    if config.docker is None:
        with suppress(CollectError):
            start = read_start(root)
            if not is_same(start, past):
                return past.started([start.timestamp], subject.now)
        return past
    engine = Engine(subject.config.docker.socket, patience=ENGINE_SECONDS)
    return Follower(engine, config.docker, StateFile(None, Past, empty=past))().past


def _workers(subject: Subject) -> Iterator[tuple[str, bool]]:
    path = start_log_path(subject.config.state_folder)
    if path is None:
        return
    log = StartLog(path)
    for run in subject.runs:
        for worker in run.workers:
            recent = starts.recent(log.recent(WorkerKey(run.name, worker.name)), subject.now)
            together = max(1, worker.expected)
            said = _told(f"worker {run.name}/{worker.name}", recent, together)
            yield said, starts.is_loop(recent, together=together)


def _told(name: str, recent: tuple[float, ...], together: int = 1) -> str:
    period = starts.period(recent, together=together)
    every = "" if period is None else f", every {span(period)}"
    times = len(recent) // together
    return f"{name} was started {plural(times, 'time')} within ten minutes{every}"
