"""Plays cases in batches: many hosts in one Prometheus, as on a fleet, each judged separately."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from verdicts.alertmanager import Alertmanager
from verdicts.cases import Case, Played, simulate
from verdicts.engine import EngineError, Firing, evaluate
from verdicts.faults import Fault
from verdicts.healthy import Night
from verdicts.judging import Judgement, judge

TOGETHER = 36
"""Boxes in one Prometheus."""
SHORTEST = 0.7
"""How long the shortest of a batch is at least, as a share of the longest."""


def expected_length(case: Case) -> float:
    """Seconds for which its box is looked at, about."""
    if isinstance(case.what, Fault):
        return case.what.watch + 900
    return case.what.length


def batches(cases: Sequence[Case], together: int = TOGETHER) -> tuple[tuple[Case, ...], ...]:
    """Cases of like length together, the longest first: all of a batch are judged to its end."""
    found: list[list[Case]] = []
    for case in sorted(cases, key=lambda case: (_has_gap(case), -expected_length(case))):
        batch = found[-1] if found else []
        alike = batch and _has_gap(batch[0]) is _has_gap(case)
        if alike and len(batch) < together and _is_long_enough(case, batch[0]):
            batch.append(case)
        else:
            found.append([case])
    return tuple(
        tuple(batch) for batch in sorted(found, key=lambda batch: -expected_length(batch[0]))
    )


def _is_long_enough(case: Case, longest: Case) -> bool:
    return expected_length(case) > SHORTEST * expected_length(longest)


def _has_gap(case: Case) -> bool:
    return isinstance(case.what, Night) and case.what.gap


def judged(batch: Sequence[Case], promtool: Path) -> tuple[Judgement, ...]:
    """What comes of the cases of one batch. Raises BenchError or EngineError."""
    played = [simulate(case) for case in batch]
    series = {name: samples for one in played for name, samples in one.series.items()}
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        longest = max(one.length for one in played)
        fired = evaluate(promtool, series, longest, Path(folder), gap=_has_gap(batch[0]))
    manager = Alertmanager()
    return tuple(judge(one, _of(one, fired), manager) for one in played)


def _of(played: Played, fired: Iterable[Firing]) -> Iterator[Firing]:
    """What fired on one box."""
    for firing in fired:
        if firing.labels.get("instance", "").split(":")[0] == played.case.instance:
            yield firing


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of cases that were played together."""

    cases: tuple[Case, ...]
    judgements: tuple[Judgement, ...]
    error: str = ""
    """Why none was judged; empty if all were."""


def run(cases: Sequence[Case], promtool: Path, *, workers: int) -> Iterator[Batch]:
    """All cases, `workers` batches at a time, as they are done; a failed one ends no other."""
    with ProcessPoolExecutor(workers) as pool:
        waited = {pool.submit(judged, batch, promtool): batch for batch in batches(cases)}
        for done in as_completed(waited):
            batch = waited.pop(done)  # thousands of results would stay in memory
            try:
                yield Batch(batch, done.result())
            except EngineError as error:
                yield Batch(batch, (), str(error))
