"""Ends processes, and only those meant: through pidfds, never by a pid alone.

A pidfd (pidfd_open(2)) is opened first, and only then is the process behind it checked, so that a
pid given to a stranger meanwhile is never signalled.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.gpu.holders import program_name
from trainwarden_exporter.processes.procfs import (
    Identity,
    Process,
    read_command_line,
    read_process,
)
from trainwarden_remediator.exceptions import ActionError

REAP_SECONDS = 5.0
"""How long the kernel may take to end a process that was sent SIGKILL."""

SPARE_SECONDS = 1.0
"""How often it is asked whether what is spared may be killed by now."""

PROTECTED = frozenset(
    {
        "init",
        "systemd",
        "dockerd",
        "containerd",
        "supervisord",
        "prometheus",
        "prometheus-alertmanager",
        "alertmanager",
    }
)
"""Programs that are never part of a worker, beside sshd and Trainwarden's own."""


def protected(tree: Iterable[Process], processes: Mapping[int, Process]) -> str:
    """Why a tree must not be ended, or nothing.

    It must not hold this program, one that this program runs under, or one that keeps the box, or
    the watch over it, alive.
    """
    own = set()
    pid = os.getpid()
    while pid in processes and pid not in own:
        own.add(pid)
        pid = processes[pid].parent_pid
    for process in tree:
        if process.pid in own or process.pid == 1:
            return f"{process.name} ({process.pid}) is what the remediator runs under"
        for name in _names(process):
            if name in PROTECTED or name.startswith(("sshd", "trainwarden")):
                return f"{name} ({process.pid}) is protected"
    return ""


def _names(process: Process) -> Iterator[str]:
    """What a process may be called: an interpreter's script or module is a program as well."""
    yield process.name
    yield program_name(read_command_line(process.pid) or ())


def lives(identity: Identity) -> bool:
    """Whether that process still runs. Raises ActionError when that cannot be told."""
    try:
        process = read_process(identity.pid)
    except CollectError as error:
        raise ActionError(f"cannot see process {identity.pid}: {error}") from error
    return process is not None and process.alive and process.identity == identity


def tell(processes: Iterable[Identity], number: signal.Signals) -> None:
    """Send a signal to processes that still are who they were."""
    with ExitStack() as stack:
        _send(_hold(stack, processes), number)


def end(
    roots: Iterable[Identity],
    members: Iterable[Identity] = (),
    *,
    grace: float,
    late: Callable[[Collection[int]], Iterable[Identity]] = lambda _: (),
    spare: Callable[[], bool] = lambda: False,
    spare_for: float = 0.0,
) -> tuple[int, ...]:
    """End `roots` and `members`. Returns the pids that had to be killed.

    SIGTERM goes to the roots alone, for they know how to end their children; when they are gone,
    to the members that outlived them; after `grace` seconds SIGKILL goes to all that is left, and
    to what `late` says has come to belong to those pids meanwhile; not while `spare` says that it
    must not yet, but for no longer than `spare_for` seconds. Raises ActionError if anything
    survives that: a process in state D waits in the kernel and cannot be ended at all.
    """
    deadline = time.monotonic() + grace
    with ExitStack() as stack:
        first = _hold(stack, roots)
        held = first | _hold(stack, members)
        _send(first, signal.SIGTERM)
        _wait(first, deadline)
        _send({identity: fd for identity, fd in held.items() if identity not in first},
              signal.SIGTERM)  # fmt: skip
        _wait(held, deadline)
        deadline = max(deadline, time.monotonic()) + spare_for
        while not all(map(_ended, held.values())) and time.monotonic() < deadline and spare():
            _wait(held, min(deadline, time.monotonic() + SPARE_SECONDS))
        if alive := [identity.pid for identity, fd in held.items() if not _ended(fd)]:
            held |= _hold(stack, late(alive))
        left = {identity: fd for identity, fd in held.items() if not _ended(fd)}
        _send(left, signal.SIGKILL)
        _wait(left, time.monotonic() + REAP_SECONDS)
        survivors = [identity.pid for identity, fd in left.items() if not _ended(fd)]
    if survivors:
        raise ActionError(f"not even SIGKILL ended {survivors}: they wait in the kernel")
    return tuple(identity.pid for identity in left)


Pidfds = Mapping[Identity, int]


def _hold(stack: ExitStack, identities: Iterable[Identity]) -> dict[Identity, int]:
    """Pidfds of those processes that are still the ones meant, closed with `stack`."""
    held = {}
    for identity in identities:
        try:
            fd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            continue
        stack.callback(os.close, fd)
        process = read_process(identity.pid)
        if process is not None and process.identity == identity:
            held[identity] = fd
    return held


def _send(pidfds: Pidfds, number: signal.Signals) -> None:
    for identity, fd in pidfds.items():
        try:
            signal.pidfd_send_signal(fd, number)
            if number == signal.SIGTERM:
                # A stopped process would not notice that it is asked to end.
                signal.pidfd_send_signal(fd, signal.SIGCONT)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise ActionError(f"not allowed to signal process {identity.pid}") from error


def _wait(pidfds: Pidfds, deadline: float) -> None:
    """Until all have ended, or `deadline` on the monotonic clock."""
    waiting = select.poll()
    open_fds = set(pidfds.values())
    for fd in open_fds:
        waiting.register(fd, select.POLLIN)
    while open_fds and (left := deadline - time.monotonic()) > 0:
        for fd, _ in waiting.poll(left * 1000):
            waiting.unregister(fd)
            open_fds.discard(fd)


def _ended(pidfd: int) -> bool:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(0))
