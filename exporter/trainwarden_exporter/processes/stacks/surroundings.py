"""Looks around a process that waits: for what it waits, and what its other threads do."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, Identity, read_open_links, read_text
from trainwarden_exporter.processes.stacks.activity import sleeps_on
from trainwarden_exporter.processes.stacks.far_ends import (
    find_device,
    find_file,
    find_lock_holder,
    find_pipe_ends,
    find_servers,
)
from trainwarden_exporter.processes.stacks.kernel_state import (
    has_timer,
    is_in_named_memory,
    read_thread_state,
    takes_signals,
)
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    FarEnd,
    Finding,
    KernelState,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.prompts import reads_terminal
from trainwarden_exporter.processes.stacks.py_spy import MAX_THREADS
from trainwarden_exporter.processes.stacks.waits import (
    Wait,
    feeds_nobody,
    find_wait,
    is_in_call_of,
    is_of_file_lock,
    is_of_pipe,
    is_of_socket,
)

MAY_WAIT_FOR_GPU = " and may wait for its GPU"

_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel")

_FED_BY_HANDLERS = (Activity.QUEUE, Activity.LOCK, Activity.PIPE, Activity.SLEEP)
"""Waits in which a handler of Python runs, and which it may end. A collective is C code, and only
the end of a child or the answer of a server ends the wait for that."""

_OF_DATA_LOADER = "(utils/data/dataloader.py)"
"""Of a wait for a queue that only the workers of a data loader of PyTorch fill."""

_COMPUTES_UNSEEN = re.compile(
    r"/(?:jaxlib|jax_plugins|torch_xla|libtpu|tensorflow|torch_neuronx|paddle|mindspore)/"
)
"""Libraries whose calls wait in a futex while an accelerator computes."""


class Surroundings(NamedTuple):
    """What changes in a finding."""

    activity: Activity
    far_ends: tuple[FarEnd, ...] = ()
    may_end: bool = False
    detail: str = ""
    """Text to be added to the detail."""


def look_around(finding: Finding, inside: Collection[Identity], root: Path = PROC) -> Surroundings:
    """Returns what is around a process; `inside` are the processes of its run."""
    found, pid = _look_around(finding, inside, root), finding.member.identity.pid
    # Programs of Go handle all signals, and pass on what their parents ask for.
    fed = found.activity in _FED_BY_HANDLERS and _OF_DATA_LOADER not in finding.detail
    signalled = finding.stacks.is_python and (
        has_timer(pid, root) or (fed and takes_signals(pid, root))
    )
    return found._replace(may_end=found.may_end or signalled)


def _look_around(finding: Finding, inside: Collection[Identity], root: Path) -> Surroundings:
    activity, kernel, pid = finding.activity, finding.kernel, finding.member.identity.pid
    pids = [one.pid for one in inside]
    if activity in (Activity.IDLE, Activity.SERVER) and reads_terminal(pid, root):
        return Surroundings(Activity.PROMPT)
    match activity:
        case Activity.IDLE | Activity.SERVER if kernel and (ends := find_device(pid, kernel, root)):
            return Surroundings(Activity.IDLE, ends)
        case Activity.SERVER if kernel is not None:
            servers = find_servers(pid, kernel.file_number, pids, root)
            # another thread waits for the server; what wakes this one may come from a third
            may_end = _waits_for_a_thread(finding, kernel) and any(
                one is not Activity.SERVER for one, _ in _waits_of_threads(finding, root)
            )
            return Surroundings(activity, servers, may_end)
        case Activity.DISK:
            return Surroundings(activity, find_file(pid, _examined(finding), root))
        case Activity.MOVING if finding.detail and _uses_accelerator(pid, root):
            return Surroundings(activity, detail=MAY_WAIT_FOR_GPU)
        case Activity.PIPE if kernel is not None:
            return Surroundings(activity, find_pipe_ends(pid, kernel.file_number, pids, root))
        case Activity.LOCK | Activity.QUEUE:
            waits = dict(_waits_of_threads(finding, root))
            if Activity.DISK in waits:
                return Surroundings(Activity.DISK, find_file(pid, waits[Activity.DISK], root), True)
            is_futex = Wait(activity, finding.detail).is_futex
            may_end = bool(waits) or (is_futex and _may_be_woken(pid, inside, root))
            return Surroundings(activity, _held_by(finding, pids, root), may_end)
    return Surroundings(activity)


def _held_by(finding: Finding, pids: Collection[int], root: Path) -> tuple[FarEnd, ...]:
    """Returns the far ends of a lock or a queue, by the system call in which its thread waits."""
    kernel, pid = finding.kernel, finding.member.identity.pid
    if kernel is None:
        return ()
    if finding.activity is Activity.LOCK and is_of_file_lock(kernel.wait_channel):
        return find_lock_holder(pid, root)
    if is_of_pipe(kernel.wait_channel):
        return find_pipe_ends(pid, kernel.file_number, pids, root)
    if is_of_socket(kernel.wait_channel):
        return find_servers(pid, kernel.file_number, pids, root)
    return ()


def _waits_for_a_thread(finding: Finding, kernel: KernelState) -> bool:
    pid = finding.member.identity.pid
    main = finding.stacks.main(pid)
    own = None if main is None else find_wait(Stacks((main,)), kernel, pid)
    return own is not None and own.activity in (Activity.LOCK, Activity.QUEUE)


def _waits_of_threads(finding: Finding, root: Path) -> Iterator[tuple[Activity, int]]:
    """Yields the waits of other threads that may end: for a disk, in a sleep, for a server.

    A thread that waits with a timeout looks around after it, as after a sleep; a wait for a
    program ends with that program.
    """
    pid = finding.member.identity.pid
    examined = _examined(finding)
    main = finding.stacks.main(pid)
    python = {one.tid: one for one in finding.stacks.threads}
    in_c = Wait(finding.activity, finding.detail).is_futex
    # Before Python 3.11, py-spy does not know which thread of the kernel has which stack.
    if any(not (one.tid or one is main or feeds_nobody(one)) for one in finding.stacks.threads):
        yield Activity.SLEEP, 0
    try:
        names = os.listdir(f"{root}/{pid}/task")  # noqa: PTH208 - names are all that is needed
    except OSError:
        return
    for tid in map(int, names[:MAX_THREADS]):
        kernel = read_thread_state(pid, tid, root)
        wait = None if tid == examined else find_wait(Stacks(), kernel, tid)
        match wait and wait.activity:
            case Activity.DISK:
                yield Activity.DISK, tid
            case Activity.SERVER | Activity.SLEEP as other if tid in python:
                if not (sleeps_on(kernel) or feeds_nobody(python[tid])):
                    yield other, tid
            case Activity.SLEEP if in_c and not sleeps_on(kernel):
                yield Activity.SLEEP, tid  # of C code, as the wait
            case _ if tid in python and tid != examined:
                if _looks_around(python[tid], kernel):
                    yield Activity.SLEEP, tid


def _looks_around(thread: ThreadStack, kernel: KernelState) -> bool:
    if feeds_nobody(thread) or is_in_call_of(thread, Activity.SERVER):
        return False
    return not kernel.is_endless or is_in_call_of(thread, Activity.CHILD)


def _examined(finding: Finding) -> int:
    """Returns the thread whose wait decides: the main thread, or the training thread of Ray."""
    pid = finding.member.identity.pid
    main = finding.stacks.main(pid)
    return main.tid or pid if main is not None and main.is_training_thread else pid


def _may_be_woken(pid: int, inside: Collection[Identity], root: Path) -> bool:
    """Whether an accelerator, or a process outside the run, may end a wait of C code."""
    maps = read_text(f"{root}/{pid}/maps") or ""
    if _COMPUTES_UNSEEN.search(maps) or is_in_named_memory(pid, maps, root):
        return True
    ends = find_servers(pid, None, [one.pid for one in inside], root)
    return any(end.identity not in inside for end in ends)


def stands_for_ever(pid: int, root: Path = PROC) -> bool:
    """Whether each thread of a process is stopped, or sleeps on for longer than any wait that ends.

    Whatever else it waits for, somebody may give it: a timer, a client, a server behind it.
    """
    try:
        tids = os.listdir(f"{root}/{pid}/task")  # noqa: PTH208 - names are all that is needed
    except OSError:
        return False
    states = [read_thread_state(pid, int(tid), root) for tid in tids]
    return bool(states) and all(one.state in ("T", "t") or sleeps_on(one) for one in states)


def _uses_accelerator(pid: int, root: Path) -> bool:
    return any(link.startswith(_ACCELERATORS) for _, link in read_open_links(pid, root))
