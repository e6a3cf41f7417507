"""Scans the host for processes, run folders, inference servers and GPUs."""

from __future__ import annotations

import http.client
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from trainwarden_exporter.discovery.artifacts import (
    DetectedFramework,
    StepFolder,
    detect_by_lines,
    detect_by_modules,
    detect_framework,
    find_step_folders,
    folders_below,
    fresh_folders,
    logs_below,
)
from trainwarden_exporter.discovery.log_patterns import ProposedPattern, propose_patterns, read_tail
from trainwarden_exporter.discovery.processes import (
    Candidate,
    ancestor_pids,
    announced_processes,
    read_candidates,
    topmost,
)
from trainwarden_exporter.discovery.programs import (
    imported_modules,
    is_monitoring,
    is_tool,
    is_watchdog,
    literal_folders,
    names_training,
    read_script,
    renames_temporary_files,
    runs_python,
)
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.base import Framework, ProcessPattern
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.snapshot import take_gpu_snapshot
from trainwarden_exporter.inference.command_lines import parse_server_command
from trainwarden_exporter.processes.listening_ports import read_listeners
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.linear_search import is_found

GPU_TIMEOUT_SECONDS = 10.0
HTTP_TIMEOUT_SECONDS = 2.0
MAX_BODY_BYTES = 1 << 20

_OUTPUT = re.compile(r"out|run|ckpt|checkpoint|log|save|result|exp|study|model", re.IGNORECASE)
"""Names of folders that a run writes to, rather than reads from."""
_SERVES = re.compile(r"infer|serv|vllm|sglang|llama|triton", re.IGNORECASE)
_ENGINES = (
    ("vllm:", "vllm"),
    ("sglang:", "sglang"),
    ("tgi_", "tgi"),
    ("llamacpp:", "llama_cpp"),
    ("nv_inference_", "triton"),
)
"""Prefixes of the metrics of an engine."""


@dataclass(frozen=True, slots=True)
class DetectedServer:
    """An inference server that its command line does not identify."""

    engine: str
    port: int


