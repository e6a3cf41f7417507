"""Locks between the remediators of one host, whatever journals they use."""

from __future__ import annotations

import hashlib
import logging
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from trainwarden_exporter.processes.procfs import list_pids, read_text, read_uid
from trainwarden_exporter.processes.unix_sockets import parse_unix_sockets, read_unix_sockets

log = logging.getLogger(__name__)

_ATTEMPTS = 5
_ATTEMPT_SECONDS = 0.1
WAIT_SECONDS = 30.0
"""How long to wait for the end of another process's lock before it is reported."""
_LISTENS = "00010000"
"""The flag of a listening socket in proc_net_unix (__SO_ACCEPTCON)."""
_CREDENTIALS = "3i"
"""struct ucred of unix(7): pid, uid, gid."""


@contextmanager
def host_locks(*names: str) -> Iterator[None]:
    """Holds the locks of these names; the kernel releases them if this process ends.

    Raises BlockingIOError with the pid of another process of root or of this account that holds
    one, as soon as it has released the lock, after WAIT_SECONDS at the latest: the state that the
    caller has observed is out of date. A process of another account cannot prevent a lock.
    """
    with ExitStack() as stack:
        for name in sorted(set(names)):
            if (held := _lock(name)) is not None:
                stack.callback(held.close)
        yield


def _lock(name: str) -> socket.socket | None:
    """Returns a socket bound to the name in the abstract namespace, which needs no folder."""
    # Containers that share the network of the host have other processes.
    with suppress(OSError):
        name += f"\0{Path('/proc/self/ns/pid').readlink()}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    address = f"\0trainwarden-remediator/{digest}"
    for _ in range(_ATTEMPTS):
        try:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            log.warning("no lock between remediators", extra={"error": str(error)})
            return None
        try:
            held.bind(address)
            held.listen(128)
        except OSError:
            held.close()
        else:
            return held
        _refuse_if_trusted(address)
        time.sleep(_ATTEMPT_SECONDS)  # it has just ended, or does not listen yet
    log.warning("no lock between remediators: another account uses its name")
    return None


def _refuse_if_trusted(address: str) -> None:
    """Raises BlockingIOError if a process of root or of this account listens at `address`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        try:
            peer.connect(address)
            size = struct.calcsize(_CREDENTIALS)
            answer = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        except BlockingIOError as error:  # its queue is full: another account may have filled it
            if (holder := _find_listener(address)) is not None:
                raise BlockingIOError(f"process {holder} acts on the same target") from error
            return
        except OSError:  # it does not listen
            return
        pid, uid, _ = struct.unpack(_CREDENTIALS, answer)
        if _is_trusted(uid):
            # The kernel closes this connection, which is never accepted, with the lock.
            waiting = select.poll()
            waiting.register(peer, select.POLLIN)
            waiting.poll(WAIT_SECONDS * 1000)
            raise BlockingIOError(f"process {pid} acts on the same target")


def _find_listener(address: str) -> int | None:
    """Returns the process of root or of this account that listens at `address`, if it is known."""
    sockets = read_unix_sockets()
    inodes = {one.inode for one in sockets if one.listens and one.name == address.encode()}
    if not sockets:  # the kernel does not answer: a table in which an account can forge rows
        name = address.replace("\0", "@", 1)
        rows = parse_unix_sockets(read_text("/proc/net/unix") or "")
        inodes = {int(one.inode) for one in rows if (one.name, one.flags) == (name, _LISTENS)}
    links = {f"socket:[{inode}]" for inode in inodes}
    for pid in list_pids():
        # The sockets of the processes of other accounts are known only to root.
        if _is_trusted(read_uid(pid)) and links.intersection(_links(Path(f"/proc/{pid}/fd"))):
            return pid
    return None


def _links(folder: Path) -> Iterator[str]:
    """Yields what the links in a folder name, as far as they can be read."""
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            with suppress(OSError):  # closed meanwhile
                yield str(entry.readlink())


def _is_trusted(uid: int | None) -> bool:
    return uid in (0, os.geteuid())
