"""Learns how processes ended that are not our children.

Linux 6.15 and later tell whoever held a pidfd of a process while it lived (PIDFD_GET_INFO with
PIDFD_INFO_EXIT, see linux/pidfd.h), once it has been reaped. Until then, and on older kernels, the
last field of /proc/<pid>/stat of the zombie says it to whoever may trace the process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process, read_text

_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), 64 bytes
_INFO = struct.Struct("<QQ11Ii")  # mask, cgroup id, pids and user ids, exit code
_INFO_EXIT = 1 << 3
_EXIT_CODE_FIELD = 52
_CAPACITY = 256


class Ending(NamedTuple):
    """How a process ended: its wait status, None while that is not known.

    Once it is `reaped` an unknown status stays unknown.
    """

    status: int | None
    reaped: bool


class ExitWatch:
    """Holds a pidfd of each watched process (at most `capacity`) to ask for its end."""

    def __init__(self, root: Path = PROC, *, capacity: int = _CAPACITY) -> None:
        self._root = root
        self._capacity = capacity
        self._pidfds: dict[Identity, int] = {}
        weakref.finalize(self, _close_all, self._pidfds)

    def watch(self, identity: Identity) -> None:
        """Be ready to tell the end of a process that runs now. Watching it again changes nothing.

        Where the kernel does not tell, or too many are watched, nothing is held.
        """
        if identity in self._pidfds or len(self._pidfds) >= self._capacity:
            return
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError:
            return
        # only after opening: the pid is pinned now, so what has it is what the pidfd means
        process = read_process(identity.pid)
        if process is None or process.identity != identity or not _answers(pidfd):
            os.close(pidfd)
        else:
            self._pidfds[identity] = pidfd

    def ending(self, identity: Identity) -> Ending | None:
        """How the process ended, None while it runs."""
        process = read_process(identity.pid, self._root)
        if process is not None and process.identity == identity:
            if process.alive:
                return None
            return Ending(read_zombie_status(identity, self._root), reaped=False)
        pidfd = self._pidfds.get(identity)
        return Ending(None if pidfd is None else _exit_status(pidfd), reaped=True)

    def keep_only(self, identities: Iterable[Identity]) -> None:
        """Stop watching all others."""
        for identity in self._pidfds.keys() - set(identities):
            os.close(self._pidfds.pop(identity))

    def __len__(self) -> int:
        return len(self._pidfds)


def read_zombie_status(identity: Identity, root: Path = PROC) -> int | None:
    """The wait status of a process that is a zombie now; None if not told.

    The kernel shows 0 to those who may not trace the process, so a 0 counts only with that right.
    It is the right to follow the links in /proc/<pid>/ns too.
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


def parse_exit_status(text: str) -> int | None:
    """The wait status in a /proc/<pid>/stat; None from a process that runs or a kernel < 3.5."""
    fields = text.rpartition(")")[2].split()
    last = _EXIT_CODE_FIELD - 3  # the state is field 3
    return int(fields[last]) if len(fields) > last and fields[0] == "Z" else None


def status_name(status: int | None) -> str:
    """A wait status in a word: `0`, `1`, `SIGKILL`; `unknown` for None."""
    if status is None:
        return "unknown"
    if not os.WIFSIGNALED(status):
        return str(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def shell_code(status: int) -> int:
    """A wait status as a shell reports it in `$?`: the exit code, or 128 + the signal."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _close_all(pidfds: dict[Identity, int]) -> None:
    for pidfd in pidfds.values():
        os.close(pidfd)


def _answers(pidfd: int) -> bool:
    try:
        _ask(pidfd)
    except OSError:
        return False
    return True


def _exit_status(pidfd: int) -> int | None:
    try:
        mask, status = _ask(pidfd)
    except OSError:
        return None
    return status if mask & _INFO_EXIT else None


def _ask(pidfd: int) -> tuple[int, int]:
    buffer = bytearray(_INFO.pack(_INFO_EXIT, *([0] * 13)))
    fcntl.ioctl(pidfd, _GET_INFO, buffer)
    fields = _INFO.unpack(buffer)
    return fields[0], fields[-1]
