"""What was seen on the box: its programs, the folders in which they work, its servers and GPUs."""

from __future__ import annotations

import http.client
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden_exporter.config import Config
from trainwarden_exporter.discovery.lines import ProposedPattern, propose_patterns, read_tail
from trainwarden_exporter.discovery.programs import Program, read_programs
from trainwarden_exporter.discovery.traces import (
    Numbered,
    Recognised,
    folders_below,
    logs_below,
    numbered_work,
    recognise,
)
from trainwarden_exporter.gpu.view import look_at_gpus
from trainwarden_exporter.inference.servingcommand import parse_serving_command
from trainwarden_exporter.lane import within
from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.base import Layout, RoleLayout
from trainwarden_exporter.processes.sockets import read_listeners

GPU_PATIENCE = 10.0
HTTP_PATIENCE = 2.0
MOST_BODY = 1 << 20

WATCHERS = re.compile(
    r"\b(?:trainwarden|prometheus|alertmanager|grafana|supervisord?|node_exporter)\b", re.IGNORECASE
)
"""Who looks on, and is no part of a run."""

_SERVES = re.compile(r"infer|serv|vllm|sglang|llama|triton", re.IGNORECASE)
_ENGINES = (
    ("vllm:", "vllm"),
    ("sglang:", "sglang"),
    ("tgi_", "tgi"),
    ("llamacpp:", "llama_cpp"),
    ("nv_inference_", "triton"),
)
"""What the names of an engine's metrics begin with."""


@dataclass(frozen=True, slots=True)
class Server:
    """An inference server that its command line does not give away."""

    engine: str
    port: int


@dataclass(frozen=True, slots=True)
class LogSeen:
    """A log, and what in it tells the progress of a run."""

    path: Path
    patterns: tuple[ProposedPattern, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A folder in which a run works, and what lies there.

    Of a framework's own folder nothing more is needed than that it was recognised.
    """

    path: Path
    recognised: Recognised | None = None
    numbered: tuple[Numbered, ...] = ()
    logs: tuple[LogSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """All that was seen."""

    programs: tuple[Program, ...]
    places: tuple[Place, ...] = ()
    gpus: int = 0
    servers: Mapping[int, Server] = field(default_factory=dict)
    """By the pid that listens."""


def read_box(path: Path | None, layouts: Sequence[Layout] = LAYOUTS) -> Box:
    """Look at the processes, and at `path`, or else the folders in which they work.

    Raises CollectError where /proc cannot be read.
    """
    programs = read_programs()
    running = {name for program in programs for name in frameworks_of(program, layouts)}
    gpus, servers = read_gpu_count(), read_servers(programs)
    if path is not None:
        return Box(programs, (read_place(path, layouts, running),), gpus, servers)
    places: dict[Path, Place] = {}
    for folder in folders_of(part_of_runs(programs, layouts)):
        place = read_place(folder, layouts, running)
        if place.recognised is not None:
            places.setdefault(place.path, place)
    return Box(programs, tuple(places.values()), gpus, servers)


def read_place(
    path: Path, layouts: Sequence[Layout] = LAYOUTS, running: Collection[str] = ()
) -> Place:
    """What lies in `path`; the place is the folder below it that a framework started from.

    `running` are the names of the frameworks of which programs run here.
    """
    folders = folders_below(path)
    recognised = recognise(folders, layouts, running)
    if recognised is None:
        logs = tuple(LogSeen(log, propose_patterns(read_tail(log))) for log in logs_below(folders))
        return Place(path, None, numbered_work(folders), logs)
    return Place(recognised.path, recognised)


def read_gpu_count() -> int:
    """How many GPUs the driver knows; 0 where there is none, or it does not answer."""
    try:
        return len(within(GPU_PATIENCE, lambda: look_at_gpus(Config())).sight.gpus)
    except TimeoutError:
        return 0


def read_servers(programs: Collection[Program]) -> dict[int, Server]:
    """The engines behind open ports, told by the names of their metrics.

    Asked are programs that seem to serve and whose command line does not say what.
    """
    unclear = [
        program
        for program in programs
        if _SERVES.search(program.command)
        and not WATCHERS.search(program.command)
        and parse_serving_command(program.arguments) is None
    ]
    return {
        pid: Server(engine, listener.port)
        for pid, listeners in read_listeners(program.pid for program in unclear).items()
        for listener in listeners
        if (engine := engine_of(_read_metrics(listener.port)))
    }


def engine_of(metrics: str) -> str:
    """The engine whose page of metrics this is; empty for none that is known."""
    for line in metrics.splitlines():
        for start, engine in _ENGINES:
            if line.startswith(start):
                return engine
    return ""


def _read_metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HTTP_PATIENCE)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(MOST_BODY).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def part_of_runs(
    programs: Collection[Program], layouts: Sequence[Layout] = LAYOUTS
) -> tuple[Program, ...]:
    """The programs that some framework's roles describe."""
    return tuple(
        program
        for program in programs
        if not WATCHERS.search(program.command) and role_of(program, layouts) is not None
    )


def folders_of(programs: Iterable[Program]) -> tuple[Path, ...]:
    """The folders that `programs` were told of, or write in, or were started in."""
    told: dict[Path, None] = {}
    started: dict[Path, None] = {}
    for program in programs:
        told |= dict.fromkeys(_told(program))
        told |= dict.fromkeys(path.parent for path in program.written)
        if program.folder is not None and program.folder != Path("/"):
            started[program.folder] = None
    return tuple(dict.fromkeys((*told, *started)))


def _told(program: Program) -> Iterator[Path]:
    if program.folder is None:
        return
    for argument in program.arguments[1:]:
        value = argument.rpartition("=")[2]
        if "/" in value and "\0" not in value and not value.startswith("-"):
            place = program.folder / value
            if place.is_dir():
                yield place


def role_of(program: Program, layouts: Sequence[Layout]) -> RoleLayout | None:
    """The first of the frameworks' roles that describes it."""
    for layout in layouts:
        for role in layout.roles:
            if re.search(role.command, program.command):
                return role
    return None


def frameworks_of(program: Program, layouts: Sequence[Layout]) -> Iterator[str]:
    """The frameworks that this may be a program of; an inference engine belongs to none."""
    for layout in layouts:
        if any(
            not role.engine and re.search(role.command, program.command) for role in layout.roles
        ):
            yield layout.name
