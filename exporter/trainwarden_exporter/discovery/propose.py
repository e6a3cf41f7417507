"""Makes of what was found on the box the runs that are worth watching. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainwarden_exporter.discovery.box import (
    WATCHERS,
    Box,
    LogSeen,
    Place,
    Server,
    part_of_runs,
    role_of,
)
from trainwarden_exporter.discovery.programs import Program, lines_above, topmost
from trainwarden_exporter.discovery.selectors import Selected, name_of, select
from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.base import Layout

_SHELLS = re.compile(r"(?:^|[/-])(?:(?:ba|da|z|k|fi)?sh|tmux\b.*|screen|sudo|make|uvx?|timeout)$")
"""Programs that start another one and are no part of anything."""

_ROLES = ("trainer", "inference", "orchestrator", "rollout", "environment", "launcher")
"""Words that say in a program's name what it is for."""


@dataclass(frozen=True, slots=True)
class ProposedWorker:
    selected: Selected
    role: str
    serves: bool = False
    """Whether its command line says that it is an inference server."""
    server: Server | None = None
    """The server it was seen to be, where its command line does not say so."""
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class ProposedLog:
    name: str
    seen: LogSeen
    worker: ProposedWorker | None = None


@dataclass(frozen=True, slots=True)
class ProposedRun:
    name: str
    place: Place | None
    workers: tuple[ProposedWorker, ...]
    logs: tuple[ProposedLog, ...] = ()
    """Beside those that the framework's layout knows."""

    @property
    def framework(self) -> str:
        recognised = None if self.place is None else self.place.recognised
        return "generic" if recognised is None else recognised.layout.name


def propose(box: Box, layouts: Sequence[Layout] = LAYOUTS) -> tuple[ProposedRun, ...]:
    """A run for each place, and one for the programs of known frameworks that work in none."""
    left = [program for program in box.programs if not WATCHERS.search(program.command)]
    known = set(part_of_runs(left, layouts))
    runs = []
    for place in box.places:
        inside = [program for program in left if program.works_in(place.path)]
        # what serves or steers a run need not know its folder
        others = [program for program in known if len(box.places) == 1 and program not in inside]
        chosen = _parts({*inside, *others}, box.programs, layouts)
        left = [program for program in left if program not in chosen]
        known -= set(chosen)
        runs.append(_run(place, chosen, box, layouts))
    if not box.places and known:
        chosen = _parts(known, box.programs, layouts)
        runs.append(_run(None, chosen, box, layouts))
    return tuple(_named_apart(runs))


def _run(
    place: Place | None,
    chosen: Sequence[Program],
    box: Box,
    layouts: Sequence[Layout],
) -> ProposedRun:
    recognised = None if place is None else place.recognised
    preferred = layouts if recognised is None else (recognised.layout, *layouts)
    workers = tuple(_worker(selected, box, preferred) for selected in select(chosen, box.programs))
    name = "training" if place is None else name_of(Program(0, (place.path.name or "training",)))
    logs = () if place is None else tuple(_logs(place, workers))
    return ProposedRun(name, place, workers, logs)


def _parts(
    programs: Collection[Program], everything: Collection[Program], layouts: Sequence[Layout]
) -> tuple[Program, ...]:
    """The parts of a run: the topmost of its programs, but for what only starts the parts."""
    above = lines_above(everything)
    below: dict[int, set[str]] = {program.pid: set() for program in programs}
    for program in programs:
        for pid in above[program.pid]:
            if pid in below:
                below[pid].add(name_of(program))

    def only_starts(program: Program) -> bool:
        others = below[program.pid] - {name_of(program)}
        if not others or role_of(program, layouts) is not None or _word(name_of(program)):
            return False
        # A launcher of one script, such as torchrun, is counted with it.
        return len(others) > 1 or _SHELLS.search(program.arguments[0]) is not None

    left = [program for program in programs if not only_starts(program)]
    return topmost(sorted(left, key=lambda one: one.pid), everything)


def _worker(selected: Selected, box: Box, layouts: Sequence[Layout]) -> ProposedWorker:
    first = selected.programs[0]
    server = next(
        (box.servers[one.pid] for one in selected.programs if one.pid in box.servers), None
    )
    if (role := role_of(first, layouts)) is not None:
        return ProposedWorker(selected, role.role, bool(role.engine), server, role.finishes)
    word = _word(selected.name)
    if server is not None:
        word = "inference"
    return ProposedWorker(selected, word or "worker", server=server, finishes=word == "trainer")


def _word(name: str) -> str:
    """What a program is for, where its name says so."""
    word = next((word for word in _ROLES if word in name.lower()), "")
    return "trainer" if not word and re.search(r"(?:^|[_-])train", name.lower()) else word


def _logs(place: Place, workers: Sequence[ProposedWorker]) -> Iterator[ProposedLog]:
    """What lies there, and what the workers write elsewhere; each with whoever writes it."""
    writers = {
        path: worker
        for worker in workers
        for program in worker.selected.programs
        for path in program.written[:2]
    }
    elsewhere = [LogSeen(path) for path in writers if not path.is_relative_to(place.path)]
    names: set[str] = set()
    for log in (*place.logs, *(elsewhere if place.recognised is None else ())):
        name = base = name_of(Program(0, (log.path.stem,)))
        number = 0
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names.add(name)
        yield ProposedLog(name, log, writers.get(log.path))


def _named_apart(runs: Iterable[ProposedRun]) -> Iterator[ProposedRun]:
    names: list[str] = []
    for run in runs:
        names.append(run.name)
        number = names.count(run.name)
        yield run if number == 1 else replace(run, name=f"{run.name}-{number}")
