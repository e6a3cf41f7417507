"""Derives proposed runs from a host scan. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden_exporter.discovery.host_scan import (
    DetectedServer,
    DiscoveredLog,
    HostScan,
    RunFolder,
    find_role,
)
from trainwarden_exporter.discovery.processes import Candidate, ancestor_pids, topmost
from trainwarden_exporter.discovery.programs import is_monitoring, is_tool, is_watchdog, runs_python
from trainwarden_exporter.discovery.selectors import SelectedWorker, select_workers, worker_name
from trainwarden_exporter.frameworks import FRAMEWORKS, get_framework
from trainwarden_exporter.frameworks.base import Framework
from trainwarden_exporter.inference.command_lines import parse_server_command

_SHELLS = re.compile(r"(?:^|[/-])(?:(?:ba|da|z|k|fi)?sh|tmux\b.*|screen|sudo|make|uvx?|timeout)$")
"""Programs that only start another one."""

_ROLES = ("trainer", "inference", "orchestrator", "rollout", "environment", "launcher")
"""Words in a program's name that indicate its role."""


@dataclass(frozen=True, slots=True)
class ProposedWorker:
    selected: SelectedWorker
    role: str
    serves: bool = False
    """Whether its command line identifies an inference server."""
    server: DetectedServer | None = None
    """The detected server, if its command line does not identify it."""
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class ProposedLog:
    name: str
    seen: DiscoveredLog
    worker: ProposedWorker | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The proposed runs, and what belongs to none of them."""

    runs: tuple[ProposedRun, ...]
    unclear: tuple[tuple[Candidate, str], ...] = ()
    """Programs that may belong to a run, with the reason why they are in none."""
    watchdogs: tuple[Candidate, ...] = ()
    watched: tuple[str, ...] = ()
    """The runs of `trainwarden run` that are left out."""


@dataclass(frozen=True, slots=True)
class ProposedRun:
    name: str
    run_folder: RunFolder
    workers: tuple[ProposedWorker, ...]
    logs: tuple[ProposedLog, ...] = ()
    """Logs in addition to those of the framework's layout."""


def propose(scan: HostScan) -> Proposal:
    """Proposes one run per folder; what no evidence connects to one run is listed beside them."""
    left = {
        candidate.pid: candidate
        for candidate in scan.candidates
        if not is_monitoring(candidate) and not is_tool(candidate) and not is_watchdog(candidate)
    }
    members: list[dict[int, Candidate]] = []
    for run_folder in scan.run_folders:
        mapped = [pid for pid, path in scan.trainers.items() if path == run_folder.path]
        inside = mapped or [pid for pid, one in left.items() if one.uses_folder(run_folder.path)]
        members.append({pid: left.pop(pid) for pid in inside if pid in left})
    unclear: list[tuple[Candidate, str]] = []
    for candidate in topmost(list(left.values()), scan.candidates):
        is_known = (
            find_role(candidate) is not None
            or candidate.pid in scan.servers
            or parse_server_command(candidate.arguments) is not None
        )
        fitting = _fitting_runs(candidate, scan, members, is_known=is_known)
        if len(fitting) == 1 and (is_known or runs_python(candidate)):
            members[fitting[0]][candidate.pid] = candidate
        elif len(fitting) > 1 and is_known:
            unclear.append((candidate, "fits several runs"))
        elif is_known:
            unclear.append((candidate, "no connection to a run was found"))
    runs = [
        _run(run_folder, _parts(list(inside.values()), scan.candidates), scan)
        for run_folder, inside in zip(scan.run_folders, members, strict=True)
    ]
    watchdogs = tuple(one for one in scan.candidates if is_watchdog(one) and not is_tool(one))
    return Proposal(
        tuple(_with_unique_names(runs)),
        tuple(unclear),
        topmost(watchdogs, scan.candidates),
        scan.watched,
    )


def _fitting_runs(
    candidate: Candidate,
    scan: HostScan,
    members: Sequence[Mapping[int, Candidate]],
    *,
    is_known: bool,
) -> list[int]:
    """Returns the indexes of the runs that `candidate` may belong to, by the strongest evidence.

    A connection, a named port or a folder of the run's own is strong. A session or cgroup shared
    with the run is weak: a terminal may have started several runs.
    """
    numbers = range(len(members))
    strong = [
        index
        for index in numbers
        if _is_connected(candidate, scan, members[index].values())
        or _uses_own_folder(candidate, scan.run_folders[index])
    ]
    if strong or not is_known:
        return strong
    return [
        index
        for index in numbers
        if any(
            one.user == candidate.user
            and (0 != one.session == candidate.session or "" != one.cgroup == candidate.cgroup)
            for one in members[index].values()
        )
    ]


def _is_connected(candidate: Candidate, scan: HostScan, members: Iterable[Candidate]) -> bool:
    """Whether a process of the run is connected to a port of `candidate`, or names it."""
    above = ancestor_pids(scan.candidates)
    tree = {candidate.pid, *(pid for pid, up in above.items() if candidate.pid in up)}
    ports = {port for pid in tree for port in scan.ports.get(pid, ())}
    command = parse_server_command(candidate.arguments)
    if command is not None and command.port:
        ports.add(command.port)
    if not ports:
        return False
    named = re.compile(rf"(?:port|host|url|http|server|:)\S*?[ =:](?:{_any(ports)})(?!\d)")
    for member in members:
        pids = {member.pid, *(pid for pid, up in above.items() if member.pid in up)}
        if any(ports & scan.clients.get(pid, frozenset()) for pid in pids):
            return True
        if named.search(member.command):
            return True
    return False


