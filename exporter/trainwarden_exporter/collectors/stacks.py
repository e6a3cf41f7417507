"""Collects what the processes of a run do while it makes no progress, by their stacks."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import NamedTuple, Self

from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import ProcessTree, WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.endings import ScriptEnd, script_end
from trainwarden_exporter.processes.stacks.members import find_members
from trainwarden_exporter.processes.stacks.model import Activity, Diagnosis, Movement, Stacks
from trainwarden_exporter.processes.stacks.py_spy import read_stacks
from trainwarden_exporter.processes.stacks.sampler import LOOK_SECONDS, RunSampler
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers
from trainwarden_exporter.runtime.redaction import redact
from trainwarden_exporter.scrape.collector import Collector, Family, MetricTable, Sample

STALE_SECONDS = 60.0
"""Age of a look from which it says nothing any more: the kernel holds the process of the next."""

MOVED_SECONDS = 300.0
"""Seconds for which a run that moved counts as moving, unless it is stuck: a process that waits for
a moment at the end of an evaluation must not end its patience."""

LASTING = {
    Activity.MOVING: MOVED_SECONDS,
    Activity.SLEEP: MOVED_SECONDS,
    Activity.PROMPT: math.inf,
}
"""Seconds for which a process counts as doing this until anything else is seen of it: a sample that
fails and a late look must not end the patience with an evaluation, or with a debugger."""

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
    " stuck (all wait, for each other or for a process of this host that stands still), unknown,"
    " undecided (silent since before a start of the exporter, or before it was suspended, and"
    " looked at for too short a time since: it counts as moving).",
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


class Seen(NamedTuple):
    """What a process was last seen doing, and when (Unix seconds)."""

    activity: Activity
    at: float


LastSeen = Mapping[tuple[str, Identity], Seen]  # by worker and process


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
    seen: LastSeen = field(default_factory=dict)

    def has_moved(self, now: float) -> bool:
        return self.moved_at is not None and now - self.moved_at < MOVED_SECONDS

    def movement(self, now: float) -> Movement:
        """Returns what the processes do together; what moved just before still moves."""
        shown = self.diagnosis.movement
        return Movement.MOVING if shown is Movement.UNKNOWN and self.has_moved(now) else shown


class _WatchedRun:
    """What is known of the processes of one run; it survives a reload while its workers do."""

    def __init__(self, run: RunWorkers, since: float) -> None:
        self.run = run
        self._since = since
        """When it was first watched, or again after a pause of the exporter (Unix seconds)."""
        self._awake_at = since
        self.looking = Lock()
        self.looked_at = -math.inf
        """When the last look began (monotonic)."""
        self.report: StackReport | None = None
        self.samples: Counter[str] = Counter()
        """Attempts to read a stack, by result."""
        self.sampler = RunSampler(read_stacks=self._count)

    def wake(self, now: float) -> None:
        """Begins the watch again after a time in which the exporter, or its host, was suspended.

        For each look and each scrape: neither a look that the kernel holds nor a Prometheus that
        asks no more is such a time.
        """
        if now - self._awake_at > STALE_SECONDS:
            self._since = now
        self._awake_at = now

    def is_undecided(self, silence: float, now: float) -> bool:
        """Whether the looks at a silence are too few to say that nothing moves.

        So of a silence from before they began, for as long as what moved counts as moving: the
        exporter before may have seen it move, and knew a longer limit for it.
        """
        return silence < self._since - STALE_SECONDS and now - self._since < MOVED_SECONDS

    def _count(self, pid: int, threads: int) -> Stacks:
        stacks = read_stacks(pid, threads)
        result = "read" if stacks.threads else "failed" if stacks.is_python else "not_python"
        self.samples[result] += 1
        return stacks


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
        interval: float = LOOK_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`trees` returns the processes of all workers at the last collection."""
        since = now()
        self._watched = {run.name: _WatchedRun(run, since) for run in runs if run.workers}
        self._trees = trees
        self._silence = silence
        self._interval = interval
        self._now = now
        self._pollers = BackgroundPollers(
            {
                name: BackgroundPoller(
                    f"stacks of {name}", partial(self._look, name), interval=interval
                )
                for name in self._watched
            }
        )

    def take_over_from(self, predecessor: Self) -> None:
        """Continues the rounds and the counts of `predecessor`, which begins no other look.

        Any run of the host that starts or ends is a reload: the proof that another one hangs must
        not begin again with each.
        """
        for name, own in self._watched.items():
            before = predecessor._watched.get(name)
            if before is not None and before.run == own.run:
                self._watched[name] = before
            elif before is not None:
                own.samples.update(before.samples)
        predecessor._pollers.close()

    def movement(self, run: str, silence: float | None) -> Movement:
        """Returns what the processes of `run` do since its last sign of progress, `silence`.

        Stuck only if two rounds of samples have shown it. What is undecided counts as moving.
        """
        undecided = self._is_undecided(run)
        if silence is None or self._silence(run) != silence:
            return Movement.UNKNOWN
        report = self._current(run)
        if report is not None and report.diagnosis.confirmed:
            return Movement.STUCK
        moved = report is not None and report.has_moved(self._now())
        return Movement.MOVING if moved or undecided else Movement.UNKNOWN

    def _is_undecided(self, run: str) -> bool:
        watched, silence = self._watched.get(run), self._silence(run)
        if watched is None:
            return False
        watched.wake(now := self._now())
        return silence is not None and watched.is_undecided(silence, now)

    def script_end(self, run: str, silence: float | None) -> ScriptEnd | None:
        """Returns how the script of `run` is over since its last sign of progress, `silence`."""
        report = self._current(run)
        if report is None or report.silence != silence:
            return None
        return script_end(report.diagnosis)

    def collect(self) -> Iterable[Family]:
        if not self._watched:
            raise NoData("no run with workers is configured")
        self._pollers.start()
        current = [self._current(run) for run in self._watched]
        self.artifacts = tuple(report for report in current if report is not None)
        return self.families(self._all_samples())

    def _all_samples(self) -> Iterator[Sample]:
        for run, watched in self._watched.items():
            for result in ("read", "not_python", "failed"):
                yield SAMPLES, (run, result), watched.samples[result]
        reports = {one.run: one for one in self.artifacts if isinstance(one, StackReport)}
        for run in self._watched:
            undecided = self._is_undecided(run)
            if (report := reports.get(run)) is not None:
                yield from report_samples(report, self._now(), undecided=undecided)
            elif undecided:
                yield from movement_samples(run, Movement.UNDECIDED)

    def _current(self, run: str) -> StackReport | None:
        """Returns what the last report on `run` still says; None once the silence is over."""
        watched, now = self._watched.get(run), self._now()
        report = None if watched is None else watched.report
        if report is None or self._silence(run) != report.silence:
            return None
        if now - report.at <= STALE_SECONDS:
            return report
        seen, stuck = lasting(report.seen, now), report.diagnosis.movement is Movement.STUCK
        lasts = not stuck and (seen or report.has_moved(now))
        return replace(report, diagnosis=Diagnosis(Movement.UNKNOWN), seen=seen) if lasts else None

    def _look(self, run: str) -> None:
        watched = self._watched[run]
        watched.wake(self._now())
        # The last look of the predecessor may not be over: its next one is made here.
        if not watched.looking.acquire(blocking=False):
            return
        try:
            # The samples of a round lie an interval apart, also across a reload.
            if time.monotonic() - watched.looked_at >= self._interval:
                watched.looked_at = time.monotonic()
                watched.report = self._report(watched)
        finally:
            watched.looking.release()

    def _report(self, watched: _WatchedRun) -> StackReport | None:
        """Looks at a run, and returns what is known of it then; None while it is not silent."""
        run, before = watched.run.name, watched.report
        silence = self._silence(run)
        if silence is None:
            watched.sampler.reset()
            return None
        began = self._now()
        diagnosis = watched.sampler.look(silence, find_members(watched.run, self._trees()))
        if before is None or before.silence != silence:
            before = StackReport(run, began, silence, diagnosis)
        stuck = diagnosis.movement is Movement.STUCK
        moves = diagnosis.movement is Movement.MOVING
        return StackReport(
            run,
            began,
            silence,
            diagnosis,
            stuck_since=(before.stuck_since or began) if stuck else None,
            moved_at=began if moves else before.moved_at,
            seen=last_seen(diagnosis, before.seen, began),
        )


