"""Real times of each rank through the comparison of ranks, and the shipped rules.

A record has the seconds that each rank computes in each step. Its ranks start a step together and
report it when they are done, as a training calls `trainwarden.beat`; the step lasts as long as in
the record.
"""

from __future__ import annotations

import csv
import importlib
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, takewhile
from math import isfinite
from pathlib import Path
from statistics import median

from bounds import share_at_most
from results import Result
from trainwarden.heartbeat import MAX_STEPS, keep_step
from trainwarden_exporter.processes.rank_lags import lag_ratios
from verdicts.engine import evaluate
from verdicts.page import EXPORTER, SCRAPE, Page

JOBS = "steps/job_*.csv"
TRACES = "ranks/*.parquet"
COMPUTE = ("forward-compute", "backward-compute")
"""Operations of a rank that do not wait for another one."""
LENGTHS = (1.0, 10.0)
"""Seconds of a median step of the records that have no seconds."""
LONGEST_SECONDS = 6 * 3600.0
"""What is replayed of a longer record."""
LEAST_SECONDS = 1800.0
"""A record that is shorter is repeated."""
TENTH = 0.1
NAMED_SECONDS, DOUBT_SECONDS = 900.0, 600.0
"""A rank must be named if it is late in nine tenths of the steps of a quarter of an hour, and must
not if it is late in less than half of the steps of any ten minutes."""
MUST, MAY_NOT = 0.9, 0.5
ALERT = "TrainingRankSlow"
ABOUT = (
    "Slow is, by a count of the record itself, a rank that is later than the median of the others "
    "by a tenth of the step in nine of ten steps of a quarter of an hour; not slow, if it is late "
    "in less than half of the steps of any ten minutes; the table does not judge what is between. "
    "The records of StragglerAnalysis name their cause: in AR one worker was made slow, in ST the "
    "last stage of the pipeline has more to do. Of them the computing time of a rank counts, as if "
    "all ranks waited for each other once in a step. The jobs of alibaba have no seconds, and are "
    "replayed at two lengths of a step; of their steps one in ten is recorded, and stands for the "
    "ten. Six hours of a record are replayed, and a record of less than half an hour is repeated."
)