def _any(ports: Collection[int]) -> str:
    return "|".join(map(str, sorted(ports)))


def _uses_own_folder(candidate: Candidate, run_folder: RunFolder) -> bool:
    """Whether the process uses the folder of the run, and that is not shared by others."""
    return not run_folder.is_shared and candidate.uses_folder(run_folder.path)


def _run(run_folder: RunFolder, chosen: Sequence[Candidate], scan: HostScan) -> ProposedRun:
    preferred = (get_framework(run_folder.framework), *FRAMEWORKS)
    workers = tuple(
        _worker(selected, scan, preferred) for selected in select_workers(chosen, scan.candidates)
    )
    name = worker_name(Candidate(0, (_run_name(run_folder.path),)))
    return ProposedRun(name, run_folder, workers, tuple(_logs(run_folder, workers)))


def _run_name(path: Path) -> str:
    """Returns the name of the folder, or of the one above if it only says what is in it."""
    name = path.parent.name if _CONTENT.fullmatch(path.name) else path.name
    return name or path.name or "training"


_CONTENT = re.compile(
    r"(?:ck|ckpts?|checkpoints?|out|outputs?|(?:lightning_)?logs?|runs?|results?|saved?|models?)",
    re.IGNORECASE,
)


def _parts(
    candidates: Collection[Candidate], all_candidates: Collection[Candidate]
) -> tuple[Candidate, ...]:
    """Returns the topmost processes of a run, except pure launchers of others."""
    above = ancestor_pids(all_candidates)
    below: dict[int, set[str]] = {candidate.pid: set() for candidate in candidates}
    for candidate in candidates:
        for pid in above[candidate.pid]:
            if pid in below:
                below[pid].add(worker_name(candidate))

    def only_starts(candidate: Candidate) -> bool:
        others = below[candidate.pid] - {worker_name(candidate)}
        if (
            not others
            or find_role(candidate) is not None
            or _role_from_name(worker_name(candidate))
        ):
            return False
        # A launcher of one script, such as torchrun, counts as part of it.
        return len(others) > 1 or _SHELLS.search(candidate.arguments[0]) is not None

    left = [candidate for candidate in candidates if not only_starts(candidate)]
    return topmost(sorted(left, key=lambda one: one.pid), all_candidates)


def _worker(
    selected: SelectedWorker, scan: HostScan, frameworks: Sequence[Framework]
) -> ProposedWorker:
    first = selected.candidates[0]
    server = next(
        (scan.servers[one.pid] for one in selected.candidates if one.pid in scan.servers), None
    )
    if (role := find_role(first, frameworks)) is not None:
        return ProposedWorker(selected, role.role, bool(role.engine), server, role.finishes)
    role_word = _role_from_name(selected.name)
    if server is not None:
        role_word = "inference"
    elif not role_word and _is_trainer(selected, scan):
        role_word = "trainer"
    return ProposedWorker(
        selected, role_word or "worker", server=server, finishes=role_word == "trainer"
    )


def _is_trainer(selected: SelectedWorker, scan: HostScan) -> bool:
    """Whether the worker trains itself or, as `conda run`, started what does."""
    above = ancestor_pids(scan.candidates)
    trees = {pid for trainer in scan.trainers for pid in (trainer, *above.get(trainer, ()))}
    return any(one.pid in trees for one in selected.candidates)


def _role_from_name(name: str) -> str:
    role_word = next((role_word for role_word in _ROLES if role_word in name.lower()), "")
    return "trainer" if not role_word and re.search(r"(?:^|[_-])train", name.lower()) else role_word


def _logs(run_folder: RunFolder, workers: Sequence[ProposedWorker]) -> Iterator[ProposedLog]:
    """Yields the logs in the folder and the workers' logs elsewhere, with their writers."""
    writers = {
        path: worker
        for worker in workers
        for candidate in worker.selected.candidates
        for path in candidate.outputs
    }
    known = {log.path: log for log in run_folder.logs}
    for path in writers:
        known.setdefault(path, DiscoveredLog(path))
    if run_folder.framework != "generic":
        yield from _framework_logs(run_folder, known, writers)
        return
    names: set[str] = set()
    for log in known.values():
        name = base = worker_name(Candidate(0, (log.path.stem,)))
        number = 0
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names.add(name)
        yield ProposedLog(name, log, writers.get(log.path))


def _framework_logs(
    run_folder: RunFolder,
    known: Mapping[Path, DiscoveredLog],
    writers: Mapping[Path, ProposedWorker],
) -> Iterator[ProposedLog]:
    """Yields the logs outside the folder of the run.

    If none is inside, the first stands for the framework's first log; otherwise it would replace
    the log with the steps by that of the console.
    """
    layouts = get_framework(run_folder.framework).logs
    outside = [path for path in known if not path.is_relative_to(run_folder.path)]
    for index, path in enumerate(outside):
        replaces = layouts and not index and len(outside) == len(known)
        name = layouts[0].name if replaces else path.stem
        safe = worker_name(Candidate(0, (name,)))
        yield ProposedLog(safe, DiscoveredLog(path), writers.get(path))


def _with_unique_names(runs: Iterable[ProposedRun]) -> Iterator[ProposedRun]:
    names: list[str] = []
    for run in runs:
        names.append(run.name)
        number = names.count(run.name)
        yield run if number == 1 else replace(run, name=f"{run.name}-{number}")
