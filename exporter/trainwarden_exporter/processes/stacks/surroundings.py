"""Looks around a process that waits: for what it waits, and what its other threads do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import (
    read_open_links,
    read_process,
    read_text,
)
from trainwarden_exporter.processes.stacks.activity import sleeps_on
from trainwarden_exporter.processes.stacks.awaited_files import (
    MAX_FILES,
    find_awaited_files,
    find_ends,
    is_of_the_run,
)
from trainwarden_exporter.processes.stacks.far_ends import (
    UNKNOWN,
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
)
from trainwarden_exporter.processes.stacks.open_files import OpenFiles
from trainwarden_exporter.processes.stacks.prompts import reads_terminal
from trainwarden_exporter.processes.stacks.py_spy import MAX_THREADS
from trainwarden_exporter.processes.stacks.thread_waits import (
    examined_thread,
    is_closed,
    list_threads,
    waits_of_threads,
)
from trainwarden_exporter.processes.stacks.waits import (
    Wait,
    find_wait,
    is_in_call_of,
    is_of_events,
    is_of_file_lock,
    is_of_pipe,
    is_of_socket,
    waits_for_forks,
)

MAY_WAIT_FOR_GPU = " and may wait for its GPU"

_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel")

_FED_BY_HANDLERS = (Activity.QUEUE, Activity.LOCK, Activity.PIPE, Activity.SLEEP)
"""Waits in which a handler of Python runs, and which it may end. A collective is C code, and only
the end of a child or the answer of a server ends the wait for that."""

_OF_DATA_LOADER = "(utils/data/dataloader.py)"
"""Of a wait for a queue that only the workers of a data loader of PyTorch fill."""

_REPORTING_PROGRAMS = ("wandb-core", "gpu_stats", "nvidia-smi")
"""Programs below a trainer that give it nothing, by the names of their processes."""

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


def look_around(finding: Finding, files: OpenFiles) -> Surroundings:
    """Returns what is around a process of the run for which `files` were read."""
    found, pid = _look_around(finding, files), finding.member.identity.pid
    # Programs of Go handle all signals, and pass on what their parents ask for.
    fed = found.activity in _FED_BY_HANDLERS and _OF_DATA_LOADER not in finding.detail
    signalled = finding.stacks.is_python and (
        has_timer(pid, files.root) or (fed and takes_signals(pid, files.root))
    )
    return found._replace(may_end=found.may_end or signalled)


def _look_around(finding: Finding, files: OpenFiles) -> Surroundings:
    activity, kernel, root = finding.activity, finding.kernel, files.root
    pid = finding.member.identity.pid
    if activity in (Activity.IDLE, Activity.SERVER) and reads_terminal(pid, root):
        return Surroundings(Activity.PROMPT)
    match activity:
        case Activity.IDLE | Activity.SERVER if kernel and (ends := find_device(pid, kernel, root)):
            return Surroundings(Activity.IDLE, ends)
        case Activity.SERVER if kernel is not None:
            return _servers(finding, kernel, files)
        case Activity.DISK:
            return Surroundings(activity, find_file(pid, examined_thread(finding), root))
        case Activity.MOVING if finding.detail and _uses_accelerator(pid, root):
            return Surroundings(activity, detail=MAY_WAIT_FOR_GPU)
        case Activity.PIPE if kernel is not None:
            return Surroundings(activity, find_pipe_ends(pid, kernel.file_number, files))
        case Activity.LOCK | Activity.QUEUE:
            waits = dict(waits_of_threads(finding, files))
            if Activity.DISK in waits:
                return Surroundings(Activity.DISK, find_file(pid, waits[Activity.DISK], root), True)
            is_futex = Wait(activity, finding.detail).is_futex
            may_end = bool(waits) or (is_futex and _may_be_woken(pid, files))
            return Surroundings(activity, _held_by(finding, files), may_end)
        case Activity.IDLE if not finding.member.is_trainer:
            return Surroundings(activity, may_end=_may_be_served(finding, files))
    return Surroundings(activity)


def _servers(finding: Finding, kernel: KernelState, files: OpenFiles) -> Surroundings:
    pid = finding.member.identity.pid
    if not _waits_for_a_thread(finding, kernel):
        return Surroundings(finding.activity, find_servers(pid, kernel.file_number, files))
    # another thread waits for the server; what wakes this one may come from a third
    others = {one for one, _ in waits_of_threads(finding, files)}
    servers = _servers_of_threads(finding, files)
    return Surroundings(finding.activity, servers, bool(others - {Activity.SERVER}))


def _held_by(finding: Finding, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the far ends of a lock or a queue, by the system call in which its thread waits."""
    kernel, pid = finding.kernel, finding.member.identity.pid
    if kernel is None:
        return ()
    if finding.activity is Activity.LOCK and is_of_file_lock(kernel.wait_channel):
        return find_lock_holder(pid, files.root)
    if is_of_pipe(kernel.wait_channel):
        return find_pipe_ends(pid, kernel.file_number, files)
    if is_of_socket(kernel.wait_channel):
        return find_servers(pid, kernel.file_number, files)
    if is_of_events(kernel.wait_channel) and not is_of_the_run(
        pid, examined_thread(finding), files
    ):
        return (UNKNOWN,)
    return ()


