"""Keeps hold of every process below this one, also of those whose own parent has ended."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_environment,
    read_process,
    read_processes,
)

KILL_SECONDS = 5.0
"""How long the kernel may take to end a process that was sent SIGKILL."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends (prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with(parent: int) -> Callable[[], None]:
    """For `preexec_fn`: the child gets SIGTERM when `parent`, a pid, is gone."""

    def prepare() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it went before we asked
            os._exit(1)

    return prepare


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def reap(own: Collection[subprocess.Popen[bytes]] = ()) -> None:
    """Collect ended children that were adopted; those in `own` are left to their Popen."""
    try:
        while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            popen = next((child for child in own if child.pid == dead.si_pid), None)
            if popen is None:
                os.waitpid(dead.si_pid, 0)
            else:
                popen.poll()
    except ChildProcessError:
        pass


def below(pid: int, *, but_not: str | None = None) -> list[Identity]:
    """The living processes below `pid`.

    With `but_not`, the name of an environment variable, processes that carry it are left out, and
    all below them; so are processes whose environment cannot be read.
    """
    processes = read_processes()
    found = descendants(processes, [pid])
    if but_not is not None:
        spared = {each for each in found if _carries(each, but_not)}
        found -= spared | descendants(processes, spared)
    return [processes[each].identity for each in found if processes[each].alive]


def _carries(pid: int, variable: str) -> bool:
    environment = read_environment(pid)
    return environment is None or variable in environment


def send(identity: Identity, number: signal.Signals) -> None:
    """Signal that very process; nothing happens if it is gone and its pid another's."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        process = read_process(identity.pid)
        if process is not None and process.identity == identity:
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


def end(find: Callable[[], Collection[Identity]], *, grace: float) -> Collection[Identity]:
    """End what `find` finds, until it finds nothing: SIGTERM, and SIGKILL after `grace` seconds.

    Returns what survived even that.
    """
    signalled: set[tuple[Identity, signal.Signals]] = set()
    deadline = time.monotonic() + grace
    while left := find():
        late = time.monotonic() - deadline
        if late > KILL_SECONDS:
            return left
        number = signal.SIGTERM if late < 0 else signal.SIGKILL
        for identity in left:
            if (identity, number) not in signalled:
                signalled.add((identity, number))
                send(identity, number)
        time.sleep(0.05)
        reap()
    return ()
