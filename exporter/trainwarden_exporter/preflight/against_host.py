"""Says for each entry of a run in exporter.yml what of it is on this host now."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden_exporter.checkpoints.scanner import CheckpointScanner
from trainwarden_exporter.checkpoints.specs import CheckpointSpec
from trainwarden_exporter.inference.command_lines import parse_server_command
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.logs.file_listing import find_log_files
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, WorkerKey
from trainwarden_exporter.processes.output_files import read_output_files
from trainwarden_exporter.processes.procfs import read_command_line
from trainwarden_exporter.progress.progress_files import ProgressFileScanner, ProgressFileSpec
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs, log_specs, progress_spec
from trainwarden_exporter.runtime.blocking_thread import run_with_timeout
from trainwarden_exporter.runtime.formatting import format_duration

TIMEOUT_SECONDS = 10.0
"""Timeout of each look: a folder may be on a dead network mount."""
SERVER_SECONDS = 3.0
MAX_PIDS = 8

Look = Callable[[], tuple[str, bool]]
"""Returns what was observed, and whether the entry was found."""
Trees = Mapping[WorkerKey, ProcessTree]


@dataclass(frozen=True, slots=True)
class HostMatch:
    """One entry of the configuration, and what of it exists."""

    entry: str
    observed: str
    found: bool
    is_required: bool = False
    """Whether the run cannot be watched without it."""

    def __str__(self) -> str:
        return f"{'ok     ' if self.found else 'MISSING'}  {self.entry}: {self.observed}"


def match_host(run: RunConfig) -> Iterator[HostMatch]:
    """Yields the state of the path, workers, logs, progress files, checkpoints and servers.

    Raises CollectError if the processes cannot be listed.
    """
    trees = Matcher({_key(run, one.name): one.match for one in run.workers}).find()
    if run.path is not None:
        yield _look(f"run {run.name}, path {run.path}", partial(_path, run.path), is_required=True)
    for worker in run.workers:
        pids = [process.pid for process in trees[_key(run, worker.name)].roots]
        shown = f" (pid {', '.join(map(str, pids[:MAX_PIDS]))})" if pids else ""
        observed = f"{len(pids)} of {worker.expected} expected processes{shown}"
        is_found = len(pids) >= max(1, worker.expected)
        yield HostMatch(f"run {run.name}, worker {worker.name}", observed, is_found)
    looks: list[tuple[str, Look]] = [
        *((f"log {log.name}", partial(_log, log, run, trees)) for log in log_specs(run)),
        *(
            (f"progress file {file.file.name}", partial(_progress, file))
            for file in progress_spec(run).files
        ),
        *(
            (f"checkpoint {one.layout.name}", partial(_checkpoint, one))
            for one in checkpoint_specs(run)
        ),
        *((f"server {one.name}", partial(_server, one, run, trees)) for one in run.inference),
    ]
    for entry, look in looks:
        yield _look(f"run {run.name}, {entry}", look)


def _look(entry: str, look: Look, *, is_required: bool = False) -> HostMatch:
    try:
        observed, is_found = run_with_timeout(TIMEOUT_SECONDS, look)
    except TimeoutError:
        observed, is_found = f"no answer within {format_duration(TIMEOUT_SECONDS)}", False
    except OSError as error:
        observed, is_found = error.strerror or str(error), False
    return HostMatch(entry, observed, is_found, is_required)


def _path(path: Path) -> tuple[str, bool]:
    if path.is_dir():
        return "exists", True
    return ("not a folder" if path.exists() else "does not exist"), False


def _log(spec: LogSpec, run: RunConfig, trees: Trees) -> tuple[str, bool]:
    def output_files(worker: str) -> Iterator[str]:
        for process in trees[_key(run, worker)].roots:
            yield from read_output_files(process.pid)

    files = [Path(path) for path, _ in find_log_files(spec, output_files)]
    if not files:
        return f"no file ({', '.join(spec.files)})", False
    age = time.time() - max(file.stat().st_mtime for file in files)
    newest = max(files, key=lambda file: file.stat().st_mtime)
    return f"{newest}, written {format_duration(max(0.0, age))} ago", True


def _progress(spec: ProgressFileSpec) -> tuple[str, bool]:
    progress = ProgressFileScanner(spec)()
    if progress is None:
        return f"no step in {spec.file.file}", False
    return f"step {progress.step}", True


def _checkpoint(spec: CheckpointSpec) -> tuple[str, bool]:
    snapshot = CheckpointScanner(spec)()
    newest = snapshot.result.newest
    if newest is None:
        folders = "a folder, but no complete checkpoint" if snapshot.folders else "no folder"
        return f"{folders} ({spec.layout.folder or '.'})", False
    age = format_duration(max(0.0, time.time() - newest.completed_at))
    return f"newest complete {newest.name.text}, {age} old", True


def _server(config: ServerConfig, run: RunConfig, trees: Trees) -> tuple[str, bool]:
    url = config.url or _url_of_worker(config, run, trees)
    if url is None:
        return "no address: its worker does not run, or its command line names no port", False
    parts = urlsplit(url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=SERVER_SECONDS)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/health")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer at {url} ({getattr(error, 'strerror', None) or error})", False
    finally:
        connection.close()
    return f"answers at {url} (GET /health: {status})", True


def _url_of_worker(config: ServerConfig, run: RunConfig, trees: Trees) -> str | None:
    if config.worker is None:
        return None
    for process in trees[_key(run, config.worker)].members:
        command = parse_server_command(read_command_line(process.pid) or ("",))
        if command is not None and (url := command.url()) is not None:
            return url
    return None


def _key(run: RunConfig, worker: str) -> WorkerKey:
    return WorkerKey(run.name, worker)
