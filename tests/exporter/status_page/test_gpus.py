"""The GPUs on the status page."""

from __future__ import annotations

from typing import Any

import pytest

from trainwarden_exporter.collectors.gpu import GpuCollector
from trainwarden_exporter.collectors.xid import XidCollector
from trainwarden_exporter.gpu.holders import Holder
from trainwarden_exporter.gpu.model import GpuKey
from trainwarden_exporter.processes.procfs import Identity, Process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page import page as status_page
from trainwarden_exporter.status_page.gpus import (
    GpusView,
    GpuView,
    XidView,
    build_gpus_view,
    gpu_section,
)

METRICS = {metric.name: metric for metric in (*GpuCollector.metrics, *XidCollector.metrics)}
ONE, TWO = ("0", "GPU-a"), ("1", "GPU-b")
STARTED = start_timestamp(Identity(0, 1000))


def outcome(
    series: dict[str, dict[tuple[str, ...], float]], artifacts: tuple[object, ...] = ()
) -> Outcome:
    families = []
    for name, samples in series.items():
        family = METRICS[f"trainwarden_gpu_{name}"].family()
        for labels, value in samples.items():
            family.add_metric(labels, value)
        families.append(family)
    return Outcome("gpu", 0.1, tuple(families), artifacts=artifacts)


def orphan(**more: Any) -> Holder:
    process = Process(Identity(4711, 1000), 1, "python", "S", 1, 0.0, 0, ("python", 0))
    plain = {"command": "python <train>.py", "owner": "alice"}
    return Holder(process, **{**plain, **more})


SERIES: dict[str, dict[tuple[str, ...], float]] = {
    "driver_state": {("ok",): 1, ("absent",): 0, ("no_devices",): 0, ("failed",): 0},
    "devices_expected": {(): 3},
    "up": {ONE: 1, TWO: 0},
    "info": {(*ONE, "Some GPU", "00:17.0"): 1},
    "utilization_ratio": {ONE: 0.87},
    "memory_used_bytes": {ONE: 20 << 30},
    "memory_total_bytes": {ONE: 80 << 30},
    "temperature_celsius": {(*ONE, "core"): 68, (*ONE, "memory"): 80},
    "power_watts": {ONE: 655.12},
    "processes": {ONE: 2},
    "orphan_holders": {ONE: 1},
    "xid_errors_total": {(*TWO, "79", "fatal"): 3},
    "xid_last_timestamp_seconds": {(*TWO, "79", "fatal"): STARTED + 7140},
}


def test_gpus_are_put_together_from_their_series() -> None:
    one = orphan(listed={GpuKey(*ONE): 5 << 30})
    assert build_gpus_view([outcome(SERIES, artifacts=(one, "something else"))]) == GpusView(
        state="ok",
        expected=3,
        gpus=(
            GpuView(
                *ONE,
                up=True,
                name="Some GPU",
                utilization=0.87,
                memory_used=20 << 30,
                memory_total=80 << 30,
                temperature=68,
                power=655.12,
                processes=2,
                orphans=1,
            ),
            GpuView(*TWO, up=False),
        ),
        orphans=(one,),
        xids=(XidView("1", 79, "fatal", 3, STARTED + 7140),),
    )


def test_a_machine_without_gpus_has_no_such_section() -> None:
    assert build_gpus_view([]) == GpusView()
    absent = build_gpus_view([outcome({"driver_state": {("absent",): 1, ("ok",): 0}})])
    for view in (GpusView(), absent):
        assert gpu_section(view, now=0) == ""
        assert view.problems == ()


def test_each_gpu_has_a_row() -> None:
    text = gpu_section(build_gpus_view([outcome(SERIES)]), now=STARTED + 7200)
    for words in ("Some GPU", "87%", "68 °C", "655 W", "20.0 GiB", "held by orphans", "lost"):
        assert words in text
    assert "XID 79 on GPU 1: GPU has fallen off the bus, 3 times, last 1 min ago" in text
    assert "belong to no worker" not in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"listed": {GpuKey(*TWO): 5 << 30}}, (">1<", "5.0 GiB")),
        ({"opened": frozenset({GpuKey(*ONE)})}, (">0 <", "not listed")),
        ({}, ("the driver", "not listed")),
    ],
)
def test_orphans_are_listed_by_name_age_and_owner(
    more: dict[str, Any], words: tuple[str, ...]
) -> None:
    view = build_gpus_view([outcome(SERIES, artifacts=(orphan(**more),))])
    text = gpu_section(view, now=STARTED + 7200)
    for word in ("4711", "python &lt;train&gt;.py", "alice", "2 h", *words):
        assert word in text
    assert "<train>" not in text


def test_what_only_looks_is_listed_apart_and_is_no_trouble() -> None:
    monitor = orphan(monitor_only=True, opened=frozenset({GpuKey(*ONE)}))
    view = build_gpus_view([outcome({**SERIES, "orphan_holders": {}}, artifacts=(monitor,))])
    assert (view.orphans, view.observers) == ((), (monitor,))
    assert "GPUs are held by processes of no worker" not in view.problems
    text = gpu_section(view, now=STARTED + 7200)
    assert "Processes of no worker that observe" in text
    assert "4711" in text
    assert "belong to no worker" not in text


@pytest.mark.parametrize(
    ("view", "trouble"),
    [
        (GpusView("failed", 2), "the GPU driver cannot be used"),
        (GpusView("absent", 2), "the GPU driver cannot be used"),
        (GpusView("no_devices", 2), "2 of 2 GPUs missing"),
        (GpusView("ok", 2, (GpuView(*ONE, up=True),)), "1 of 2 GPUs missing"),
    ],
)
def test_a_problem_is_reported_in_the_verdict(view: GpusView, trouble: str) -> None:
    assert view.problems == (trouble,)
    assert "No GPU is visible" in gpu_section(view, now=0) or view.gpus


def test_the_verdict_of_the_page_counts_them_in() -> None:
    text = status_page.render(
        status_page.PageData(0, 0, None, 0, (outcome(SERIES, artifacts=(orphan(),)),))
    )
    assert "2 of 3 GPUs missing. And 1 more, below." in text
    assert "GPUs are held by processes of no worker" in text
