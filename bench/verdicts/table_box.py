"""The faults of the host, and the required alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from verdicts.faults import CONSEQUENCES, Expected, Fault, Happens
from verdicts.faults_box import (
    copies_end,
    disk_full,
    disk_nearly_full,
    disk_read_only,
    disk_slow,
    driver_fails,
    ecc,
    few_inodes,
    gpu_exclusive,
    gpu_full,
    gpu_held,
    gpu_idle,
    gpu_in_use,
    gpu_link_slow,
    gpu_lost,
    gpu_straggles,
    heartbeat_stops,
    memory_floor,
    no_inodes,
    oom_kill,
    probe_fails,
    probed,
    reboot,
    reboots_again,
    remap_fails,
    remap_pending,
    throttled,
    watchdog,
    xid_fatal,
    xid_warning,
)
from verdicts.run import Run

CALM = {"step": 20.0, "save": 20.0, "update": 2.0, "evaluation": 30.0}


def host_fault(
    name: str,
    happens: Happens,
    alert: str,
    severity: str,
    within: float,
    *,
    beside: Mapping[str, str] | None = None,
    needs: Mapping[str, object] | None = None,
    night: int = 0,
    prepare: Callable[[Run], None] | None = None,
    frameworks: tuple[str, ...] = (),
) -> Fault:
    """Returns a fault for which one alert is required, for a calm run."""
    return Fault(
        name,
        happens,
        (Expected(alert, severity, within),),
        within + 75,
        beside or {},
        {**CALM, **(needs or {})},
        frameworks,
        prepare,
        night=night,
    )


SAVES = {"saves": True, "save_every": 300.0, "interval_configured": False}
GPUS = {"gpus": 4}
BUSY = {**GPUS, "inference": False, "share_of_rollouts": 0.0, "save_every": 1500.0}
NO_SAVE = {"TrainingCheckpointOverdue": "the trainer saves no checkpoint meanwhile"}
ITS_DEVICE = {
    "TrainingGpuLost": "what has fallen off the bus is lost",
    "TrainingGpuXid": "the driver reports it, too",
}
AFTER_A_BOOT = {
    "TrainingExporterDown": "it was down for that long",
    "TrainingRemediatorDown": "as was this",
    "TrainingWorkerGone": "the workers did not come back by themselves",
    "TrainingInferenceDown": "nor did the servers",
    "TrainingHeartbeatMissed": "nor did the watchdog",
}
SAVERS = ("areal", "verl", "torchtitan", "skyrl", "openrlhf")

BOX_FAULTS: tuple[Fault, ...] = (
    host_fault(
        "the host is under its memory floor",
        memory_floor,
        "TrainingMemoryFloor",
        "critical",
        30,
        night=3,
    ),
    host_fault(
        "the kernel kills for want of memory", oom_kill, "TrainingOomKill", "warning", 30, night=3
    ),
    host_fault(
        "the host reboots",
        reboot,
        "TrainingReboot",
        "warning",
        30,
        beside={**CONSEQUENCES, **AFTER_A_BOOT},
        night=3,
    ),
    host_fault(
        "the host reboots again and again",
        reboots_again,
        "TrainingRebootLoop",
        "critical",
        800,
        beside={**CONSEQUENCES, **AFTER_A_BOOT, "TrainingReboot": "it tells each one"},
        night=3,
    ),
    host_fault(
        "a watchdog dies",
        heartbeat_stops,
        "TrainingHeartbeatMissed",
        "warning",
        45,
        needs={"heartbeat": True},
        prepare=watchdog,
        night=3,
    ),
    host_fault(
        "a disk has no room for the next checkpoint",
        disk_full,
        "TrainingDiskFilling",
        "critical",
        90,
        beside=NO_SAVE,
        needs=SAVES,
        frameworks=SAVERS,
        night=1,
    ),
    host_fault(
        "a disk has room for three checkpoints",
        disk_nearly_full,
        "TrainingDiskFilling",
        "warning",
        390,
        beside=NO_SAVE,
        needs=SAVES,
        frameworks=SAVERS,
        night=1,
    ),
    host_fault(
        "the checkpoints are no longer copied",
        copies_end,
        "TrainingCheckpointNotCopied",
        "warning",
        390,
        needs=SAVES,
        frameworks=SAVERS,
    ),
    host_fault("a disk can hold few more files", few_inodes, "TrainingDiskInodes", "warning", 390),
    host_fault(
        "a disk can hold hardly any more files",
        no_inodes,
        "TrainingDiskInodes",
        "critical",
        90,
        beside={"TrainingDiskInodes": "the warning as well"},
    ),
    host_fault(
        "a disk is slow", disk_slow, "TrainingDiskSlow", "warning", 1300, prepare=probed, night=1
    ),
    host_fault(
        "a disk is read-only", disk_read_only, "TrainingDiskReadOnly", "critical", 120, night=4
    ),
    host_fault(
        "a small file cannot be written",
        probe_fails,
        "TrainingDiskProbeFailing",
        "critical",
        720,
        prepare=probed,
    ),
    host_fault(
        "the GPU driver fails",
        driver_fails,
        "TrainingGpuDriverFailing",
        "critical",
        90,
        needs=GPUS,
    ),
    host_fault("a GPU is lost", gpu_lost, "TrainingGpuLost", "critical", 90, needs=GPUS),
    host_fault(
        "leftovers hold a GPU",
        gpu_held,
        "TrainingGpuHeldByLeftovers",
        "critical",
        30,
        needs=GPUS,
        night=5,
    ),
    host_fault(
        "somebody works with a GPU",
        gpu_in_use,
        "TrainingGpuHeldByLeftovers",
        "warning",
        690,
        needs=GPUS,
        night=5,
    ),
    host_fault(
        "a GPU keeps processes out",
        gpu_exclusive,
        "TrainingGpuExclusiveMode",
        "warning",
        90,
        needs=GPUS,
        night=5,
    ),
    host_fault(
        "a GPU reports a fatal XID",
        xid_fatal,
        "TrainingGpuXid",
        "critical",
        30,
        beside=ITS_DEVICE,
        needs=GPUS,
    ),
    host_fault(
        "a GPU reports another XID", xid_warning, "TrainingGpuXid", "warning", 30, needs=GPUS
    ),
    host_fault(
        "the memory of a GPU has errors", ecc, "TrainingGpuMemoryErrors", "critical", 30, needs=GPUS
    ),
    host_fault(
        "a row of a GPU cannot be replaced",
        remap_fails,
        "TrainingGpuRowRemap",
        "critical",
        30,
        needs=GPUS,
    ),
    host_fault(
        "a row of a GPU waits for a reset",
        remap_pending,
        "TrainingGpuRowRemap",
        "warning",
        30,
        needs=GPUS,
    ),
    host_fault(
        "a GPU is throttled",
        throttled,
        "TrainingGpuThrottled",
        "warning",
        500,
        needs=BUSY,
        frameworks=("torchtitan", "trl", "lightning"),
    ),
    host_fault(
        "a GPU is slower than the others of its run",
        gpu_straggles,
        "TrainingGpuStraggler",
        "warning",
        1500,
        needs=BUSY,
        frameworks=("torchtitan", "trl", "lightning"),
    ),
    host_fault(
        "a GPU has a slower link than the others of its run",
        gpu_link_slow,
        "TrainingGpuLinkSlow",
        "warning",
        900,
        needs=BUSY,
        frameworks=("torchtitan", "trl", "lightning"),
    ),
    host_fault(
        "the memory of a GPU is nearly full",
        gpu_full,
        "TrainingGpuMemoryNearlyFull",
        "info",
        690,
        needs=GPUS,
        frameworks=("torchtitan", "verl", "areal"),
    ),
    host_fault(
        "a run holds a GPU and does not use it",
        gpu_idle,
        "TrainingGpuIdle",
        "warning",
        1860,
        needs=BUSY,
        frameworks=("torchtitan", "verl"),
    ),
)
