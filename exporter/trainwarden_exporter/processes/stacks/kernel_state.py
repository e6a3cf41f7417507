"""Reads what the kernel shows of a process that waits; see proc(5)."""

from __future__ import annotations

import os
import re
import signal
import struct
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process, read_text
from trainwarden_exporter.processes.stacks.model import KernelState
from trainwarden_exporter.processes.stacks.system_calls import (
    CLOCK_NANOSLEEP,
    FUTEX,
    SystemCall,
    read_call,
    read_memory,
)


def read_kernel_state(
    identity: Identity, root: Path = PROC, *, tid: int | None = None
) -> KernelState | None:
    """Returns the state of a process; None if it has ended. Raises CollectError.

    `tid` is its thread whose wait is of interest, without it the main thread. The system call is
    readable with permission to trace the process, the rest with its account.
    """
    pid = identity.pid
    process = read_process(pid, root)
    if process is None or process.identity != identity or not process.alive:
        return None
    io_bytes = parse_io(read_text(f"{root}/{pid}/io") or "")
    if tid in (None, pid):
        return _read_wait(f"{root}/{pid}", process.state, process.cpu_seconds, io_bytes)
    thread = read_thread_state(pid, tid, root)
    return replace(thread, cpu_seconds=process.cpu_seconds, io_bytes=io_bytes)


def read_thread_state(pid: int, tid: int, root: Path) -> KernelState:
    """Returns in what a thread of a process waits; its CPU time is not read."""
    folder = f"{root}/{pid}/task/{tid}"
    state = (read_text(f"{folder}/stat") or "").rpartition(") ")[2][:1]
    return _read_wait(folder, state, 0.0, None)


def _read_wait(folder: str, state: str, cpu_seconds: float, io_bytes: int | None) -> KernelState:
    channel = (read_text(f"{folder}/wchan") or "").strip()
    call = read_call(folder)
    return KernelState(
        state=state,
        cpu_seconds=cpu_seconds,
        switches=parse_switches(read_text(f"{folder}/status") or ""),
        io_bytes=io_bytes,
        wait_channel="" if channel == "0" else channel,
        file_number=call and call.file_number,
        sleeps_for=_read_sleep(folder, call) if call and "nanosleep" in channel else None,
        is_endless=call is not None and call.is_endless,
    )


def parse_switches(status: str) -> int | None:
    """Returns the context switches in a /proc/<pid>/status, of one thread."""
    counts = [int(line.split()[1]) for line in status.splitlines() if "ctxt_switches:" in line]
    return sum(counts) if counts else None


_OF_TIMERS = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
_OF_PROGRAMS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, *range(signal.SIGRTMIN, 65))
"""Signals that mean only what a program makes of them. Python, the C library, PyTorch, its launcher
and its data loaders, Ray and faulthandler handle others; Lightning handles SIGUSR1 in Slurm."""


def has_timer(pid: int, root: Path) -> bool:
    """Whether a timer of a process may end what it waits for.

    That is a timer of timer_create(2), or a handler of the signals of alarm(2) and setitimer(2),
    whose timers /proc does not show: a library may have set it for a call that has ended.
    """
    return _handles(pid, _OF_TIMERS, root) or bool(read_text(f"{root}/{pid}/timers"))


def takes_signals(pid: int, root: Path) -> bool:
    """Whether any process may give this one something by a signal that it handles or waits for."""
    return _handles(pid, _OF_PROGRAMS, root)


def _handles(pid: int, signals: Iterable[int], root: Path) -> bool:
    status = read_text(f"{root}/{pid}/status") or ""
    # sigwait(3) and signalfd(2) are for signals that are blocked
    masks = re.findall(r"^Sig(?:Cgt|Blk):\s*([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> one - 1 & 1 for mask in masks for one in signals)


_MOST_SEMAPHORES = 10_000
_TIMESPEC = struct.Struct("=qq")


def is_in_named_memory(pid: int, maps: str, root: Path) -> bool:
    """Whether the main thread waits in a futex of a file that a process outside may open.

    Named semaphores are such files, which sem_open(3) creates by another name and then removes
    that; multiprocessing removes the names of its own at once. `maps` is the content of
    /proc/<pid>/maps.
    """
    call = read_call(f"{root}/{pid}")
    if call is None or call.number not in FUTEX:
        return False
    address = call.arguments[0]
    for line in maps.split("\n"):  # names have other line separators as they are
        span, *fields = line.split(maxsplit=5)[:6] or [""]
        start, _, end = span.partition("-")
        if not end or len(fields) < 4:  # noqa: PLR2004 - permissions, offset, device, inode
            continue
        permissions, _, _, inode, *name = fields
        if int(start, 16) <= address < int(end, 16):
            has_name = bool(name) and not name[0].endswith("(deleted)")
            shared = permissions.endswith("s")
            return shared and (has_name or _may_have_name(int(inode), f"{root}/{pid}/root/dev/shm"))
    return False


def _may_have_name(inode: int, folder: str) -> bool:
    """Whether a file of `folder` is this one; a folder that is not read to its end may have it."""
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if entry.inode() == inode or number == _MOST_SEMAPHORES:
                    return True
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def parse_io(text: str) -> int | None:
    """Returns the bytes read and written by system calls in a /proc/<pid>/io."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return int(fields["rchar"]) + int(fields["wchar"])
    except (KeyError, ValueError):
        return None


def _read_sleep(folder: str, call: SystemCall) -> float | None:
    """Returns for how many seconds a process still sleeps in `call`.

    Python 3.11 and newer call clock_nanosleep(2) with the time at which the sleep ends; None for
    another call, or if the memory is not readable.
    """
    clock, flags, address, *_ = call.arguments
    # CLOCK_MONOTONIC and TIMER_ABSTIME in linux/time.h
    if call.number not in CLOCK_NANOSLEEP or (clock, flags) != (1, 1):
        return None
    data = read_memory(folder, address, _TIMESPEC.size) or b""
    if len(data) < _TIMESPEC.size:
        return None
    seconds, nanoseconds = _TIMESPEC.unpack(data)
    return float(seconds + nanoseconds / 1e9 - time.monotonic())