def last_seen(diagnosis: Diagnosis, before: LastSeen, now: float) -> LastSeen:
    """Returns what the processes of a run were last seen doing, after `before`."""
    look = {
        (one.member.key.worker, one.member.identity): one.activity for one in diagnosis.findings
    }
    workers = {worker for worker, _ in look}
    kept = {
        one: seen
        for one, seen in lasting(before, now).items()
        if look.get(one) is Activity.UNKNOWN or one[0] not in workers
    }
    return {one: Seen(activity, now) for one, activity in look.items()} | kept


def lasting(seen: LastSeen, now: float) -> LastSeen:
    """Returns what still counts at `now`, if no process was seen since."""
    return {one: was for one, was in seen.items() if now - was.at < LASTING.get(was.activity, 0.0)}


def movement_samples(run: str, shown: Movement) -> Iterator[Sample]:
    yield from ((MOVEMENT, (run, movement), movement is shown) for movement in Movement)


def report_samples(report: StackReport, now: float, *, undecided: bool = False) -> Iterator[Sample]:
    """Yields the samples of a run whose silence is suspicious, at `now` (Unix seconds)."""
    run, diagnosis, shown = report.run, report.diagnosis, report.movement(now)
    undecided = undecided and shown is Movement.UNKNOWN
    yield from movement_samples(run, Movement.UNDECIDED if undecided else shown)
    yield STUCK_SINCE, (run,), report.stuck_since
    counts = Counter((worker, seen.activity) for (worker, _), seen in report.seen.items())
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
