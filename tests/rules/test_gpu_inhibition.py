"""What mutes what among the alerts about GPUs, asked of a running Alertmanager."""

from __future__ import annotations

from collections.abc import Callable

Labels = dict[str, str]
Case = tuple[str, Labels, list[Labels], list[Labels]]

A: Labels = {"run": "demo", "worker": "a", "instance": "box-1:10977"}
BOX: Labels = {"instance": "box-1:10977"}
OTHER_BOX: Labels = {"instance": "box-2:10977"}
CRITICAL: Labels = {"severity": "critical"}
WARNING: Labels = {"severity": "warning"}

GPU_0: Labels = BOX | {"gpu": "0", "uuid": "GPU-0"}
GPU_1: Labels = BOX | {"gpu": "1", "uuid": "GPU-1"}
GPU_0_ELSEWHERE: Labels = GPU_0 | OTHER_BOX
DRIVER = {"alertname": "TrainingGpuDriverFailing"} | CRITICAL
LOST = {"alertname": "TrainingGpuLost"} | CRITICAL
LEFTOVERS = {"alertname": "TrainingGpuHeldByLeftovers", "remediation": "clean_gpu"} | CRITICAL
EXCLUSIVE = {"alertname": "TrainingGpuExclusiveMode", "mode": "exclusive_process"} | WARNING
XID_79 = {"alertname": "TrainingGpuXid", "xid": "79"} | CRITICAL
XID_48 = {"alertname": "TrainingGpuXid", "xid": "48"} | CRITICAL
XID_121 = {"alertname": "TrainingGpuXid", "xid": "121"} | WARNING
XID_94 = {"alertname": "TrainingGpuXid", "xid": "94"} | WARNING
MEMORY_ERRORS = {"alertname": "TrainingGpuMemoryErrors"} | CRITICAL
REMAP_FAILED = {"alertname": "TrainingGpuRowRemap"} | CRITICAL
REMAP_PENDING = {"alertname": "TrainingGpuRowRemap"} | WARNING
THROTTLED = {"alertname": "TrainingGpuThrottled"} | WARNING
STRAGGLER = {"alertname": "TrainingGpuStraggler"} | WARNING
SLOW_RANK = {"alertname": "TrainingRankSlow", "run": "demo", "rank": "2"} | WARNING
SLOW_LINK = {"alertname": "TrainingGpuLinkSlow"} | WARNING
NEARLY_FULL = {"alertname": "TrainingGpuMemoryNearlyFull", "severity": "info"}
IDLE = {"alertname": "TrainingGpuIdle", "run": "demo"} | WARNING
COLLECTOR = {"alertname": "TrainingCollectorFailing", "collector": "workers"} | WARNING
GPU_COLLECTOR = COLLECTOR | {"collector": "gpu"}
XID_COLLECTOR = COLLECTOR | {"collector": "xid"}
EXPORTER_DOWN = {"alertname": "TrainingExporterDown"} | CRITICAL
GONE = {"alertname": "TrainingWorkerGone", "remediation": "start_missing_worker"} | CRITICAL
LOOP = {"alertname": "TrainingWorkerRestartLoop", "remediation": "hold_restarts"} | CRITICAL
FLOOR = {"alertname": "TrainingMemoryFloor", "remediation": "relieve_memory"} | CRITICAL

