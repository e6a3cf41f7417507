"""Host checks before a run: memory, ports, restart loops and exit statuses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from trainwarden_exporter.containers.config import ContainerConfig, ContainerKey, history_path
from trainwarden_exporter.containers.docker_client import DockerClient
from trainwarden_exporter.containers.follower import ContainerFollower
from trainwarden_exporter.containers.history import ContainerHistory
from trainwarden_exporter.containers.own_container import is_same_start, read_start
from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.host.memory import call_psutil, read_available_memory
from trainwarden_exporter.preflight.report import Finding, PreflightContext
from trainwarden_exporter.processes import restart_loop
from trainwarden_exporter.processes.exit_status import NO_EXIT_STATUSES, exit_statuses_available
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.processes.procfs import PROC, read_command_line
from trainwarden_exporter.processes.start_history import StartLog, start_log_path
from trainwarden_exporter.runtime.formatting import format_duration, format_size, plural
from trainwarden_exporter.runtime.redaction import redact_command
from trainwarden_exporter.runtime.state_file import StateFile

ENGINE_SECONDS = 3.0
"""Timeout of a Docker engine in seconds."""

_PORTS = {"http": 80, "https": 443}
_COMMAND = 80


def check_memory(context: PreflightContext) -> Finding:
    """Refuses if available memory is below the floor. Raises CollectError."""
    total, available, floor = read_available_memory(context.config.host)
    observed = f"{format_size(available)} of {format_size(total)} available"
    if available >= floor:
        return Finding("memory", "ok", observed)
    return Finding(
        "memory",
        "refuse",
        f"{observed}, minimum {format_size(floor)}",
        advice="find the process that uses it and terminate it first",
    )


def check_ports(context: PreflightContext) -> Finding | None:
    """Refuses if a port of an inference server of the run is taken.

    Covers only ports of this machine, of servers that belong to a worker of the run. Raises
    CollectError.
    """
    wanted = {
        port: f"{run.name}/{server.name}"
        for run in context.runs
        for server in run.inference
        if server.worker is not None and (port := local_port(server.url)) is not None
    }
    if not wanted:
        return None
    holders = _read_holders(wanted)
    if not holders:
        return Finding("ports", "ok", f"free: {', '.join(map(str, sorted(wanted)))}")
    return Finding(
        "ports",
        "refuse",
        f"{plural(len(holders), 'port')} of the run in use",
        tuple(
            f"{port} ({wanted[port]}): {_describe_holder(pid)}"
            for port, pid in sorted(holders.items())
        ),
        "end the process that listens there, or configure another port for the server",
    )


def check_loops(context: PreflightContext, root: Path = PROC) -> Finding | None:
    """Refuses if a container or a worker of the run is in a restart loop."""
    watched = [*_containers(context, root), *_workers(context)]
    if not watched:
        return None
    loops = [summary for summary, looping in watched if looping]
    if not loops:
        return Finding("restart loop", "ok", "no restart loop")
    return Finding(
        "restart loop",
        "refuse",
        "it would fail again for the same reason",
        tuple(loops),
        "find the reason in its log or its start command; another start does not help",
    )


def check_exit_statuses(context: PreflightContext) -> Finding | None:
    """Warns if the kernel does not report how workers end that may finish."""
    if not any(worker.finishes for run in context.runs for worker in run.workers):
        return None
    if exit_statuses_available():
        return Finding("exit status", "ok", "reported by this kernel")
    return Finding("exit status", "warn", NO_EXIT_STATUSES, advice="Linux 6.15 or newer has it")


def local_port(url: str | None) -> int | None:
    """Returns the port of `url` if that is a loopback address of this machine, else None."""
    parts = urlsplit(url or "")
    if not is_local(parts.hostname or ""):
        return None
    return parts.port or _PORTS.get(parts.scheme)


def is_local(host: str) -> bool:
    """Whether a listener at `host` is reachable by the loopback address."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _read_holders(ports: Collection[int]) -> dict[int, int | None]:
    """Returns the listening pid for each taken port of `ports`; None for an invisible process.

    Raises CollectError.
    """
    holders: dict[int, int | None] = {}
    for one in call_psutil(psutil.net_connections, "tcp"):
        if one.laddr and one.status == psutil.CONN_LISTEN and is_local(one.laddr.ip):
            port = one.laddr.port
            if port in ports:
                holders[port] = holders.get(port) or one.pid
    return holders


def _describe_holder(pid: int | None) -> str:
    if pid is None:
        return "process not visible from here"
    command = redact_command(read_command_line(pid) or ())
    shown = "".join(letter if letter.isprintable() else "?" for letter in command)
    return f"pid {pid}, {shown[:_COMMAND]}"


def _containers(context: PreflightContext, root: Path) -> Iterator[tuple[str, bool]]:
    """Yields the starts of each container of the run, and whether they are a restart loop."""
    for run in context.runs:
        for container in run.containers:
            history = _read_history(
                context, ContainerKey(run.name, container.name), container, root
            )
            recent = restart_loop.recent_starts(history.starts, context.now)
            summary = _loop_description(f"container {run.name}/{container.name}", recent)
            if history.exit_code is not None:
                summary += f", ended with exit code {history.exit_code}"
            yield (
                summary + (f": {history.line}" if history.line else ""),
                restart_loop.is_loop(recent),
            )


def _read_history(
    context: PreflightContext, key: ContainerKey, config: ContainerConfig, root: Path
) -> ContainerHistory:
    """Returns the stored history of a container with its current state; writes nothing."""
    path = history_path(context.config.state_folder, key)
    history = StateFile(path, ContainerHistory, empty=ContainerHistory()).value
    if config.docker is None:
        with suppress(CollectError):
            start = read_start(root)
            if not is_same_start(start, history):
                return history.add_starts([start.timestamp], context.now)
        return history
    engine = DockerClient(context.config.docker.socket, timeout=ENGINE_SECONDS)
    return ContainerFollower(
        engine, config.docker, StateFile(None, ContainerHistory, empty=history)
    )().history


def _workers(context: PreflightContext) -> Iterator[tuple[str, bool]]:
    path = start_log_path(context.config.state_folder)
    if path is None:
        return
    log = StartLog(path)
    for run in context.runs:
        for worker in run.workers:
            recent = restart_loop.recent_starts(
                log.recent(WorkerKey(run.name, worker.name)), context.now
            )
            per_launch = max(1, worker.expected)
            summary = _loop_description(f"worker {run.name}/{worker.name}", recent, per_launch)
            yield summary, restart_loop.is_loop(recent, per_launch=per_launch)


def _loop_description(name: str, recent: tuple[float, ...], per_launch: int = 1) -> str:
    period = restart_loop.median_interval(recent, per_launch=per_launch)
    every = "" if period is None else f", every {format_duration(period)}"
    times = len(recent) // per_launch
    return f"{name} started {plural(times, 'time')} within ten minutes{every}"
