"""Says what one process does, from several looks and stacks. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Finding,
    KernelState,
    Look,
    Member,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.waits import (
    RAY,
    Wait,
    feeds_nobody,
    find_phase,
    find_wait,
    is_in_event_loop,
    is_of_ray,
    waits_for_ray_task,
)
from trainwarden_exporter.processes.stacks.words import place

SAMPLES = 3
"""Stacks by which a process is judged."""

BUSY_CORES = 0.05
"""CPU use from which a process moves. Threads that only wake up now and then use less."""

SPINNING_CORES = 0.9
"""CPU use of a thread that spins."""

BUSY_BYTES_PER_SECOND = 100e3
"""Bytes that system calls read and write from which a process moves."""

ENDLESS_SLEEP_SECONDS = 7 * 86400.0
"""Seconds that a sleep still has to go from which it is no wait that ends: a client waits out a
rate limit for minutes, and a program until the night, when a GPU is cheap."""


def find_activity(
    member: Member, looks: Sequence[Look], samples: Sequence[Stacks], collective: str | None = None
) -> Finding:
    """Returns what a process does by its looks and the stacks of a round, oldest first.

    `collective` is the one in which it waits as its Flight Recorder shows: a read of a tensor that
    waits for NCCL has no frame.
    """
    pid, kernel = member.identity.pid, looks[-1].kernel
    stacks = samples[-1] if samples else Stacks(problem="not read yet")
    wait = find_wait(stacks, kernel, pid, world=member.world)
    wait = wait or Wait(Activity.IDLE, kernel.wait_channel)
    if member.is_trainer and waits_for_ray_task(stacks.main(pid)):
        wait = Wait(Activity.SERVER, RAY)  # its training thread has ended, or not begun
    hidden = wait.activity in (Activity.IDLE, Activity.GPU, Activity.COLLECTIVE) or wait.is_futex
    if collective and hidden:
        wait = Wait(Activity.COLLECTIVE, collective)
    activity, detail = wait
    read = [one for one in samples if one.threads]
    main, latest = stacks.main(pid), looks[-SAMPLES:]
    stands = len({one.main(pid) for one in read}) == 1
    if activity not in (Activity.STOPPED, Activity.PROMPT):
        serves_ray = _serves_ray(member, stacks)
        changes = bool(read) and not stands and not serves_ray
        if changes or is_busy(latest, activity, wakes_often=serves_ray):
            spins = stands and len(read) == SAMPLES and _cores(latest) > SPINNING_CORES
            activity, detail = Activity.MOVING, place(main) if spins else ""
        elif stacks.is_python and len(read) < SAMPLES and activity is not Activity.DISK:
            activity = Activity.UNKNOWN
        elif main is not None and main.is_training_thread and not (main.tid and kernel.state):
            activity = Activity.UNKNOWN  # the kernel's state is not that of this thread
    return Finding(
        member,
        activity,
        detail,
        phase="" if main is None else find_phase(main.frames),
        stacks=stacks,
        kernel=kernel,
        may_end=_may_end(wait, looks) or _may_be_fed(stacks, main),
    )


def _may_be_fed(stacks: Stacks, main: ThreadStack | None) -> bool:
    """Whether another thread of a worker of Ray Train may wake the training thread.

    Through what such a thread waits is not known: all workers have connections to Ray.
    """
    if main is None or not main.is_training_thread:
        return False
    return not all(feeds_nobody(one) for one in stacks.threads if one is not main)


def _may_end(wait: Wait, looks: Sequence[Look]) -> bool:
    """Whether a wait for a lock or in an event loop has a timeout, or another one was interrupted.

    A process may look for something else between two waits with a timeout; who is woken from a wait
    without one got something.
    """
    kernel = looks[-1].kernel
    if not kernel.is_endless:
        in_futex = kernel.wait_channel.startswith("futex_")
        return (wait.activity is Activity.LOCK and in_futex) or is_in_event_loop(wait)
    woken = len({look.kernel.switches for look in looks}) > 1
    return woken and wait.activity is not Activity.COLLECTIVE


def _cores(looks: Sequence[Look]) -> float:
    first, last = looks[0], looks[-1]
    return (last.kernel.cpu_seconds - first.kernel.cpu_seconds) / ((last.at - first.at) or math.inf)


def _serves_ray(member: Member, stacks: Stacks) -> bool:
    """Whether a process beside the workers of Ray Train is one of Ray's own, or has no task."""
    if not member.with_ray or member.is_trainer:
        return False
    return not stacks.is_python or is_of_ray(stacks.main(member.identity.pid))


def is_busy(
    looks: Sequence[Look], activity: Activity = Activity.IDLE, *, wakes_often: bool = False
) -> bool:
    """Whether a process uses the CPU or files; CUDA and NCCL use a whole core to wait.

    A process that `wakes_often` always has a little to do, such as to report that it lives.
    """
    first, last = looks[0], looks[-1]
    seconds = last.at - first.at
    if seconds <= 0:
        return False
    # On a host under load, a process that could run gets little of the CPU.
    runnable = (all if wakes_often else any)(look.kernel.state == "R" for look in looks)
    read, before = last.kernel.io_bytes, first.kernel.io_bytes
    moved = 0.0 if read is None or before is None else (read - before) / seconds
    return moved > BUSY_BYTES_PER_SECOND or (
        (runnable or _cores(looks) > BUSY_CORES)
        and activity not in (Activity.COLLECTIVE, Activity.GPU)
    )


def sleeps_on(kernel: KernelState) -> bool:
    """Whether a thread sleeps for longer than any wait that ends."""
    return (kernel.sleeps_for or 0.0) > ENDLESS_SLEEP_SECONDS