CASES: list[Case] = [
    # what, the cause, what it mutes, what it leaves alone
    (
        "an exporter that is down mutes its alerts about the GPUs",
        EXPORTER_DOWN | BOX,
        [LOST | BOX, LEFTOVERS | GPU_0, XID_79 | GPU_1, IDLE | GPU_0],
        [LOST | GPU_0_ELSEWHERE],
    ),
    (
        "an exporter that is down mutes its alerts about the driver",
        EXPORTER_DOWN | BOX,
        [DRIVER | BOX],
        [DRIVER | OTHER_BOX],
    ),
    (
        "without a driver no alert is about a GPU, nor about the collector that fails for it",
        DRIVER | BOX,
        [
            *(LOST | BOX, LEFTOVERS | GPU_0, LEFTOVERS | BOX, EXCLUSIVE | GPU_0),
            *(XID_121 | GPU_0, XID_79 | GPU_1, MEMORY_ERRORS | GPU_0, REMAP_PENDING | GPU_0),
            *(THROTTLED | GPU_0, NEARLY_FULL | GPU_0, IDLE | GPU_0),
            *(GPU_COLLECTOR | BOX, XID_COLLECTOR | BOX),
        ],
        [COLLECTOR | BOX, GPU_COLLECTOR | OTHER_BOX, LOST | GPU_0_ELSEWHERE, GONE | A, FLOOR | BOX],
    ),
    (
        "a GPU that is lost is neither idle nor slow, but its leftovers are ended",
        LOST | GPU_0,
        [
            *(EXCLUSIVE | GPU_0, XID_121 | GPU_0, REMAP_PENDING | GPU_0, THROTTLED | GPU_0),
            STRAGGLER | GPU_0,
            *(NEARLY_FULL | GPU_0, IDLE | GPU_0),
        ],
        [
            *(LEFTOVERS | GPU_0, MEMORY_ERRORS | GPU_0, XID_94 | GPU_1, THROTTLED | GPU_1),
            *(IDLE | GPU_0_ELSEWHERE, GONE | A),
        ],
    ),
    (
        "a loss that names no GPU mutes nothing",
        LOST | BOX,
        [],
        [IDLE | GPU_0, THROTTLED | GPU_1, LEFTOVERS | GPU_0, LEFTOVERS | BOX],
    ),
    (
        "a fatal XID is reported instead of the loss that it leads to, and of milder ones",
        XID_79 | GPU_0,
        [LOST | GPU_0, XID_94 | GPU_0],
        [LOST | BOX, XID_94 | GPU_1, LEFTOVERS | GPU_0, LOST | GPU_0_ELSEWHERE],
    ),
    (
        "a bad memory is reported instead of the XIDs that report it",
        MEMORY_ERRORS | GPU_0,
        [XID_48 | GPU_0],
        [XID_79 | GPU_0, XID_48 | GPU_1, LEFTOVERS | GPU_0],
    ),
    (
        "a failed remapping is reported instead of a pending one, and of the XIDs that report it",
        REMAP_FAILED | GPU_0,
        [REMAP_PENDING | GPU_0, XID_48 | GPU_0],
        [REMAP_PENDING | GPU_1, XID_79 | GPU_0, THROTTLED | GPU_0],
    ),
    (
        "a GPU whose throttling is reported is no straggler, unless its link is slow",
        THROTTLED | GPU_0,
        [STRAGGLER | GPU_0, SLOW_RANK | A],
        [STRAGGLER | GPU_1, SLOW_LINK | GPU_0, IDLE | GPU_0, SLOW_RANK | OTHER_BOX],
    ),
    (
        "a rank whose run has a slow GPU is slow because of it",
        STRAGGLER | GPU_0 | {"run": "demo"},
        [SLOW_RANK | A],
        [SLOW_RANK | A | {"run": "other"}, SLOW_LINK | GPU_0],
    ),
    (
        "a remapping that waits mutes nothing",
        REMAP_PENDING | GPU_0,
        [],
        [XID_48 | GPU_0, XID_94 | GPU_1],
    ),
    (
        "the GPU of a run that lacks a worker is idle for that",
        GONE | A,
        [IDLE | GPU_0, IDLE | GPU_1],
        [IDLE | GPU_0 | {"run": "other"}, IDLE | GPU_0_ELSEWHERE, LEFTOVERS | GPU_0],
    ),
    (
        "the GPU of a run in a restart loop is idle for that, and its leftovers are ended",
        LOOP | A,
        [IDLE | GPU_0],
        [IDLE | GPU_0 | {"run": "other"}, LEFTOVERS | GPU_0, LEFTOVERS | BOX],
    ),
    (
        "leftovers keep nobody from starting a worker",
        LEFTOVERS | GPU_0,
        [],
        [GONE | A, LOST | GPU_0],
    ),
]


def test_the_shipped_rules_mute_as_the_table(assert_mutes: Callable[[list[Case]], None]) -> None:
    assert_mutes(CASES)
