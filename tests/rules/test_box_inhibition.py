"""Inhibitions of alerts of runs when the host is at fault: containers, disks, exporter, driver.

A cause mutes its symptoms, and never what would heal it.
"""

from __future__ import annotations

from collections.abc import Callable

Labels = dict[str, str]
Case = tuple[str, Labels, list[Labels], list[Labels]]

BOX: Labels = {"instance": "box-1:10977"}
OTHER_BOX: Labels = {"instance": "box-2:10977"}
RUN: Labels = BOX | {"run": "demo"}
OTHER_RUN: Labels = BOX | {"run": "other"}
ELSEWHERE: Labels = RUN | OTHER_BOX
CRITICAL: Labels = {"severity": "critical"}
WARNING: Labels = {"severity": "warning"}
HOLDS: Labels = {"remediation": "hold_restarts"}


def alert(title: str, severity: Labels = WARNING, /, **labels: str) -> Labels:
    return {"alertname": f"Training{title}"} | severity | labels


STALLED = alert("StepStalled", CRITICAL, remediation="restart_stalled_run")
STALLED_DEAD = alert("StepStalled", CRITICAL)
OVERDUE = alert("CheckpointOverdue", checkpoint="default")
INCOMPLETE = alert("CheckpointIncomplete", checkpoint="default")
NO_PRODUCER = alert("WaitingForRollouts", CRITICAL, cause="producer_gone")
NO_FOLDER = alert("WaitingForRollouts", CRITICAL, cause="folder_not_writable")
LATE = alert("WaitingForRollouts", cause="slow")
SILENT = alert("LogSilent", log="trainer")
STORM = alert("ErrorStorm", log="trainer")
LINE = alert("TroubleLine", log="trainer", pattern="nccl_timeout")
LINE_OF_DISK = alert("TroubleLine", log="trainer", pattern="disk_full")
LINE_OF_GPU = alert("TroubleLine", log="trainer", pattern="gpu_busy")
NAN = alert("NotFinite", CRITICAL, log="trainer", name="loss")
BEAT = alert("HeartbeatMissed", name="watchdog")
BRAKE = alert("BrakeFiring", CRITICAL, remediation="restart_braking_worker", worker="a")

SERVER: Labels = {"server": "s", "engine": "vllm", "worker": "inference", "role": "inference"}
DOWN = alert("InferenceDown", CRITICAL, remediation="restart_inference") | SERVER
STARTING = alert("InferenceStartingTooLong", CRITICAL, server="s", engine="vllm")

START: Labels = {"remediation": "start_missing_worker"}
GONE = alert("WorkerGone", CRITICAL) | START
SERVER_GONE = GONE | {"worker": "inference", "role": "inference"}
A_GONE = GONE | {"worker": "a", "role": "worker"}
OVER_LIMIT = alert("WorkerMemoryOverLimit", CRITICAL, remediation="restart_leaking_worker")
OVER_LIMIT |= {"worker": "a", "role": "worker"}
FLOOR = alert("MemoryFloor", CRITICAL, remediation="relieve_memory")
OOM_KILL = alert("OomKill", scope="host")

POD: Labels = {"container": "pod"}
POD_LOOP = alert("ContainerRestartLoop", CRITICAL) | HOLDS | POD
POD_STOPPED = alert("ContainerStopped", CRITICAL) | POD
POD_OOM = alert("ContainerOom") | POD
POD_UNHEALTHY = alert("ContainerUnhealthy") | POD
OTHER_UNHEALTHY = alert("ContainerUnhealthy", container="other")

DATA: Labels = {"path": "/data"}
SCRATCH: Labels = {"path": "/scratch"}
FULL = alert("DiskFilling", CRITICAL) | HOLDS | DATA
FILLING = alert("DiskFilling")
READ_ONLY = alert("DiskReadOnly", CRITICAL) | HOLDS | DATA
INODES = alert("DiskInodes", CRITICAL) | DATA
FEW_INODES = alert("DiskInodes")
PROBE = alert("DiskProbeFailing", CRITICAL)
SLOW_DISK = alert("DiskSlow")

EXPORTER_DOWN = alert("ExporterDown", CRITICAL)
DRIVER = alert("GpuDriverFailing", CRITICAL)
LEFTOVERS = alert("GpuHeldByLeftovers", CRITICAL, remediation="clean_gpu", gpu="0", uuid="GPU-0")
LOST = alert("GpuLost", CRITICAL, gpu="0", uuid="GPU-0")
BLIND = alert("WatchBlind", watch="logs", log="trainer")
BLIND_TO_XIDS = alert("WatchBlind", watch="xid")

