"""Panels about GPUs that several boards have: `braces` selects them, `of` begins the legends."""

from __future__ import annotations

from boards import limits, style, why
from boards.panels import BYTES, COUNT, SHARE, Graph, Timeline
from boards.queries import Query, gained
from boards.style import Scale, rising, words
from boards.tables import Column, Table

HARDWARE = 'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'


def utilization(braces: str, of: str = "", width: int = 8) -> Graph:
    return Graph(
        title="GPU utilisation",
        about=(
            "Share of the time in which it computed. Good: high and even while the run trains. A "
            "GPU that a run holds at 0 for half an hour fires TrainingGpuIdle."
        ),
        queries=[
            Query(f"trainwarden_gpu_utilization_ratio{braces}", f"{of}GPU {{{{gpu}}}}", why.NO_GPU)
        ],
        unit=SHARE,
        high=1,
        width=width,
    )


def memory_share(braces: str, of: str = "", width: int = 8) -> Graph:
    return Graph(
        title="GPU memory in use",
        about=(
            "Share of the memory in use. Good: even. From 97 % on "
            "TrainingGpuMemoryNearlyFull fires: the next larger batch fails."
        ),
        queries=[
            Query(
                f"1 - trainwarden_gpu_memory_free_bytes{braces}"
                f" / trainwarden_gpu_memory_total_bytes{braces}",
                f"{of}GPU {{{{gpu}}}}",
                why.NO_GPU,
            )
        ],
        unit=SHARE,
        high=1,
        width=width,
        scale=Scale(style.GOOD, ((1 - limits.GPU_FULL.value, style.WARNING),)),
        shaded=True,
    )


def worker_memory(braces: str, of: str = "", width: int = 8) -> Graph:
    return Graph(
        title="GPU memory by worker",
        about="What each worker holds, on each GPU. Good: even; steps up are leaks.",
        queries=[
            Query(
                f"trainwarden_worker_gpu_memory_bytes{braces}",
                f"{of}{{{{run}}}} {{{{worker}}}} on {{{{gpu}}}}",
                why.NO_GPU_HELD,
            )
        ],
        unit=BYTES,
        width=width,
        stacked=True,
    )


def leftovers(braces: str, of: str = "", width: int = 8) -> Graph:
    return Graph(
        title="Leftover processes on GPUs",
        about=(
            "Processes that hold a GPU and belong to no worker, also if the driver does not list "
            "them. Good: 0; from 1 on TrainingGpuHeldByLeftovers fires, and they are "
            "ended. Those in use by an operator (a terminal, a notebook) are only reported. Those "
            "of the driver only hold none of its GPUs."
        ),
        queries=[
            Query(
                f"label_replace(trainwarden_gpu_orphan_holders{braces},"
                ' "gpu", "driver only", "gpu", "")',
                f"{of}GPU {{{{gpu}}}}",
                why.NO_GPU_OR_WORKER,
            ),
            Query(
                f"label_replace(trainwarden_gpu_unowned_holders_in_use{braces},"
                ' "gpu", "driver only", "gpu", "")',
                f"{of}GPU {{{{gpu}}}}, in use",
                why.NO_GPU_OR_WORKER,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=width,
        stepped=True,
        scale=rising(None, 1),
    )


def throttled(braces: str, of: str = "", width: int = 8, height: int = 8) -> Timeline:
    inside = braces[:-1]
    return Timeline(
        title="Clocks throttled by hardware",
        about=(
            "Because of heat or lack of power. Good: free. Throttled for most of six minutes, "
            "TrainingGpuThrottled warns: every step takes longer, on all GPUs that wait for it."
        ),
        queries=[
            Query(
                f"max without (reason) (trainwarden_gpu_throttle_active{inside},{HARDWARE}}})",
                f"{of}GPU {{{{gpu}}}}",
                why.NO_GPU,
            )
        ],
        width=width,
        height=height,
        meanings=words(("free", style.GOOD), ("held down", style.CRITICAL)),
    )


def xids(braces: str, width: int = 8, height: int = 8) -> Table:
    return Table(
        title="Errors of the driver (XIDs)",
        about=(
            "What the driver reported in the time shown. Good: no row, while the exporter "
            "watches. Fatal ones mean a reset, or a new GPU."
        ),
        queries=[
            Query(
                "sum by (gpu, xid, severity, instance) ("
                f"{gained(f'trainwarden_gpu_xid_errors_total{braces}')}) > 0",
                "times",
                why.NO_XID,
            ),
            Query(
                "1000 * max by (gpu, xid, severity, instance) ("
                f"last_over_time(trainwarden_gpu_xid_last_timestamp_seconds{braces}[$__range]))",
                "last",
                why.NO_XID,
            ),
        ],
        empty="No XID came in this time, as far as they were watched.",
        width=width,
        height=height,
        columns=[
            Column(name="gpu", title="GPU"),
            Column(name="xid", title="XID"),
            Column(
                name="severity",
                colours=(
                    ("fatal", style.CRITICAL),
                    ("warning", style.WARNING),
                    ("unknown", style.WARNING),
                ),
            ),
            Column(name="times", decimals=0),
            Column(name="last", unit="dateTimeFromNow"),
            Column(name="instance"),
        ],
    )
