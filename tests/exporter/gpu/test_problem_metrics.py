"""Samples of current problems of a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainwarden_exporter.gpu import metrics
from trainwarden_exporter.gpu.metrics import Sample
from trainwarden_exporter.gpu.model import NO_GPU, GpuKey
from trainwarden_exporter.gpu.problem_metrics import GpuProblems
from trainwarden_exporter.scrape.collector import PROBLEM_HOLD_SECONDS, Metric

ONE, TWO = GpuKey("0", "GPU-a"), GpuKey("1", "GPU-b")
RULES = Path(__file__).resolve().parents[3] / "rules" / "alerts" / "gpu.yml"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def problem_samples(
    problems: GpuProblems, *facts: Sample, shared: bool = True
) -> dict[tuple[str, ...], float]:
    samples = [*problems.samples(facts, shared=shared)]
    assert {metric for metric, _, _ in samples} <= {metrics.PROBLEM}
    return {labels: value for _, labels, value in samples}


@pytest.mark.parametrize(
    ("metric", "more", "fact", "problem", "value"),
    [
        (metrics.ORPHANS, (), 3, "held_by_leftovers", 3),
        (metrics.ECC, ("uncorrected", "volatile"), 7, "memory_errors", 7),
        (metrics.REMAP_FAILED, (), True, "row_remap_failed", 1),
        (metrics.REMAP_PENDING, (), True, "row_remap_pending", 1),
        (metrics.RETIRED_PENDING, (), True, "retired_pages_pending", 1),
        (metrics.UP, (), 0, "lost", 1),
        (metrics.COMPUTE_MODE, ("prohibited",), True, "prohibited", 1),
        (metrics.COMPUTE_MODE, ("exclusive_process",), True, "exclusive_process", 1),
        (metrics.COMPUTE_MODE, ("exclusive_thread",), True, "exclusive_thread", 1),
        (metrics.THROTTLE, ("hw_slowdown",), True, "hw_slowdown", 1),
        (metrics.THROTTLE, ("hw_thermal_slowdown",), True, "hw_thermal_slowdown", 1),
        (metrics.THROTTLE, ("hw_power_brake_slowdown",), True, "hw_power_brake_slowdown", 1),
    ],
)
def test_a_problem_is_reported_for_its_gpu(
    metric: Metric, more: tuple[str, ...], fact: float, problem: str, value: float
) -> None:
    well = 1 if metric is metrics.UP else 0
    facts = (metric, (*ONE, *more), fact), (metric, (*TWO, *more), well)
    assert problem_samples(GpuProblems(), *facts) == {(*ONE, problem): value}


@pytest.mark.parametrize(
    ("metric", "more", "fact"),
    [
        (metrics.UP, (), 1),
        (metrics.ORPHANS, (), 0),
        (metrics.OBSERVERS, (), 2),
        (metrics.THROTTLE, ("sw_power_cap",), True),
        (metrics.THROTTLE, ("sw_thermal_slowdown",), True),
        (metrics.ECC, ("corrected", "volatile"), 9),
        (metrics.ECC, ("uncorrected", "aggregate"), 9),
        (metrics.RETIRED, ("double_bit",), 1),
        (metrics.REMAPPED, ("uncorrected",), 8),
        (metrics.COMPUTE_MODE, ("default",), 1),
        (metrics.FAILURES, (), 1),
    ],
)
def test_a_healthy_gpu_has_no_problem_samples(
    metric: Metric, more: tuple[str, ...], fact: float
) -> None:
    assert problem_samples(GpuProblems(), (metric, (*ONE, *more), fact)) == {}


def test_orphans_that_hold_only_the_driver_have_no_gpu() -> None:
    fact = (metrics.ORPHANS, NO_GPU, 1)
    assert problem_samples(GpuProblems(), fact) == {("", "", "held_by_leftovers"): 1}


def test_an_exclusive_mode_is_a_problem_only_on_shared_gpus_and_a_prohibited_mode_always() -> None:
    modes = ("exclusive_process", "exclusive_thread", "prohibited")
    facts = [(metrics.COMPUTE_MODE, (*ONE, mode), 1.0) for mode in modes]
    assert problem_samples(GpuProblems(), *facts, shared=False) == {(*ONE, "prohibited"): 1}


def test_that_it_is_over_is_reported_for_a_while() -> None:
    clock = Clock()
    problems = GpuProblems(clock=clock)
    key = (*ONE, "memory_errors")
    wrong, well = ((metrics.ECC, (*ONE, "uncorrected", "volatile"), n) for n in (2.0, 0.0))
    assert problem_samples(problems, well) == {}
    assert problem_samples(problems, wrong) == {key: 2}
    clock.now = 1000
    assert problem_samples(problems, wrong) == {key: 2}
    clock.now += PROBLEM_HOLD_SECONDS
    assert problem_samples(problems, well) == {key: 0}
    clock.now += 0.1
    assert problem_samples(problems, well) == {}
    assert problem_samples(problems, wrong) == {key: 2}


def test_an_unchecked_gpu_has_no_problem_samples() -> None:
    problems = GpuProblems()
    lost, there = (metrics.UP, ONE, 0), (metrics.UP, ONE, 1)
    assert problem_samples(problems, lost) == {(*ONE, "lost"): 1}
    assert problem_samples(problems) == {}
    assert problem_samples(problems, there) == {(*ONE, "lost"): 0}


def test_that_it_is_over_is_reported_for_longer_than_any_rule_looks_back() -> None:
    selector = r"trainwarden_gpu_problem\{[^}]*\}\[(\d+)([sm])\](?: offset (\d+)s)?"
    windows = re.findall(selector, RULES.read_text())
    assert len(windows) > 5
    for number, unit, offset in windows:
        assert int(number) * {"s": 1, "m": 60}[unit] + int(offset or 0) < PROBLEM_HOLD_SECONDS