@dataclass(frozen=True, slots=True)
class DiscoveredLog:
    """A log with the patterns of its progress lines."""

    path: Path
    patterns: tuple[ProposedPattern, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of a run, and its content.

    For a recognised framework's folder, step folders and logs are not recorded.
    """

    path: Path
    detected: DetectedFramework | None = None
    step_folders: tuple[StepFolder, ...] = ()
    logs: tuple[DiscoveredLog, ...] = ()
    framework: str = "generic"
    """Name of the recognised framework, also where its files do not exist yet."""
    is_shared: bool = False
    """Whether `path` is only the working folder of the run, which others may share."""


@dataclass(frozen=True, slots=True)
class HostScan:
    """Result of the scan."""

    candidates: tuple[Candidate, ...]
    run_folders: tuple[RunFolder, ...] = ()
    gpus: int = 0
    servers: Mapping[int, DetectedServer] = field(default_factory=dict)
    """By listening pid."""
    trainers: Mapping[int, Path] = field(default_factory=dict)
    """The folder of the run of each process that trains."""
    ports: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Local ports on which each process listens."""
    clients: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Local ports to which each process is connected."""
    watched: tuple[str, ...] = ()
    """The runs of `trainwarden run` that are left out."""


def scan_host(path: Path | None) -> HostScan:
    """Scans the processes, and `path` or else their working folders.

    Leaves out the runs that `trainwarden run` announces: they are watched without a configuration.
    Raises CollectError, OSError or psutil.Error if /proc cannot be read.
    """
    announced, found = announced_processes(), read_candidates()
    candidates = tuple(one for one in found if one.pid not in announced)
    left_out = [
        one for one in found if one.pid in announced and (path is None or one.uses_folder(path))
    ]
    running = {name for candidate in candidates for name in matching_frameworks(candidate)}
    gpus, servers = read_gpu_count(), read_servers(candidates)
    ports, clients = read_connections()
    run_folders, trainers = find_run_folders(candidates)
    if path is not None:
        run_folder = scan_folder(path, FRAMEWORKS, running)
        run_folder, trainers = limit_to_folder(path, run_folder, run_folders, trainers)
        run_folders = {run_folder.path: run_folder}
        if not trainers and any(one.uses_folder(run_folder.path) for one in left_out):
            run_folders = {}
    watched = tuple(sorted({announced[one.pid] for one in left_out}))
    return HostScan(
        candidates, tuple(run_folders.values()), gpus, servers, trainers, ports, clients, watched
    )


def find_run_folders(
    candidates: Sequence[Candidate],
) -> tuple[dict[Path, RunFolder], dict[int, Path]]:
    """Returns the folders of the running trainers, and the folder of each trainer by pid."""
    found: dict[Path, RunFolder] = {}
    trainers: dict[int, Path] = {}
    programs = [one for one in candidates if is_program(one)]
    above = ancestor_pids(candidates)
    for candidate in topmost(programs, candidates):
        role = find_role(candidate)
        if role is not None and role.engine:
            continue
        text = read_script(candidate)
        name = detect_by_modules(imported_modules(text), FRAMEWORKS)
        expected = role is not None or bool(name) or names_training(candidate)
        tree = [candidate, *(one for one in candidates if candidate.pid in above[one.pid])]
        running = {name} - {""} or _frameworks_of(tree)
        run_folder = _find_run_folder(candidate, text, name, running, expected=expected)
        if run_folder is not None:
            trainers[candidate.pid] = run_folder.path
            known = found.setdefault(run_folder.path, run_folder)
            if known.framework == "generic" != run_folder.framework:
                found[run_folder.path] = run_folder
    return found, trainers


def limit_to_folder(
    path: Path, scanned: RunFolder, found: Mapping[Path, RunFolder], trainers: Mapping[int, Path]
) -> tuple[RunFolder, dict[int, Path]]:
    """Returns the folder of the run in `path`, and its trainers, which may have been started above.

    If no framework is recognised in `path`, the only run that a process trains there is meant.
    """
    inside = [one for one in found.values() if one.path.is_relative_to(path)]
    run_folder = scanned
    if scanned.detected is None and len(inside) == 1:
        # The operator has named the folder, so its logs are those of the run.
        logs = {log.path: log for log in scanned.logs}
        if inside[0].detected is None:
            logs |= {log.path: log for log in inside[0].logs}
            run_folder = replace(inside[0], is_shared=False, logs=tuple(logs.values()))
        else:
            run_folder = replace(inside[0], is_shared=False)
    root = run_folder.path
    return run_folder, {pid: root for pid, at in trainers.items() if at.is_relative_to(root)}


def _frameworks_of(tree: Sequence[Candidate]) -> set[str]:
    """Returns the frameworks of the topmost process, else of those below it, as of Ray's actors."""
    topmost_one, *below = (set(matching_frameworks(one)) for one in tree)
    return topmost_one or set().union(*below)


def _find_run_folder(
    candidate: Candidate, text: str, name: str, running: Collection[str], *, expected: bool
) -> RunFolder | None:
    """Returns the folder of the run that `candidate` trains; None if it shows no training.

    Folders that the process names or writes to come first; its working folder, which others may
    share, counts only what changed since the process started.
    """
    if candidate.folder is None:
        return None
    preferred = [one for one in FRAMEWORKS if one.name in running] or FRAMEWORKS
    written = [path.parent for path in candidate.written]
    named = [*_argument_folders(candidate), *literal_folders(text, candidate.folder), *written]
    shared = {candidate.folder, *candidate.folder.parents, Path.home()}
    own = [folder for folder in dict.fromkeys(named) if folder not in shared]
    outputs = [folder for folder in own if _OUTPUT.search(folder.name)]
    scanned = [scan_folder(folder, preferred, running) for folder in own]
    if not outputs:
        scanned.append(scan_folder(candidate.folder, preferred, running, since=candidate.started))
    logs = [path for path in candidate.written if path.is_file() and _is_log(candidate, path)]
    lines = "\n".join(map(read_tail, logs[:2]))
    by_lines = detect_by_lines(lines, preferred)
    framework = name or ("" if by_lines is None else by_lines.name)
    # A program that only names a folder of checkpoints may read it.
    if not (expected or by_lines is not None or propose_patterns(lines)):
        return None
    best = next((one for one in scanned if one.detected is not None), None)
    best = best or next((one for one in scanned if one.step_folders), None)
    if best is None:
        best = RunFolder(next(iter((*outputs, *own)), candidate.folder))
    found_logs = tuple(DiscoveredLog(log, propose_patterns(read_tail(log))) for log in logs)
    is_shared = best.path in shared
    if renames_temporary_files(text):
        renamed = tuple(replace(one, renamed=True) for one in best.step_folders)
        best = replace(best, step_folders=renamed)
    if best.detected is not None:
        return replace(best, framework=best.detected.framework.name, is_shared=is_shared)
    kept = () if is_shared else best.logs
    merged = {log.path: log for log in (*kept, *found_logs)}
    return replace(
        best, framework=framework or "generic", is_shared=is_shared, logs=tuple(merged.values())
    )


def _is_log(candidate: Candidate, path: Path) -> bool:
    """Whether the process writes its output, or a file that is named like a log, to `path`."""
    return path in candidate.outputs or candidate.is_named_like_a_log(path)


def is_program(candidate: Candidate) -> bool:
    """Whether the process may be a part of a run: no tool, no watchdog, no monitoring program."""
    if is_monitoring(candidate) or is_tool(candidate):
        return False
    return not is_watchdog(candidate) and (
        runs_python(candidate) or find_role(candidate) is not None
    )


def read_connections() -> tuple[dict[int, frozenset[int]], dict[int, frozenset[int]]]:
    """Returns the ports on which each process listens, and the local ports it is connected to.

    Both are empty where the kernel does not show them.
    """
    listening: dict[int, set[int]] = {}
    connected: dict[int, set[int]] = {}
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return {}, {}
    for one in connections:
        if one.pid is None or not one.laddr:
            continue
        if one.status == psutil.CONN_LISTEN:
            listening.setdefault(one.pid, set()).add(one.laddr.port)
        elif one.raddr and one.raddr.ip in {"127.0.0.1", "::1", one.laddr.ip}:
            connected.setdefault(one.pid, set()).add(one.raddr.port)
    return (
        {pid: frozenset(ports) for pid, ports in listening.items()},
        {pid: frozenset(ports) for pid, ports in connected.items()},
    )


def scan_folder(
    path: Path,
    frameworks: Sequence[Framework] = FRAMEWORKS,
    running: Collection[str] = (),
    *,
    since: float | None = None,
) -> RunFolder:
    """Scans `path`; the result names the subfolder that is the base of a recognised framework.

    `running` are the names of frameworks with running processes. With `since` (Unix seconds), only
    subfolders that changed later count.
    """
    folders = folders_below(path)
    if since is not None:
        folders = fresh_folders(folders, since)
    detected = detect_framework(folders, frameworks, running)
    if detected is None:
        logs = tuple(
            DiscoveredLog(log, propose_patterns(read_tail(log))) for log in logs_below(folders)
        )
        return RunFolder(path, step_folders=find_step_folders(folders), logs=logs)
    return RunFolder(detected.path, detected, framework=detected.framework.name)


def read_gpu_count() -> int:
    """Returns the number of GPUs of the driver; 0 without GPUs or without an answer."""
    try:
        gpu = run_with_timeout(GPU_TIMEOUT_SECONDS, lambda: take_gpu_snapshot(GpuConfig(), ()))
    except TimeoutError:
        return 0
    return len(gpu.driver.gpus)


def read_servers(candidates: Collection[Candidate]) -> dict[int, DetectedServer]:
    """Identifies the engines behind open ports by the names of their metrics.

    Queries only programs that appear to serve and whose command line does not name the engine.
    """
    unclear = [
        candidate
        for candidate in candidates
        if _SERVES.search(candidate.command)
        and not is_monitoring(candidate)
        and parse_server_command(candidate.arguments) is None
    ]
    return {
        pid: DetectedServer(engine, listener.port)
        for pid, listeners in read_listeners(candidate.pid for candidate in unclear).items()
        for listener in listeners
        if (engine := detect_engine(_read_metrics(listener.port)))
    }


def detect_engine(metrics: str) -> str:
    """Returns the engine of a page of metrics; empty if unknown."""
    for line in metrics.splitlines():
        for start, engine in _ENGINES:
            if line.startswith(start):
                return engine
    return ""


def _read_metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HTTP_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(MAX_BODY_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def _argument_folders(candidate: Candidate) -> Iterator[Path]:
    if candidate.folder is None:
        return
    for argument in candidate.arguments[1:]:
        value = argument.rpartition("=")[2]
        if value.strip("./") and "\0" not in value and not value.startswith("-"):
            path = candidate.folder / value
            with suppress(OSError):  # an argument may be longer than a path may be
                if path.is_dir():
                    yield path.resolve()


def find_role(
    candidate: Candidate, frameworks: Sequence[Framework] = FRAMEWORKS
) -> ProcessPattern | None:
    """Returns the first role of the frameworks that matches, or None."""
    for framework in frameworks:
        for role in framework.roles:
            if is_found(re.compile(role.command), candidate.command):
                return role
    return None


def matching_frameworks(candidate: Candidate) -> Iterator[str]:
    """Yields the frameworks that the process may belong to; none for an inference engine."""
    for framework in FRAMEWORKS:
        if any(
            not role.engine and is_found(re.compile(role.command), candidate.command)
            for role in framework.roles
        ):
            yield framework.name
