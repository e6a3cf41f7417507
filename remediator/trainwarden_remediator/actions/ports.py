"""The TCP ports that processes listen on, in the remediator's network namespace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.listening_ports import read_table, socket_inodes
from trainwarden_exporter.processes.procfs import Identity, read_process

_POLL_SECONDS = 0.1


def read_listening() -> dict[int, int]:
    """Returns the port of each listening socket, by inode. Raises CollectError."""
    return {inode: listener.port for inode, listener in read_table(os.getpid()).items()}


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of some processes, and the listening sockets of all other processes."""

    numbers: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    def taken(self) -> frozenset[int]:
        """Returns the ports on which a new socket listens. Raises CollectError."""
        listening = read_listening()
        return frozenset(
            port
            for inode, port in listening.items()
            # Sockets can share a port (SO_REUSEPORT): a socket that shared it before is no blocker.
            if port in self.numbers and inode not in self.others
        )


def ports_in_use(identities: Iterable[Identity]) -> Ports:
    """Returns the ports that these processes listen on, as far as visible."""
    try:
        listening = read_listening()
    except CollectError:
        return Ports()
    own = set().union(*map(_sockets, identities)) & listening.keys()
    return Ports(frozenset(listening[inode] for inode in own), frozenset(listening.keys() - own))


def wait_until_free(ports: Ports, within: float) -> frozenset[int]:
    """Waits until no new socket listens on `ports`; returns the ports that are still taken.

    Ports count as free if the sockets cannot be read.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            taken = ports.taken() if ports.numbers else frozenset()
        except CollectError:
            return frozenset()
        if not taken or time.monotonic() >= deadline:
            return taken
        time.sleep(_POLL_SECONDS)


def _sockets(identity: Identity) -> set[int]:
    """Returns the inodes of a process's sockets; none if its pid belongs to another process now."""
    found = socket_inodes(identity.pid)
    now = read_process(identity.pid)
    return found if now is not None and now.identity == identity else set()