CASES: list[Case] = [
    # what, the cause, what it mutes, what it leaves alone. What is left alone and would itself mute
    # something stands in a case of its own.
    (
        "a container in a loop holds all restarts of its run",
        POD_LOOP | RUN,
        [A_GONE | RUN, SERVER_GONE | RUN, DOWN | RUN, STALLED | RUN, BRAKE | RUN, OVER_LIMIT | RUN],
        [A_GONE | OTHER_RUN, FLOOR | BOX, LEFTOVERS | BOX],
    ),
    (
        "a container in a loop explains what its run shows, and the exporter in it",
        POD_LOOP | RUN,
        [
            *(STALLED_DEAD | RUN, NO_PRODUCER | RUN, SILENT | RUN, BEAT | RUN, STARTING | RUN),
            *(POD_STOPPED | RUN, POD_UNHEALTHY | RUN, EXPORTER_DOWN | BOX),
        ],
        [OTHER_UNHEALTHY | OTHER_RUN | OTHER_BOX, EXPORTER_DOWN | {"instance": "box-3:10977"}],
    ),
    (
        "a container in a loop leaves what may be its cause",
        POD_LOOP | RUN,
        [],
        [POD_OOM | RUN, OTHER_UNHEALTHY | RUN, LINE | RUN, FULL | RUN],
    ),
    (
        "an exporter that is down speaks of the past",
        EXPORTER_DOWN | BOX,
        [STALLED | RUN, DOWN | RUN, FULL | RUN, NAN | RUN, BLIND | RUN, POD_STOPPED | RUN],
        [STALLED | ELSEWHERE],
    ),
    (
        "an exporter that is down does not mute the loop that takes it down",
        POD_LOOP | RUN,
        [EXPORTER_DOWN | BOX],
        [],
    ),
    (
        "a kill in a container is reported by the container",
        POD_OOM | RUN,
        [OOM_KILL | BOX],
        [OOM_KILL | OTHER_BOX, A_GONE | RUN],
    ),
    (
        "a full disk holds the restarts of who saves there",
        FULL | RUN,
        [A_GONE | RUN, DOWN | RUN, STALLED | RUN, BRAKE | RUN],
        [A_GONE | OTHER_RUN, FLOOR | BOX, LEFTOVERS | BOX, NAN | RUN],
    ),
    (
        "a full disk explains what cannot be written",
        FULL | RUN,
        [
            *(STALLED_DEAD | RUN, OVERDUE | RUN, INCOMPLETE | RUN, STORM | RUN, LINE_OF_DISK | RUN),
            *(LATE | RUN, FILLING | RUN | DATA, FILLING | BOX | DATA, PROBE | BOX | DATA),
            SLOW_DISK | BOX | DATA,
        ],
        [
            *(FILLING | BOX | SCRATCH, PROBE | BOX | SCRATCH, FILLING | OTHER_BOX | DATA),
            *(LINE | OTHER_RUN, NO_PRODUCER | RUN),
        ],
    ),
    ("a full disk explains the folder", FULL | RUN, [NO_FOLDER | RUN], [NO_FOLDER | OTHER_RUN]),
    (
        "a full disk that no run is known to save to holds nobody",
        FULL | BOX,
        [FILLING | BOX | DATA, PROBE | BOX | DATA],
        [A_GONE | RUN, DOWN | RUN, FILLING | BOX | SCRATCH],
    ),
    (
        "a disk that is read-only holds the restarts of who saves there",
        READ_ONLY | RUN,
        [A_GONE | RUN, STALLED | RUN, INCOMPLETE | RUN, PROBE | BOX | DATA],
        [A_GONE | OTHER_RUN, FILLING | BOX | SCRATCH],
    ),
    (
        "a disk without inodes is reported for itself alone",
        INODES | BOX,
        [FEW_INODES | BOX | DATA, PROBE | BOX | DATA],
        [FEW_INODES | BOX | SCRATCH, STALLED | RUN],
    ),
    (
        "without a driver no run of the host can go on, and no XID comes",
        DRIVER | BOX,
        [STALLED | RUN, LATE | RUN, BLIND_TO_XIDS | BOX],
        [STALLED | ELSEWHERE, BLIND | RUN, BLIND_TO_XIDS | OTHER_BOX],
    ),
    ("without a driver workers are still started", DRIVER | BOX, [], [A_GONE | RUN]),
    (
        "leftovers explain the line that tells of them",
        LEFTOVERS | BOX,
        [LINE_OF_GPU | RUN],
        [LINE | RUN, LINE_OF_GPU | ELSEWHERE, STALLED | RUN],
    ),
    ("a lost GPU leaves the stall of whichever run", LOST | BOX, [], [STALLED | RUN]),
]


def test_the_shipped_rules_mute_as_the_table(assert_mutes: Callable[[list[Case]], None]) -> None:
    assert_mutes(CASES)
