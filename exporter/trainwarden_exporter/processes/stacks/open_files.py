"""Which processes have a pipe or a socket open, and the connections of this host: read once a look.

Other ends of what a run waits for are searched for among all processes, for each thread that waits.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.listening_ports import (
    CONNECTED,
    parse_endpoint,
    parse_listeners,
    parse_sockets,
    socket_inodes,
)
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    list_pids,
    read_open_links,
    read_text,
)
from trainwarden_exporter.processes.unix_sockets import parse_unix_sockets, read_unix_sockets

MAX_SECONDS = 5.0
MAX_OPEN_FILES = 200_000
"""Beyond these, who has which pipe or socket open is not known: of thousands of processes."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(NamedTuple):
    local: Address
    remote: Address


class Network(NamedTuple):
    """The sockets of one network namespace, by inode."""

    connections: Mapping[int, Connection]
    listening_ports: Mapping[int, int]
    local: Collection[str]
    """The inodes of local sockets."""


class OpenFiles:
    """The pipes and sockets of the host, as of the first call that asks for them.

    `inside` are the processes of the run that is looked at.
    """

    def __init__(self, inside: Collection[Identity], root: Path = PROC) -> None:
        self.inside = inside
        self.pids = [one.pid for one in inside]
        self.root = root
        self._networks: dict[str | int, Network] = {}

    def holders(self, link: str) -> Sequence[tuple[int, str]] | None:
        """Returns the processes that have a pipe or a socket open, and their number of it.

        None if there are too many processes to know that. `link` is what the kernel calls it.
        """
        return None if self._holders is None else self._holders.get(link, ())

    @cached_property
    def _holders(self) -> Mapping[str, Sequence[tuple[int, str]]] | None:
        found, count = defaultdict[str, list[tuple[int, str]]](list), 0
        end = time.monotonic() + MAX_SECONDS
        for pid in list_pids(self.root):
            for number, link in read_open_links(pid, self.root):
                if link.startswith(("pipe:", "socket:")):
                    found[link].append((pid, number))
                    count += 1
                if count > MAX_OPEN_FILES:
                    return None
            if time.monotonic() > end:
                return None
        return found

    @cached_property
    def sockets(self) -> Mapping[int, Collection[int]]:
        """The sockets of each process of the run, by their inodes."""
        return {pid: socket_inodes(pid, self.root) for pid in self.pids}

    @cached_property
    def peers(self) -> Mapping[int, int]:
        """The other ends of local sockets. Empty where the kernel does not tell."""
        return {one.inode: one.peer for one in read_unix_sockets() if one.peer is not None}

    def network(self, pid: int) -> Network:
        """Returns the sockets of the network namespace of a process."""
        _ = self.sockets  # read before the tables: a socket that is not among them is newer
        namespace = read_link(f"{self.root}/{pid}/ns/net") or pid
        if namespace not in self._networks:
            tables = ("tcp", "tcp6", "unix")
            *tcp, local = (read_text(f"{self.root}/{pid}/net/{one}") or "" for one in tables)
            self._networks[namespace] = Network(
                {inode: one for text in tcp for inode, one in _parse_connections(text)},
                {inode: one.port for text in tcp for inode, one in parse_listeners(text).items()},
                {one.inode for one in parse_unix_sockets(local)},
            )
        return self._networks[namespace]


def read_link(path: str) -> str:
    """Returns where a link of /proc leads, as the kernel writes it; "" if it is not readable."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a link in /proc, not a path
    except OSError:
        return ""


def _parse_connections(text: str) -> Iterator[tuple[int, Connection]]:
    """Yields the connections in a /proc/<pid>/net/tcp or tcp6, and their inodes.

    A connection that no process has accepted yet has the inode 0, and is left out.
    """
    for one in parse_sockets(text, CONNECTED):
        if one.inode:
            yield one.inode, Connection(_endpoint(one.local), _endpoint(one.remote))


def _endpoint(text: str) -> Address:
    host, port = parse_endpoint(text)
    return Address(str(getattr(ipaddress.ip_address(host), "ipv4_mapped", None) or host), port)
