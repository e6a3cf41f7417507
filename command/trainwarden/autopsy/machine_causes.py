"""Causes in the machine: GPU, memory, disk, boots, what is installed. Data only."""

from __future__ import annotations

from trainwarden.autopsy import machine_findings as seen
from trainwarden.autopsy import restart_findings as restarts
from trainwarden.autopsy.announced_findings import not_started
from trainwarden.autopsy.cause import Cause
from trainwarden.autopsy.signs import FINISHED, Sign, any_time, first_of, lines
from trainwarden_exporter.frameworks.base import bullet_points

MACHINE_CAUSES: tuple[Cause, ...] = (
    Cause(
        "gpu_held",
        "The GPU was held by processes of an earlier run",
        (
            lines("gpu_busy", points=5, what="The driver refused the GPU"),
            Sign(2, seen.before_first_step),
            any_time("gpu_holder", points=2, what="Processes hold the device", key=False),
            first_of("gpu_busy"),
            any_time(
                "gpu_exclusive",
                points=-4,
                what="Compute mode Exclusive Process makes the same error",
                key=False,
            ),
            FINISHED,
        ),
        bullet_points("""
            - List the holders, including holders that nvidia-smi does not show: `trainwarden
              preflight`, or `lsof /dev/nvidia*`.
            - End exactly these pids, TERM before KILL, and wait until the memory is
              free. Never kill by name: a healthy run beside it has the same name.
            - Start again once `preflight` passes.
        """),
        ("workers",),
        ("TrainingGpuHeldByLeftovers",),
    ),
    Cause(
        "gpu_exclusive",
        "The GPU is in compute mode Exclusive Process, and a second process needs it",
        (
            any_time("gpu_exclusive", points=3, what="Exclusive Process is set"),
            lines("gpu_busy", points=4, what="The driver refused the GPU", key=False),
            FINISHED,
        ),
        bullet_points("""
            - Set the mode back, once no process uses the GPU: `nvidia-smi -i GPU -c
              DEFAULT`.
        """),
        ("workers",),
        ("TrainingGpuExclusiveMode",),
    ),
    Cause(
        "memory_full",
        "The memory of the host filled up and was not freed",
        (
            Sign(4, seen.memory_full, key=True),
            any_time("brake", points=4, what="The emergency brake fired", least=10),
            any_time(
                "oom_kill", "host_out_of_memory", points=5, what="A process ran out of memory"
            ),
            Sign(6, restarts.restarted_for(*restarts.HOST_MEMORY), key=True),
            Sign(1, seen.little_available),
            Sign(2, seen.several_reboots),
            Sign(-4, seen.memory_free),
            first_of("oom_kill", "host_out_of_memory"),
        ),
        bullet_points("""
            - Restart the workers one at a time, the largest first: only that frees
              what they hold. A brake that only stops new trials does not.
            - Until the leak is found, limit each worker's memory, or restart it after
              a number of trials.
            - Look for what grows: replay buffers, cached batches, open results,
              data-loader workers.
        """),
        ("memory", "workers"),
        ("TrainingWorkerMemoryOverLimit", "TrainingMemoryFloor", "TrainingBrakeFiring"),
    ),
    Cause(
        "memory_limit",
        "The memory of a worker grew beyond its limit, again after each restart",
        (Sign(6, restarts.restarted_for(*restarts.LEAK), key=True), FINISHED),
        bullet_points("""
            - Look for what grows: replay buffers, cached batches, open results,
              data-loader workers. A restart frees the memory, and does not end the leak.
            - If the memory rises at once after each start and then stays, the limit is too
              low: raise `--memory-limit`, or `memory_limit` of the worker.
        """),
        ("memory", "workers"),
        ("TrainingWorkerMemoryOverLimit",),
    ),
    Cause(
        "gpu_out_of_memory",
        "A GPU ran out of memory",
        (
            lines("gpu_out_of_memory", "oom_thrown", points=5, what="CUDA reports it"),
            first_of("gpu_out_of_memory", "oom_thrown"),
            FINISHED,
        ),
        bullet_points("""
            - Reduce what the failing process may take: micro-batch, sequence length,
              or the share of memory of the inference server (`mem_fraction_static`,
              `gpu_memory_utilization`).
            - Check that no leftover of an earlier run holds memory: `trainwarden
              preflight`.
        """),
        ("workers",),
        ("TrainingGpuMemoryNearlyFull", "TrainingTroubleLine"),
    ),
    Cause(
        "gpu_fault",
        "A GPU or its driver failed",
        (
            lines("gpu_fault", points=5, what="CUDA reports it"),
            Sign(5, seen.fatal_xid, key=True),
            first_of("gpu_fault", "xid"),
            Sign(-4, seen.repeated_gpu_fault),
            FINISHED,
        ),
        bullet_points("""
            - Look at the driver's events (`dmesg | grep Xid`) and at the ECC counts
              of that GPU.
            - An illegal memory access without an XID of the hardware is a fault of
              the program: repeat with `CUDA_LAUNCH_BLOCKING=1`.
        """),
        ("workers",),
        ("TrainingGpuXid", "TrainingGpuLost"),
    ),
    Cause(
        "disk_full",
        "A disk was full",
        (lines("disk_full", points=6, what="Writing failed"), first_of("disk_full"), FINISHED),
        bullet_points("""
            - Free space before a restart: a save on a full disk is lost.
            - Keep fewer checkpoints, or move the complete ones away.
        """),
        ("disk",),
        ("TrainingDiskFilling",),
    ),
    Cause(
        "write_failed",
        "A checkpoint could not be written, as on a full disk or above a quota",
        (
            lines("write_failed", points=6, what="Writing failed"),
            lines("disk_full", points=-6, what="The disk was full", key=False),
            FINISHED,
        ),
        bullet_points("""
            - Compare `df -h` and `df -i` of that folder with what a checkpoint needs, and the
              quota of the account (`quota -s`). The checkpoint that was being written is lost.
        """),
        ("disk",),
        ("TrainingDiskFilling",),
    ),
    Cause(
        "not_writable",
        "A folder could not be written to",
        (
            lines("not_writable", points=5, what="Writing was refused"),
            first_of("not_writable"),
            FINISHED,
        ),
        bullet_points("""
            - Check owner and mode of the folder for the account of the run. A restart
              does not help.
        """),
        ("disk", "rollouts"),
        ("TrainingDiskReadOnly", "TrainingWaitingForRollouts"),
    ),
    Cause(
        "disk_error",
        "A disk or a network mount failed",
        (
            lines("disk_error", points=5, what="Reading or writing failed"),
            first_of("disk_error"),
            FINISHED,
        ),
        bullet_points("""
            - Check the mount and the kernel log before anything writes there again.
        """),
        ("disk",),
        ("TrainingDiskReadOnly", "TrainingDiskProbeFailing"),
    ),
    Cause(
        "environment_missing",
        "A module, a program or an environment was missing",
        (
            lines("environment_missing", points=5, what="It was not found"),
            first_of("environment_missing"),
            Sign(-4, not_started),
            FINISHED,
        ),
        bullet_points("""
            - Install what the line names, in the environment of the part that logs
              it.
        """),
        ("workers",),
        ("TrainingWorkerGone", "TrainingWaitingForRollouts"),
    ),
    Cause(
        "port_in_use",
        "A port was still in use, usually by a leftover of the last run",
        (lines("port_in_use", points=4, what="Binding failed"), first_of("port_in_use"), FINISHED),
        bullet_points("""
            - Find what listens there (`ss -ltnp`) and end exactly that process.
        """),
        ("workers",),
        ("TrainingWorkerGone",),
    ),
    Cause(
        "reboot",
        "The host restarted",
        (
            Sign(5, seen.reboot_at_end, key=True),
            Sign(4, seen.reboot_of_this_host, key=True),
            any_time("kernel_panic", points=4, what="The kernel reports a failure"),
            Sign(1, seen.several_reboots),
            Sign(-3, seen.memory_explains),
            FINISHED,
        ),
        bullet_points("""
            - Read the end of the log of the boot before: `journalctl -b -1 -n 100`.
            - Let the workers come back after a boot: see docs/systemd.md.
        """),
        ("workers",),
        ("TrainingReboot", "TrainingRebootLoop"),
    ),
)
