"""Finds the servers of a run in its workers' processes, and which process is which server.

A server that was found once stays on the roster when its process is gone, for then it is down; a
new process that takes its place may listen elsewhere and is the same server.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.finding import (
    Candidate,
    Found,
    assign,
    find_servers,
    start_of,
    youngest,
)
from trainwarden_exporter.inference.servingcommand import parse_serving_command
from trainwarden_exporter.inference.target import Target
from trainwarden_exporter.inference.verdict import ProcessFact
from trainwarden_exporter.layouts import layout
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, Tree, WorkerKey
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    read_command_line,
    start_timestamp,
)
from trainwarden_exporter.processes.sockets import read_listeners
from trainwarden_exporter.watching import Watch

log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds from one look at the processes to the next."""

UNKNOWN_ENGINE = "generic"
_STALE = 3 * INTERVAL


class InferenceRun(Protocol):
    """What of a run's configuration concerns its servers."""

    @property
    def name(self) -> str: ...
    @property
    def framework(self) -> str: ...
    @property
    def workers(self) -> tuple[WorkerConfig, ...]: ...
    @property
    def inference(self) -> tuple[ServerConfig, ...]: ...


@dataclass(frozen=True, slots=True)
class View:
    """The servers there are to watch, and when the process of each started; None for no process."""

    targets: tuple[Target, ...] = ()
    started: Mapping[Target, float | None] = field(default_factory=dict)


class Roster:
    """Knows what servers there are; looks for those without an address in a thread of its own."""

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
        self._known: dict[tuple[str, str], list[Found | None]] = {}
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
        self._watch = Watch("inference servers", self.look, interval=INTERVAL, now=now)

    def adopt(self, predecessor: Self) -> None:
        """Remember the servers that `predecessor` found, so that one which is down stays known."""
        self._known = {**predecessor._known, **self._known}
        predecessor.close()

    def close(self) -> None:
        """Look no more."""
        self._watch.close()

    def view(self, *, patience: float) -> View:
        """What is known now; the first look is waited for at most `patience` seconds."""
        if not self._wants_processes:
            return View(tuple(_fixed(run, server) for run, server in self._servers()))
        seen = self._watch.seen(patience=patience)
        if seen is None:
            return View(tuple(_fixed(run, server) for run, server in self._servers() if server.url))
        return seen.value

    def process(self, target: Target) -> ProcessFact | None:
        """What is known of the process of `target`; returns at once."""
        seen = self._watch.seen(patience=0) if self._wants_processes else None
        if seen is None or target not in seen.value.started:
            return None
        if self._watch.failure is not None or self._now() - seen.timestamp > _STALE:
            return None
        started = seen.value.started[target]
        return ProcessFact(started, 0.0 if started is None else self._now() - started)

    def look(self) -> View:
        """Look at all processes once. Raises CollectError when they cannot be listed."""
        trees = self._matcher.find()
        self._forget(trees.values())
        targets: dict[tuple[str, str], Target] = {}
        started: dict[Target, float | None] = {}
        for run, server in self._servers():
            tree = trees.get(WorkerKey(run.name, server.worker or ""), Tree())
            candidates = self._candidates(tree) if server.worker else []
            for target, start in self._targets(run, server, candidates):
                first = targets.setdefault((target.run, target.server), target)
                if first is target and server.worker:
                    started[target] = start
        return View(tuple(targets.values()), started)

    def _servers(self) -> Iterator[tuple[InferenceRun, ServerConfig]]:
        return ((run, server) for run in self._runs for server in run.inference)

    def _targets(
        self, run: InferenceRun, server: ServerConfig, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Target, float | None]]:
        if server.url is not None:
            yield _fixed(run, server), start_of(server.url, candidates)
            return
        expected = next((one.expected for one in run.workers if one.name == server.worker), 1)
        found = find_servers(server.engine, candidates, engine_patterns(run.framework))
        key = (run.name, server.name)
        known = self._known[key] = assign(self._known.get(key, []), found, expected)
        living = {one.url: one.started for one in found}
        for index, one in enumerate(known):
            name = server.name if index == 0 and expected <= 1 else f"{server.name}-{index}"
            if one is None:
                engine = server.engine or UNKNOWN_ENGINE
                yield Target(run.name, name, engine, None, server), youngest(candidates)
            else:
                target = Target(
                    run.name, name, one.engine, one.url, server, one.metrics_url, one.model
                )
                yield target, living.get(one.url)

    def _candidates(self, tree: Tree) -> list[Candidate]:
        """The living processes of a worker; their ports only where the command does not say."""
        living = [process for process in tree.members if process.alive]
        roots = {process.identity for process in tree.roots}
        candidates = {}
        for process in living:
            arguments = self._arguments(process)
            candidates[process.pid] = Candidate(
                start_timestamp(process.identity),
                arguments,
                parse_serving_command(arguments),
                root=process.identity in roots,
            )
        if not any(one.serving and one.serving.port for one in candidates.values()):
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

    def _forget(self, trees: Iterable[Tree]) -> None:
        members = (process for tree in trees for process in tree.members)
        alive = {(process.identity, process.exec_mark) for process in members}
        self._commands = {key: line for key, line in self._commands.items() if key in alive}


def _fixed(run: InferenceRun, server: ServerConfig) -> Target:
    return Target(run.name, server.name, server.engine or UNKNOWN_ENGINE, server.url, server)


def engine_patterns(framework: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """How the engines that a framework starts itself look in a command line, by the layout."""
    try:
        roles = layout(framework).roles
    except ValueError:
        return ()
    return tuple((role.engine, re.compile(role.command)) for role in roles if role.engine)
