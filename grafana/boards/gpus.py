"""Panels about GPUs."""

from __future__ import annotations

from boards import limits, style, why
from boards.panels import BYTES, COUNT, SHARE, Graph, Timeline
from boards.queries import Query, gained
from boards.style import Scale, rising, words
from boards.tables import Column, Table

HARDWARE = 'reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'


def utilization() -> Graph:
    return Graph(
        title="GPU utilisation",
        about=(
            "Share of the time in which it computed. Good: high and even while the run trains. A "
            "GPU that a run holds at 0 for half an hour fires TrainingGpuIdle."
        ),
        queries=[
            Query("trainwarden_gpu_utilization_ratio{GPU}", "{{instance}} GPU {{gpu}}", why.NO_GPU)
        ],
        unit=SHARE,
        high=1,
        width=12,
    )


def memory_share() -> Graph:
    return Graph(
        title="GPU memory in use",
        about=(
            "Share of the memory in use. Good: even. From 97 % on "
            "TrainingGpuMemoryNearlyFull fires: the next larger batch fails."
        ),
        queries=[
            Query(
                "1 - trainwarden_gpu_memory_free_bytes{GPU}"
                " / trainwarden_gpu_memory_total_bytes{GPU}",
                "{{instance}} GPU {{gpu}}",
                why.NO_GPU,
            )
        ],
        unit=SHARE,
        high=1,
        width=12,
        scale=Scale(style.GOOD, ((1 - limits.GPU_FULL.value, style.WARNING),)),
        shaded=True,
    )


def worker_memory() -> Graph:
    return Graph(
        title="GPU memory by worker",
        about="What each worker holds, on each GPU. Good: even; steps up are leaks.",
        queries=[
            Query(
                'trainwarden_worker_gpu_memory_bytes{GPU,run=~"$run"}',
                "{{instance}} {{run}} {{worker}} on {{gpu}}",
                why.NO_GPU_HELD,
            )
        ],
        unit=BYTES,
        width=12,
        stacked=True,
    )


def leftovers() -> Graph:
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
                "label_replace(trainwarden_gpu_orphan_holders{BOX},"
                ' "gpu", "driver only", "gpu", "")',
                "{{instance}} GPU {{gpu}}",
                why.NO_GPU_OR_WORKER,
            ),
            Query(
                "label_replace(trainwarden_gpu_unowned_holders_in_use{BOX},"
                ' "gpu", "driver only", "gpu", "")',
                "{{instance}} GPU {{gpu}}, in use",
                why.NO_GPU_OR_WORKER,
            ),
        ],
        unit=COUNT,
        decimals=0,
        width=12,
        stepped=True,
        scale=rising(None, 1),
    )


def throttled() -> Timeline:
    return Timeline(
        title="Clocks throttled by hardware",
        about=(
            "Because of heat or lack of power. Good: free. Throttled for most of six minutes, "
            "TrainingGpuThrottled warns: every step takes longer, on all GPUs that wait for it."
        ),
        queries=[
            Query(
                f"max without (reason) (trainwarden_gpu_throttle_active{{GPU,{HARDWARE}}})",
                "{{instance}} GPU {{gpu}}",
                why.NO_GPU,
            )
        ],
        width=8,
        height=8,
        meanings=words(("free", style.GOOD), ("held down", style.CRITICAL)),
    )


def xids() -> Table:
    return Table(
        title="Errors of the driver (XIDs)",
        about=(
            "What the driver reported in the time shown. Good: no row, while the exporter "
            "watches. Fatal ones mean a reset, or a new GPU."
        ),
        queries=[
            Query(
                "sum by (gpu, xid, severity, instance) ("
                f"{gained('trainwarden_gpu_xid_errors_total{GPU}')}) > 0",
                "times",
                why.NO_XID,
            ),
            Query(
                "1000 * max by (gpu, xid, severity, instance) ("
                "last_over_time(trainwarden_gpu_xid_last_timestamp_seconds{GPU}[$__range]))",
                "last",
                why.NO_XID,
            ),
        ],
        empty="No XID came in this time, as far as they were watched.",
        width=8,
        height=8,
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
