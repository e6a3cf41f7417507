"""The TCP ports that processes listen on, as the remediator's own network namespace has them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, Identity, read_process, read_text

_LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp (include/net/tcp_states.h)."""

_LOOK_SECONDS = 0.1


def parse_listening(text: str) -> dict[int, int]:
    """The port of each listening socket in a /proc/net/tcp or tcp6, by inode."""
    found = {}
    for line in text.splitlines()[1:]:
        match line.split():
            case [_, address, _, state, _, _, _, _, _, inode, *_] if state == _LISTENS:
                found[int(inode)] = int(address.rpartition(":")[2], 16)
    return found


def read_listening() -> dict[int, int]:
    """The port of each socket that listens, by inode. Raises CollectError."""
    found: dict[int, int] = {}
    for name in ("tcp", "tcp6"):
        found |= parse_listening(read_text(f"{PROC}/self/net/{name}") or "")
    return found


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that some processes listen on, and the sockets of others that listened before."""

    numbers: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()

    def taken(self) -> frozenset[int]:
        """Those on which somebody listens now who did not before. Raises CollectError."""
        listening = read_listening()
        return frozenset(
            port
            for inode, port in listening.items()
            # Several may share a port (SO_REUSEPORT): who did so before is not in the way.
            if port in self.numbers and inode not in self.others
        )


def ports_of(identities: Iterable[Identity]) -> Ports:
    """The ports that these processes listen on, as far as that can be seen."""
    try:
        listening = read_listening()
    except CollectError:
        return Ports()
    own = {inode for identity in identities for inode in _sockets(identity)} & listening.keys()
    return Ports(frozenset(listening[inode] for inode in own), frozenset(listening.keys() - own))


def await_free(ports: Ports, within: float) -> frozenset[int]:
    """Wait until nobody new listens on `ports`; returns those that are not free in time.

    What cannot be seen counts as free.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            taken = ports.taken() if ports.numbers else frozenset()
        except CollectError:
            return frozenset()
        if not taken or time.monotonic() >= deadline:
            return taken
        time.sleep(_LOOK_SECONDS)


def _sockets(identity: Identity) -> Iterable[int]:
    folder = f"{PROC}/{identity.pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return []
    links = []
    for name in names:
        try:
            links.append(os.readlink(f"{folder}/{name}"))  # noqa: PTH115 - a link of /proc, no path
        except OSError:
            continue
    now = read_process(identity.pid)
    if now is None or now.identity != identity:
        return []
    sockets = (link for link in links if link.startswith("socket:["))
    return [int(link[len("socket:[") : -1]) for link in sockets]
