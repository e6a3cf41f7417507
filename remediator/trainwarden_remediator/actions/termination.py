"""Terminates exactly the intended processes, through pidfds instead of pids.

It opens a pidfd (pidfd_open(2)) before it checks the identity of the process, so that another
process that has reused the pid is never signalled.
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
from trainwarden_exporter.processes import procfs
from trainwarden_exporter.processes.procfs import Identity, Process, read_command_line, read_process
from trainwarden_remediator.exceptions import ActionError

REAP_SECONDS = 5.0
"""Seconds that the kernel may take to end a process after SIGKILL."""

SAVING_POLL_SECONDS = 1.0
"""Time between two checks whether a kill is still deferred."""

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
"""Programs that are never terminated, besides sshd and Trainwarden's own."""


def protection_reason(tree: Iterable[Process], processes: Mapping[int, Process]) -> str:
    """Returns why a process tree must not be terminated, or "".

    It must not contain this program, one of its ancestors, or a program that the host or its
    monitoring depends on.
    """
    own = set()
    pid = os.getpid()
    while pid in processes and pid not in own:
        own.add(pid)
        pid = processes[pid].parent_pid
    for process in tree:
        if process.pid in own or process.pid == 1:
            return f"{process.name} ({process.pid}) is an ancestor of the remediator"
        for name in _program_names(process):
            if name in PROTECTED or name.startswith(("sshd", "trainwarden")):
                return f"{name} ({process.pid}) is protected"
    return ""


def _program_names(process: Process) -> Iterator[str]:
    """Yields the names of a process, including the script or module that an interpreter runs."""
    yield process.name
    yield program_name(read_command_line(process.pid) or ())


def is_alive(identity: Identity) -> bool:
    """Whether a process still runs. Raises ActionError if that is unknown."""
    try:
        return procfs.is_alive(identity)
    except CollectError as error:
        raise ActionError(f"cannot read process {identity.pid}: {error}") from error


def send_signal(processes: Iterable[Identity], number: signal.Signals) -> None:
    """Sends a signal to these processes, unless their pid is reused."""
    with ExitStack() as stack:
        _send(_open_pidfds(stack, processes), number)


def terminate(
    roots: Iterable[Identity],
    members: Iterable[Identity] = (),
    *,
    grace: float,
    prepare: Callable[[], None] = lambda: None,
    confirm: Callable[[], None] = lambda: None,
    find_new: Callable[[Collection[int]], Iterable[Identity]] = lambda _: (),
    defer_kill: Callable[[], bool] = lambda: False,
    max_defer_seconds: float = 0.0,
    on_kill: Callable[[Collection[int]], None] = lambda _: None,
) -> tuple[int, ...]:
    """Terminates `roots` and `members`. Returns the pids that had to be killed.

    Calls `prepare` once all pidfds are open, and `confirm` right before the first signal; each may
    raise to refuse. Adds the processes that `find_new` finds for them, because `prepare` may have
    waited. Sends SIGTERM to the roots, which terminate their children, and, once they have ended,
    to the members that survive. After `grace` seconds, sends SIGKILL to the rest and to the
    processes that `find_new` finds for them, and calls `on_kill` with their pids right before;
    defers this while `defer_kill()` returns True, for at most `max_defer_seconds`. Raises
    ActionError if a process survives: a process in state D cannot be killed.
    """
    with ExitStack() as stack:
        first = _open_pidfds(stack, roots)
        pidfds = first | _open_pidfds(stack, members)
        prepare()
        # A child in a session of its own would survive its root, and hold its GPU or port.
        pidfds |= _open_pidfds(stack, find_new([identity.pid for identity in pidfds]))
        confirm()
        deadline = time.monotonic() + grace
        _send(first, signal.SIGTERM)
        _wait_until_ended(first, deadline)
        _send(
            {identity: fd for identity, fd in pidfds.items() if identity not in first},
            signal.SIGTERM,
        )
        _wait_until_ended(pidfds, deadline)
        deadline = max(deadline, time.monotonic()) + max_defer_seconds
        while (
            not all(map(_ended, pidfds.values())) and time.monotonic() < deadline and defer_kill()
        ):
            _wait_until_ended(pidfds, min(deadline, time.monotonic() + SAVING_POLL_SECONDS))
        if alive := [identity.pid for identity, fd in pidfds.items() if not _ended(fd)]:
            pidfds |= _open_pidfds(stack, find_new(alive))
        left = {identity: fd for identity, fd in pidfds.items() if not _ended(fd)}
        if left:
            on_kill([identity.pid for identity in left])
        _send(left, signal.SIGKILL)
        _wait_until_ended(left, time.monotonic() + REAP_SECONDS)
        survivors = [identity.pid for identity, fd in left.items() if not _ended(fd)]
    if survivors:
        raise ActionError(f"{survivors} survived SIGKILL: blocked in the kernel")
    return tuple(identity.pid for identity in left)


Pidfds = Mapping[Identity, int]


def _open_pidfds(stack: ExitStack, identities: Iterable[Identity]) -> dict[Identity, int]:
    """Opens pidfds of the processes whose identity still matches; `stack` closes them."""
    pidfds = {}
    for identity in identities:
        try:
            fd = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            continue
        stack.callback(os.close, fd)
        process = read_process(identity.pid)
        if process is not None and process.identity == identity:
            pidfds[identity] = fd
    return pidfds


def _send(pidfds: Pidfds, number: signal.Signals) -> None:
    for identity, fd in pidfds.items():
        try:
            signal.pidfd_send_signal(fd, number)
            if number == signal.SIGTERM:
                # A stopped process does not handle SIGTERM.
                signal.pidfd_send_signal(fd, signal.SIGCONT)
        except ProcessLookupError:
            continue
        except PermissionError as error:
            raise ActionError(f"not allowed to signal process {identity.pid}") from error


def _wait_until_ended(pidfds: Pidfds, deadline: float) -> None:
    """Waits until all processes have ended, or until `deadline` on the monotonic clock."""
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
