"""Determines how processes ended that are not our children.

Linux 6.15 and later report the exit status to holders of a pidfd opened while the process ran
(PIDFD_GET_INFO with PIDFD_INFO_EXIT, see linux/pidfd.h), once it has been reaped. Before that, and
on older kernels, the last field of the zombie's /proc/<pid>/stat contains it, readable with the
right to trace the process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process, read_text

_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), 64 bytes
_INFO = struct.Struct("<QQ11Ii")  # mask, cgroup id, pids and user ids, exit code
_INFO_EXIT = 1 << 3
_EXIT_CODE_FIELD = 52
_MAX_PIDFDS = 256

_INTERRUPTED_EXIT = 128 + signal.SIGINT
"""Exit code of a shell or launcher whose child was interrupted."""

NO_EXIT_STATUSES = (
    "this kernel does not report the exit status of other programs' processes: a worker that"
    " `finishes` is only known to have finished if its log or its last step shows it; otherwise it"
    " is not started again, and the operator is notified"
)


class ProcessExit(NamedTuple):
    """How a process ended: its wait status, or None if unknown.

    After the process is `reaped` an unknown status stays unknown.
    """

    status: int | None
    reaped: bool


ReadExit = Callable[[Identity], ProcessExit | None]
"""Returns how a process ended according to the announcement of its worker; None without one."""


class ExitWatcher:
    """Holds a pidfd of each watched process (at most `capacity`) to read its exit status."""

    def __init__(self, root: Path = PROC, *, capacity: int = _MAX_PIDFDS) -> None:
        self._root = root
        self._capacity = capacity
        self._pidfds: dict[Identity, int] = {}
        weakref.finalize(self, _close_all, self._pidfds)

    def watch(self, identity: Identity) -> None:
        """Starts to watch a running process; idempotent.

        Holds nothing if the kernel does not support this or the capacity is reached.
        """
        if identity in self._pidfds or len(self._pidfds) >= self._capacity:
            return
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError:
            return
        # Checked after opening: from now on the pid is pinned to the pidfd's process.
        process = read_process(identity.pid)
        if process is None or process.identity != identity or _pidfd_info(pidfd) is None:
            os.close(pidfd)
        else:
            self._pidfds[identity] = pidfd

    def process_exit(
        self, identity: Identity, announced: ProcessExit | None = None
    ) -> ProcessExit | None:
        """Returns how the process ended; None while it runs.

        `announced` is how it ended according to the announcement of its worker, if any.
        """
        process = read_process(identity.pid, self._root)
        if process is not None and process.identity == identity:
            if process.alive:
                return None
            return ProcessExit(read_zombie_status(identity, self._root), reaped=False)
        if announced is not None and announced.status is not None:
            return announced
        # A parent that was killed too announces nothing more, so the kernel's report comes first.
        pidfd = self._pidfds.get(identity)
        status = None if pidfd is None else _exit_status(pidfd)
        return ProcessExit(status, reaped=status is not None or announced is None)

    def retain(self, identities: Iterable[Identity]) -> None:
        """Stops watching all other processes."""
        for identity in self._pidfds.keys() - set(identities):
            os.close(self._pidfds.pop(identity))

    def __len__(self) -> int:
        return len(self._pidfds)


def read_zombie_status(identity: Identity, root: Path = PROC) -> int | None:
    """Returns the wait status of a zombie; None if unavailable.

    The kernel shows 0 without the right to trace the process, so 0 counts only with that right,
    which also permits following the links in /proc/<pid>/ns.
    """
    text = read_text(f"{root}/{identity.pid}/stat")
    if not text:
        return None
    status = parse_exit_status(text)
    if status == 0:
        try:
            Path(f"{root}/{identity.pid}/ns/user").readlink()
        except OSError:
            return None
    now = read_process(identity.pid, root)
    return status if now is not None and now.identity == identity else None


def exit_statuses_available() -> bool:
    """Whether this kernel reports the exit status of a reaped process that is not our child.

    Starts a process, and reads its status from a pidfd after its end.
    """
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            pidfd = os.pidfd_open(child.pid)
        except OSError:
            return False
        child.communicate(b"\n")
    try:
        return _exit_status(pidfd) is not None
    finally:
        os.close(pidfd)


def parse_exit_status(text: str) -> int | None:
    """Returns the wait status in a /proc/<pid>/stat; None while running or on kernels < 3.5."""
    fields = text.rpartition(")")[2].split()
    last = _EXIT_CODE_FIELD - 3  # the state is field 3
    return int(fields[last]) if len(fields) > last and fields[0] == "Z" else None


def status_name(status: int | None) -> str:
    """Returns a wait status as a word: `0`, `1`, `SIGKILL`; `unknown` for None."""
    if status is None:
        return "unknown"
    if not os.WIFSIGNALED(status):
        return str(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def is_interrupt(status: int | None) -> bool:
    """Whether a process was ended by SIGINT, or reports that of its child."""
    if status is None:
        return False
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGINT
    return os.WEXITSTATUS(status) == _INTERRUPTED_EXIT


def is_harmless_end(status: int | None) -> bool:
    """Whether a process ended successfully, or an operator stopped it with SIGINT."""
    return status == 0 or is_interrupt(status)


def shell_code(status: int) -> int:
    """Returns a wait status as in a shell's `$?`: the exit code, or 128 + the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _close_all(pidfds: dict[Identity, int]) -> None:
    for pidfd in pidfds.values():
        os.close(pidfd)


def _exit_status(pidfd: int) -> int | None:
    mask, status = _pidfd_info(pidfd) or (0, 0)
    return status if mask & _INFO_EXIT else None


def _pidfd_info(pidfd: int) -> tuple[int, int] | None:
    """Returns which fields are valid, and the wait status; None if not supported."""
    buffer = bytearray(_INFO.pack(_INFO_EXIT, *([0] * 13)))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(buffer)
    return mask, status
