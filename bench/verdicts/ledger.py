"""Holds the exporter's account of each modelled run against what the run truly did.

python -m verdicts.ledger          # from the folder bench; writes docs/ledger.md
python -m verdicts.ledger --every 10 --only-print
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from trainwarden_exporter.progress.run_time import RunState
from verdicts.box import Happening
from verdicts.cases import Case, cases, live, spread
from verdicts.faults_box import boot
from verdicts.healthy import Night
from verdicts.page import BASE
from verdicts.run import Run
from verdicts.shapes import RUN
from verdicts.table_healthy import STEADY
from verdicts.table_run import SHORT


@dataclass(frozen=True, slots=True)
class Account:
    """The ledger of one run beside the truth. Seconds."""

    case: Case
    whole: float
    """From the first look to the end."""
    behind: float
    """Of that not counted yet."""
    counted: dict[RunState, float]
    least: dict[RunState, float]
    """True seconds of the time that is counted, as far as the exporter could see them;"""
    most: dict[RunState, float]
    """and all of them, with the unseen ones for `unknown`."""
    steps: tuple[int, int, int]
    """Made, redone and lost, as counted;"""
    true_steps: tuple[int, int, int]
    """and truly, at the last look."""
    tells_steps: bool
    """Whether its log has a line for each step."""

    def error(self, state: RunState) -> float:
        """By how much of the wall clock the time in `state` is wrong."""
        counted = self.counted.get(state, 0.0)
        wrong = max(counted - self.most.get(state, 0.0), self.least.get(state, 0.0) - counted, 0.0)
        return wrong / self.whole

    @property
    def missing(self) -> float:
        """By how much of the wall clock the states do not add up to what is counted."""
        return abs(sum(self.counted.values()) - (self.whole - self.behind)) / self.whole

    @property
    def worst(self) -> float:
        return max(self.missing, *(self.error(state) for state in RunState))

    @property
    def steps_right(self) -> bool:
        return not self.tells_steps or self.steps == self.true_steps


def account(case: Case) -> Account:
    """Plays the case. Raises BenchError."""
    run, _ = live(case, kept=True)
    box = run.box
    spent = box.tracker.save()[RUN]
    if box.state_folder is not None:
        shutil.rmtree(box.state_folder, ignore_errors=True)
    counted_until = spent.counted_until - box.offset
    least: dict[RunState, float] = {}
    most: dict[RunState, float] = {}
    for start, end, state, visible in box.truth.spans(counted_until):
        most[state] = most.get(state, 0.0) + end - start
        seen = least if visible else most
        known = state if visible else RunState.UNKNOWN
        seen[known] = seen.get(known, 0.0) + end - start
    truth = box.truth
    return Account(
        case,
        box.world - truth.looks[0],
        box.world - counted_until,
        dict(spent.seconds),
        least,
        most,
        (spent.steps_made, spent.steps_redone, spent.steps_lost),
        (truth.made, truth.redone, truth.lost) if box.exporter_up else truth.seen,
        box.known.step_line() is not None and box.shape.logged,
    )


def _dies(run: Run, *, lost: int) -> Happening:
    """It dies, and is resumed after some minutes, `lost` steps before."""
    resumes_at = max(0, run.step - lost)
    run.end()
    run.trainer.end(1)
    yield run.box.rng.uniform(20, 300)
    run.begin(resumed=resumes_at, compile_seconds=run.box.rng.uniform(20, 120))


def dies_often(run: Run) -> Happening:
    """Each time it gets less far than before, so it makes some steps three times."""
    for lost, lasts in ((30, 1), (12, 2), (9, 900)):
        yield from _dies(run, lost=lost)
        yield 120.0 + lasts * 8 * run.box.shape.step


def exporter_away(run: Run) -> Happening:
    """For some minutes nobody looks; the run goes on, and its lines are read afterwards."""
    run.box.exporter_up = False
    yield run.box.rng.uniform(120, 900)
    run.box.exporter_begins()


def dies_unseen(run: Run) -> Happening:
    """While nobody looks it dies, and is started again."""
    run.box.exporter_up = False
    yield 200.0
    yield from _dies(run, lost=10)
    yield 200.0
    run.box.exporter_begins()


def reboots(run: Run) -> Happening:
    """The host reboots, and the run is resumed some minutes later."""
    resumes_at = max(0, run.step - 10)
    yield from boot(run)
    yield run.box.rng.uniform(10, 600)
    for worker in run.box.workers:
        if worker is not run.trainer:
            worker.begin(run.box.now)
    for server in run.box.servers:
        server.state = "ok"
    run.begin(resumed=resumes_at, compile_seconds=60.0)


def clock_jumps(run: Run, *, by: float) -> Happening:
    run.box.clock_sets.append((run.box.now - BASE, by))
    yield 0.0


def _night(name: str, happens: Callable[[Run], Happening], length: float = 3600.0) -> Night:
    return Night(name, happens, length, needs={**SHORT, "search": False}, frameworks=STEADY)


WATCHED_BADLY: tuple[Night, ...] = (
    _night("dies again and again, and resumes from before", dies_often),
    _night("goes on while the exporter is away", exporter_away),
    _night("dies and is resumed while the exporter is away", dies_unseen),
    _night("is resumed after a reboot", reboots),
    _night("its clock is set forward by an hour", partial(clock_jumps, by=3600.0), 7200.0),
    _night("its clock is set back by an hour", partial(clock_jumps, by=-3600.0)),
)
"""Besides the nights of the verdicts: what is hard to account for, and raises no other alert."""


def chosen(seed: int, healthy: int, faulty: int, badly: int) -> tuple[Case, ...]:
    known = cases(seed, healthy=healthy, faulty=faulty)
    return (*known, *spread(seed, WATCHED_BADLY, badly, after=len(known)))


def accounts(of: Iterable[Case], *, workers: int) -> list[Account]:
    """Plays all cases, `workers` at a time. Raises BenchError."""
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(account, of))


def main() -> int:
    """0 when the states add up in each run."""
    from verdicts.__main__ import FAULTY, HEALTHY, SEED  # noqa: PLC0415 - it imports the rule engine
    from verdicts.ledger_cost import measure  # noqa: PLC0415 - only here
    from verdicts.ledger_page import PAGE, page  # noqa: PLC0415 - it imports this module

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--healthy", type=int, default=HEALTHY)
    parser.add_argument("--faulty", type=int, default=FAULTY)
    parser.add_argument("--badly", type=int, default=8 * len(WATCHED_BADLY))
    parser.add_argument("--every", type=int, default=1, help="only every so manieth case")
    parser.add_argument("--match", default="", help="only cases with this in their name")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only-print", action="store_true", help="leave docs/ledger.md alone")
    options = parser.parse_args()
    began = time.monotonic()
    known = chosen(options.seed, options.healthy, options.faulty, options.badly)
    done = accounts(known[:: options.every], workers=options.processes)
    text = page(done, options.seed, measure())
    if options.only_print:
        print(text)
    else:
        PAGE.write_text(text)
    print(f"{len(done)} runs in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 0 if all(one.missing <= 0.01 for one in done) else 1  # noqa: PLR2004 - the promise


if __name__ == "__main__":
    sys.exit(main())
