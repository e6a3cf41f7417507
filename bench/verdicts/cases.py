"""The cases of the bench, each from a seed of its own, and the series that they make."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

from verdicts.box import Box, play
from verdicts.engine import waits_longer
from verdicts.faults import Expected, Fault
from verdicts.healthy import Night
from verdicts.page import BASE, SCRAPE, Value
from verdicts.run import Run
from verdicts.settling import settle
from verdicts.shapes import FRAMEWORK_NAMES, Shape, draw
from verdicts.table_box import BOX_FAULTS
from verdicts.table_healthy import NIGHTS
from verdicts.table_own import OWN_FAULTS
from verdicts.table_parts import PART_FAULTS
from verdicts.table_run import RUN_FAULTS
from verdicts.table_servers import SERVER_FAULTS

FAULTS: tuple[Fault, ...] = RUN_FAULTS + SERVER_FAULTS + PART_FAULTS + BOX_FAULTS + OWN_FAULTS
QUIET = (300.0, 900.0)
"""Seconds of scrapes before something happens."""
SLACK = 900.0
"""Seconds that a fault may wait for a moment that suits it."""
FOR_EVER = 10**6


class BenchError(Exception):
    """A fault that never struck, or a case that cannot be made."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what happens to it, on which framework, by which seed."""

    number: int
    seed: str
    framework: str
    what: Fault | Night

    @property
    def faulty(self) -> bool:
        return isinstance(self.what, Fault)

    @property
    def name(self) -> str:
        return self.what.name

    @property
    def instance(self) -> str:
        return f"box{self.number}"


@dataclass(frozen=True, slots=True)
class Due:
    """What is expected, and by when (seconds from the fault)."""

    expected: Expected
    within: float


@dataclass(frozen=True, slots=True)
class Played:
    """The series of a case, and what is to be judged about them."""

    case: Case
    series: Mapping[str, Sequence[Value]]
    length: float
    began: float
    """When it began to happen, in seconds since the first scrape."""
    struck: float
    """When the fault was there."""
    due: tuple[Due, ...]
    unjudged: frozenset[float]
    """Moments at which no Prometheus ran."""


def cases(seed: int, *, healthy: int, faulty: int) -> tuple[Case, ...]:
    """So many of each, spread evenly over what there is."""
    return (*spread(seed, NIGHTS, healthy), *spread(seed, FAULTS, faulty, after=healthy))


def spread(
    seed: int, kinds: Sequence[Fault | Night], count: int, *, after: int = 0
) -> Iterator[Case]:
    """So many cases of all kinds in turn, numbered from `after`."""
    for turn in range(count):
        what = kinds[turn % len(kinds)]
        own = f"{seed}/{what.name}/{turn // len(kinds)}"
        frameworks = what.frameworks or FRAMEWORK_NAMES
        number = turn // len(kinds) + random.Random(own).randrange(len(frameworks))  # noqa: S311 - no secret
        yield Case(after + turn, own, frameworks[number % len(frameworks)], what)


def _shape(case: Case, rng: random.Random) -> Shape:
    shape = draw(rng, case.framework)
    shape = replace(shape, **case.what.needs)  # type: ignore[arg-type] # tests hold them to fields
    return replace(shape, save=min(shape.save, 0.5 * shape.save_every))


def simulate(case: Case) -> Played:
    """Play the case. Raises BenchError for a fault that never struck."""
    return live(case)[1]


def live(case: Case, *, kept: bool = False) -> tuple[Run, Played]:
    """The same, and the run; `kept` is whether its exporter has a state folder all along."""
    night = case.what if isinstance(case.what, Night) else None
    rng, run = _settled(case, FOR_EVER, kept=kept)
    if night is not None and night.steps_left is not None:
        total = run.step + night.steps_left  # which its bar has had from the beginning
        _forget(run.box)
        rng, run = _settled(case, total, kept=kept)
    if case.what.prepare is not None:
        case.what.prepare(run)
    if run.finished:
        raise BenchError(f"{case.name} ({case.seed}) is over before it begins")
    quiet = rng.uniform(*QUIET)
    due: tuple[Due, ...] = ()
    if night is not None:
        length = night.length
        run.box.spawn(night.happens(run), quiet)
        play(run.box, length=length)
        struck = quiet
    else:
        struck, due, length = _strike(case, run, quiet)
    box = run.box
    _forget(box)
    return run, Played(
        case,
        {**box.page.series, **box.remediator_page.series},
        length,
        quiet,
        struck,
        due,
        frozenset(box.unjudged),
    )


def _settled(case: Case, total: int, *, kept: bool) -> tuple[random.Random, Run]:
    rng = random.Random(case.seed)  # noqa: S311 - no secret depends on it
    shape = _shape(case, rng)
    night = case.what if isinstance(case.what, Night) else None
    fault = case.what if isinstance(case.what, Fault) else None
    age = rng.uniform(7200, 9000) if fault is not None and fault.old else rng.uniform(2700, 4500)
    if night is not None and night.young:
        age = 5.0
    folder = Path(mkdtemp(prefix="verdicts-")) if kept else None
    return rng, settle(case.instance, rng, shape, age=age, total=total, folder=folder)


def _forget(box: Box) -> None:
    if box.state_folder is not None:
        shutil.rmtree(box.state_folder)


def _strike(case: Case, run: Run, quiet: float) -> tuple[float, tuple[Due, ...], float]:
    fault, box = case.what, run.box
    assert isinstance(fault, Fault)  # noqa: S101 - asked before
    found: list[tuple[float, tuple[Due, ...]]] = []

    def strike() -> None:
        if found:
            return
        due = tuple(
            Due(
                one,
                (one.within(run) if callable(one.within) else one.within)
                + waits_longer(one.alert, one.severity),
            )
            for one in fault.expected
        )
        found.append((box.now - BASE, due))
        box.ends = box.now - BASE + fault.watch

    box.spawn(fault.happens(run, strike), quiet)
    play(box, length=quiet + 4 * SLACK + fault.watch)
    if not found:
        raise BenchError(f"{case.name} ({case.seed}, {case.framework}) never struck")
    struck, due = found[0]
    return struck, due, box.page.length * SCRAPE