@dataclass(frozen=True, slots=True)
class Job:
    """What each rank computes in each step, and how long the step lasts, in seconds."""

    name: str
    ranks: Mapping[int, Sequence[float]]
    steps: Sequence[float]

    def repeated(self) -> Job:
        """As often as makes LEAST_SECONDS of it."""
        times = int(LEAST_SECONDS // sum(self.steps)) + 1
        ranks = {rank: [*work] * times for rank, work in self.ranks.items()}
        return Job(self.name, ranks, [*self.steps] * times)

    def cut(self) -> Job:
        """Its first LONGEST_SECONDS."""
        ends = accumulate(self.steps)
        count = sum(1 for _ in takewhile(lambda end: end <= LONGEST_SECONDS, ends))
        ranks = {rank: work[:count] for rank, work in self.ranks.items()}
        return Job(self.name, ranks, self.steps[:count])

    def lasting(self, seconds: float) -> Job:
        """With a median step of so many seconds."""
        scale = seconds / median(self.steps)
        ranks = {rank: [scale * one for one in work] for rank, work in self.ranks.items()}
        return Job(self.name, ranks, [scale * one for one in self.steps])


def read(folder: Path) -> tuple[Job, ...]:
    """All records; those without seconds at each of LENGTHS."""
    jobs = [_workers(path) for path in sorted(folder.glob(JOBS))]
    found = [job.lasting(length) for job in jobs for length in LENGTHS]
    if paths := sorted(folder.glob(TRACES)):
        try:
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError:
            print("ranks/ is left out: pip install pyarrow", file=sys.stderr)
        else:
            columns = ["rank", "step", "optype", "start_ts", "duration"]
            found += [
                _operations(path.stem, parquet.read_table(path, columns=columns).to_pylist())
                for path in paths
            ]
    return tuple(job.cut().repeated() for job in found)


def _workers(path: Path) -> Job:
    """A synchronous step lasts as long as its slowest worker.

    The record has one step in ten, which stands for those up to the next.
    """
    found: dict[int, dict[int, float]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            seconds = float(row["batch_time_norm"])
            if isfinite(seconds) and seconds > 0:
                found.setdefault(int(float(row["time"])), {})[int(row["worker"])] = seconds
    ranks = sorted({rank for step in found.values() for rank in step})
    whole = [at for at in sorted(found) if len(found[at]) == len(ranks)]
    steps = [found[at] for at, after in pairwise(whole) for _ in range(after - at)]
    return Job(
        path.stem,
        {rank: [one[rank] for one in steps] for rank in ranks},
        [max(one.values()) for one in steps],
    )


def _operations(name: str, rows: Sequence[Mapping[str, object]]) -> Job:
    work: dict[tuple[int, int], float] = {}
    spans: dict[int, tuple[float, float]] = {}
    for row in rows:
        rank, step = int(str(row["rank"])), int(str(row["step"]))
        start, seconds = float(str(row["start_ts"])), float(str(row["duration"]))
        first, last = spans.get(step, (start, start))
        spans[step] = min(first, start), max(last, start + seconds)
        if row["optype"] in COMPUTE:
            work[rank, step] = work.get((rank, step), 0.0) + seconds
    ranks = sorted({rank for rank, _ in work})
    steps = [step for step in sorted(spans) if all((rank, step) in work for rank in ranks)]
    return Job(
        name,
        {rank: [work[rank, step] for step in steps] for rank in ranks},
        [spans[step][1] - spans[step][0] for step in steps],
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one job. Ranks by their number."""

    job: Job
    named: Mapping[int, float]
    """Seconds until a rank was first named."""
    must: frozenset[int]
    must_not: frozenset[int]


def replay(job: Job, promtool: Path) -> Found:
    instance = "host:10977"
    page = Page(EXPORTER, instance)
    for ratios in scrapes(job):
        for rank, ratio in ratios.items():
            page.put("trainwarden_training_rank_lag_ratio", ratio, "run", str(rank))
        page.answer()
    with tempfile.TemporaryDirectory(prefix="traces-") as folder:
        fired = evaluate(promtool, page.series, sum(job.steps), Path(folder))
    named = {
        int(one.labels["rank"]): one.moments[0] for one in fired if one.labels["alertname"] == ALERT
    }
    most = {rank: late_share(job, rank, NAMED_SECONDS) for rank in job.ranks}
    short = {rank: late_share(job, rank, DOUBT_SECONDS) for rank in job.ranks}
    return Found(
        job,
        named,
        frozenset(rank for rank, share in most.items() if share >= MUST),
        frozenset(rank for rank, share in short.items() if share < MAY_NOT),
    )


def scrapes(job: Job) -> Iterator[Mapping[int, float]]:
    """The lags of the ranks at each scrape."""
    kept: dict[int, deque[tuple[int, float]]] = {
        rank: deque(maxlen=MAX_STEPS) for rank in job.ranks
    }
    start, scrape = 0.0, 0.0
    for step, lasts in enumerate(job.steps):
        while scrape < start + lasts:  # sees the steps that have ended
            yield lag_ratios({rank: dict(steps) for rank, steps in kept.items()}, scrape)
            scrape += SCRAPE
        for rank, steps in kept.items():
            keep_step(steps, step, start + job.ranks[rank][step])
        start += lasts


def late_share(job: Job, rank: int, seconds: float) -> float:
    """Returns the largest share of the steps of so many seconds in which a rank is late.

    By a tenth of the step or more after the median of the others.
    """
    window: deque[tuple[float, bool]] = deque()
    lasting, late, most = 0.0, 0, 0.0
    for step, lasts in enumerate(job.steps):
        others = median(work[step] for other, work in job.ranks.items() if other != rank)
        window.append((lasts, job.ranks[rank][step] - others > TENTH * lasts))
        lasting, late = lasting + lasts, late + window[-1][1]
        while lasting - window[0][0] >= seconds:
            old, was_late = window.popleft()
            lasting, late = lasting - old, late - was_late
        if lasting >= seconds:
            most = max(most, late / len(window))
    return most


def replay_all(jobs: Sequence[Job], promtool: Path, workers: int) -> list[Found]:
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(replay, jobs, [promtool] * len(jobs)))


def table(found: Sequence[Found]) -> Result:
    """What was named, and what an independent count of the same record calls slow."""
    must = {(one.job.name, rank) for one in found for rank in one.must}
    missed = {(one.job.name, rank) for one in found for rank in one.must - one.named.keys()}
    must_not = {(one.job.name, rank) for one in found for rank in one.must_not}
    wrong = {(one.job.name, rank) for one in found for rank in one.must_not & one.named.keys()}
    rows = tuple(
        (
            one.job.name,
            str(len(one.job.ranks)),
            f"{median(one.job.steps):.3g} s",
            f"{sum(one.job.steps) / 3600:.1f}",
            _list(sorted(one.must)),
            _list(sorted(one.named)),
            ", ".join(f"{one.named[rank] / 60:.0f}" for rank in islice(sorted(one.named), 12))
            or "-",
        )
        for one in found
    )
    most_missed, most_wrong = (
        f"{100 * share_at_most(len(some), len(of)):.0f} %"
        for some, of in ((missed, must), (wrong, must_not))
    )
    return Result(
        "Slow ranks",
        f"Of {len(must)} slow ranks, {len(must) - len(missed)} were named (with 95 % confidence, "
        f"at most {most_missed} are missed); of {len(must_not)} ranks that are not slow, "
        f"{len(wrong)} were (at most {most_wrong}). A rank counts once, at all lengths. {ABOUT}",
        (
            "record",
            "ranks",
            "median step",
            "hours",
            "slow",
            "named",
            "after minutes",
        ),
        rows,
    )


def _list(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "none"
