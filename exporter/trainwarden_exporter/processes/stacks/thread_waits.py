"""For what threads wait beside the deciding thread of a process, and whether that may end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from trainwarden_exporter.processes.stacks.activity import sleeps_on
from trainwarden_exporter.processes.stacks.awaited_files import asks_outside, is_of_the_run
from trainwarden_exporter.processes.stacks.kernel_state import read_thread_state
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Finding,
    KernelState,
    Stacks,
    ThreadStack,
)
from trainwarden_exporter.processes.stacks.open_files import OpenFiles
from trainwarden_exporter.processes.stacks.py_spy import MAX_THREADS
from trainwarden_exporter.processes.stacks.waits import (
    feeds_nobody,
    find_wait,
    is_asking,
    is_in_call_of,
    is_in_event_loop,
)


def list_threads(pid: int, root: Path) -> list[int]:
    """Returns the threads of a process, no more than a limit; empty if it has ended."""
    try:
        names = os.listdir(f"{root}/{pid}/task")  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []
    return [int(one) for one in names[:MAX_THREADS]]


def examined_thread(finding: Finding) -> int:
    """Returns the thread whose wait decides: the main thread, or the training thread of Ray."""
    pid = finding.member.identity.pid
    main = finding.stacks.main(pid)
    return main.tid or pid if main is not None and main.is_training_thread else pid


def is_closed(pid: int, tid: int, kernel: KernelState, files: OpenFiles) -> bool:
    """Whether only processes of the run can end the wait of a thread."""
    if sleeps_on(kernel):
        return True
    return kernel.is_endless and (
        kernel.wait_channel.startswith("futex_")
        or _kind(kernel, tid) is Activity.CHILD
        or is_of_the_run(pid, tid, files)
    )


def waits_of_threads(finding: Finding, files: OpenFiles) -> Iterator[tuple[Activity, int]]:
    """Yields the waits of other threads that may end: for a disk, for a server, or else a sleep.

    Each may wake the thread that decides.
    """
    pid, main = finding.member.identity.pid, finding.stacks.main(finding.member.identity.pid)
    python = {one.tid: one for one in finding.stacks.threads}
    # Before Python 3.11, py-spy does not know which thread of the kernel has which stack.
    if any(not (one.tid or one is main or feeds_nobody(one)) for one in finding.stacks.threads):
        yield Activity.SLEEP, 0
    for tid in list_threads(pid, files.root):
        if tid != examined_thread(finding):
            kernel = read_thread_state(pid, tid, files.root)
            if _kind(kernel, tid) is Activity.DISK:
                yield Activity.DISK, tid
            elif (thread := python.get(tid)) is None:
                if found := _of_c_code(pid, tid, kernel, files):
                    yield found, tid
            elif found := _of_python(pid, thread, kernel, files):
                yield found, tid


def _of_c_code(pid: int, tid: int, kernel: KernelState, files: OpenFiles) -> Activity | None:
    """Returns the wait of a thread that may call Python later: after a sleep, or for an answer.

    Its other waits are no sign: drivers and libraries keep threads that wait for ever, or wake up
    now and then.
    """
    if _kind(kernel, tid) is Activity.SLEEP:
        return None if sleeps_on(kernel) else Activity.SLEEP
    in_futex = kernel.wait_channel.startswith("futex_")
    return Activity.SERVER if not in_futex and asks_outside(pid, tid, files) else None


def _of_python(
    pid: int, thread: ThreadStack, kernel: KernelState, files: OpenFiles
) -> Activity | None:
    """Returns the wait of a thread of Python, unless it is closed.

    A wait for a program ends with that program. What a thread waits for in a library for servers is
    judged by its connections.
    """
    kind = _kind(kernel, thread.tid)
    if feeds_nobody(thread):
        return Activity.SERVER if is_asking(thread) else None
    if Activity.CHILD is kind or is_in_call_of(thread, Activity.CHILD):
        return Activity.SLEEP
    if kind is Activity.SERVER:
        return kind
    if is_in_call_of(thread, Activity.SERVER):
        wait = find_wait(Stacks((thread,)), kernel, thread.tid)
        has_timer = wait is not None and is_in_event_loop(wait) and not kernel.is_endless
        return Activity.SLEEP if has_timer else None
    return None if is_closed(pid, thread.tid, kernel, files) else Activity.SLEEP


def _kind(kernel: KernelState, tid: int) -> Activity | None:
    """Returns what a wait is by the kernel alone."""
    wait = find_wait(Stacks(), kernel, tid)
    return None if wait is None else wait.activity