def _servers_of_threads(finding: Finding, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the other ends of the connections in which threads wait.

    Those of all connections if it is not known which threads these are.
    """
    own, found = finding.member.identity, dict[FarEnd, None]()
    asking = [one for one in finding.stacks.threads if is_in_call_of(one, Activity.SERVER)]
    for thread in asking:
        if not thread.tid:
            return find_servers(own.pid, None, files)
        awaited = find_awaited_files(own.pid, thread.tid, files.root)
        if awaited is not None and len(awaited) > MAX_FILES:
            return find_servers(own.pid, None, files)
        ends = [UNKNOWN] if awaited is None else []
        for file in awaited or ():
            ends += find_ends(own.pid, file, files)
        found |= dict.fromkeys(one for one in ends if one.identity != own)
    return tuple(found)


def _may_be_served(finding: Finding, files: OpenFiles) -> bool:
    """Whether a process, for whose wait there is no word, may get something from outside the run.

    Of a program without Python, whichever thread waits.
    """
    pid = finding.member.identity.pid
    main = finding.stacks.main(pid)
    if waits_for_forks(main) or _name(pid, files.root) in _REPORTING_PROGRAMS:
        return False
    tids = [examined_thread(finding)] if finding.stacks.is_python else list_threads(pid, files.root)
    if len(tids) == MAX_THREADS:
        return True  # there may be more
    states = ((tid, read_thread_state(pid, tid, files.root)) for tid in tids)
    return not all(is_closed(pid, tid, state, files) for tid, state in states)


def _waits_for_a_thread(finding: Finding, kernel: KernelState) -> bool:
    pid = finding.member.identity.pid
    main = finding.stacks.main(pid)
    own = None if main is None else find_wait(Stacks((main,)), kernel, pid)
    return own is not None and own.activity in (Activity.LOCK, Activity.QUEUE)


def _may_be_woken(pid: int, files: OpenFiles) -> bool:
    """Whether an accelerator, or a process outside the run, may end a wait of C code."""
    maps = read_text(f"{files.root}/{pid}/maps") or ""
    if _COMPUTES_UNSEEN.search(maps) or is_in_named_memory(pid, maps, files.root):
        return True
    ends = find_servers(pid, None, files)
    return any(end.identity not in files.inside for end in ends)


def _name(pid: int, root: Path) -> str:
    process = read_process(pid, root)
    return "" if process is None else process.name


def stands_for_ever(pid: int, root: Path) -> bool:
    """Whether each thread of a process is stopped, or sleeps on for longer than any wait that ends.

    Whatever else it waits for, somebody may give it: a timer, a client, a server behind it.
    """
    states = [read_thread_state(pid, tid, root) for tid in list_threads(pid, root)]
    if not states or len(states) == MAX_THREADS:
        return False  # it has ended, or has more threads
    return all(one.state in ("T", "t") or sleeps_on(one) for one in states)


def _uses_accelerator(pid: int, root: Path) -> bool:
    return any(link.startswith(_ACCELERATORS) for _, link in read_open_links(pid, root))
