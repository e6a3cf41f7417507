"""Collects what the processes of a run do while it makes no progress, by their stacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.stacks.members import find_members
from trainwarden_exporter.processes.stacks.model import Diagnosis, Movement, Stacks
from trainwarden_exporter.processes.stacks.py_spy import read_stacks
from trainwarden_exporter.processes.stacks.sampler import LOOK_SECONDS, ReadStacks, RunSampler
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

STALE_SECONDS = 60.0
"""Age of a look from which it says nothing any more: the kernel holds the process of the next."""

MOVED_SECONDS = 300.0
"""Seconds for which a run that moved counts as moving, unless it is stuck: a process that waits for
a moment at the end of an evaluation must not end its patience."""

TreeSource = Callable[[], Mapping[WorkerKey, ProcessTree]]

SilenceSource = Callable[[str], float | None]
"""The last sign of progress of a run (Unix seconds), if its silence is suspicious."""

_table = MetricTable("trainwarden_stack_", "run")
_gauge, _counter = _table.gauge, _table.counter

SAMPLES = _counter(
    "samples_total",
    "Attempts to read the stacks of a process, which are made only while the run makes no progress,"
    " by result: read, not_python, failed.",
    "result",
)
MOVEMENT = _gauge(
    "movement",
    "1 for what the processes of a run without progress do together, 0 for the others: moving,"
    " stuck (all wait, for each other or for a process of this host that stands still), unknown.",
    "movement",
)
STUCK_SINCE = _gauge(
    "stuck_since_timestamp_seconds", "Time at which the run was first found stuck."
)
PROCESSES = _gauge(
    "processes", "Processes of a run without progress by what they do.", "worker", "activity"
)
RANK = _gauge(
    "rank_activity",
    "1 for what a rank of a run without progress does.",
    "worker",
    "rank",
    "activity",
)
SUSPECT = _gauge(
    "suspect",
    "1 for the process for which the others of a run without progress wait.",
    "worker",
    "rank",
    "activity",
)
CHAIN = _gauge(
    "chain_info", "1 with the processes of a run without progress, and which waits for which.",
    "chain",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StackReport:
    """What a look at a run showed, and when (Unix seconds)."""

    run: str
    at: float
    silence: float
    """The last sign of progress before it."""
    diagnosis: Diagnosis
    stuck_since: float | None = None
    moved_at: float | None = None
    """When the run was last found moving in this silence."""


class StacksCollector(Collector):
    """Samples the stacks of each run in a thread of its own, while its silence is suspicious."""

    name = "stacks"
    metrics = _table.metrics

    def __init__(
        self,
        runs: Sequence[RunWorkers],
        *,
        trees: TreeSource,
        silence: SilenceSource,
        read_stacks: ReadStacks = read_stacks,
        interval: float = LOOK_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`trees` returns the processes of all workers at the last collection."""
        self._runs = tuple(run for run in runs if run.workers)
        self._trees = trees
        self._silence = silence
        self._read = read_stacks
        self._now = now
        self._samples: Counter[tuple[str, str]] = Counter()
        self._reports: dict[str, StackReport] = {}
        self._pollers = BackgroundPollers(
            {
                run.name: BackgroundPoller(
                    f"stacks of {run.name}",
                    partial(
                        self._look,
                        run,
                        RunSampler(read_stacks=partial(self._count, run.name)),
                    ),
                    interval=interval,
                )
                for run in self._runs
            }
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues the counts of `predecessor`, which looks no more."""
        self._samples.update(predecessor._samples)
        predecessor._pollers.close()

    def movement(self, run: str, silence: float | None) -> Movement:
        """Returns what the processes of `run` do since its last sign of progress, `silence`.

        Stuck only if two rounds of samples have shown it.
        """
        report = self._current(run)
        if report is None or report.silence != silence:
            return Movement.UNKNOWN
        if report.diagnosis.confirmed:
            return Movement.STUCK
        moved = report.moved_at is not None and self._now() - report.moved_at < MOVED_SECONDS
        return Movement.MOVING if moved else Movement.UNKNOWN

    def collect(self) -> Iterable[Family]:
        if not self._runs:
            raise NoData("no run with workers is configured")
        self._pollers.start()
        current = [self._current(run.name) for run in self._runs]
        self.artifacts = tuple(report for report in current if report is not None)
        return self.families(self._all_samples())

    def _all_samples(self) -> Iterator[Sample]:
        for run in self._runs:
            for result in ("read", "not_python", "failed"):
                yield SAMPLES, (run.name, result), self._samples[run.name, result]
        for report in self.artifacts:
            if isinstance(report, StackReport):
                yield from report_samples(report)

    def _current(self, run: str) -> StackReport | None:
        """Returns the last report on `run`, unless it is stale or the silence is over."""
        report = self._reports.get(run)
        if report is None or self._now() - report.at > STALE_SECONDS:
            return None
        return report if self._silence(run) == report.silence else None

    def _look(self, run: RunWorkers, sampler: RunSampler) -> None:
        silence = self._silence(run.name)
        if silence is None:
            sampler.reset()
            self._reports.pop(run.name, None)
            return
        began = self._now()
        diagnosis = sampler.look(silence, find_members(run, self._trees()))
        before = self._reports.get(run.name)
        if before is None or before.silence != silence:
            before = StackReport(run.name, began, silence, diagnosis)
        stuck = diagnosis.movement is Movement.STUCK
        moves = diagnosis.movement is Movement.MOVING
        self._reports[run.name] = StackReport(
            run.name,
            began,
            silence,
            diagnosis,
            stuck_since=(before.stuck_since or began) if stuck else None,
            moved_at=began if moves else before.moved_at,
        )

    def _count(self, run: str, pid: int, threads: int) -> Stacks:
        stacks = self._read(pid, threads)
        result = "read" if stacks.threads else "failed" if stacks.is_python else "not_python"
        self._samples[run, result] += 1
        return stacks


def report_samples(report: StackReport) -> Iterator[Sample]:
    """Yields the samples of a run whose silence is suspicious."""
    run, diagnosis = report.run, report.diagnosis
    for movement in Movement:
        yield MOVEMENT, (run, movement), movement is diagnosis.movement
    yield STUCK_SINCE, (run,), report.stuck_since
    counts = Counter((one.member.key.worker, one.activity) for one in diagnosis.findings)
    for (worker, activity), count in counts.items():
        yield PROCESSES, (run, worker, activity), count
    ranks = {
        (one.member.key.worker, str(one.member.rank), one.activity)
        for one in diagnosis.findings
        if one.member.rank is not None
    }
    for labels in sorted(ranks):
        yield RANK, (run, *labels), 1
    suspects = {
        (one.key.worker, "" if one.rank is None else str(one.rank), one.activity)
        for one in diagnosis.suspects
    }
    for labels in sorted(suspects):
        yield SUSPECT, (run, *labels), 1
    if diagnosis.chain:
        yield CHAIN, (run, redact(diagnosis.chain)), 1
