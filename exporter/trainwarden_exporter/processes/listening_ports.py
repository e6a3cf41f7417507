"""TCP sockets in /proc, and the ports that processes listen on."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, read_open_links, read_text

LISTENING = ("0A",)
CONNECTED = ("01", "02")
"""States of sockets: TCP_LISTEN; TCP_ESTABLISHED, TCP_SYN_SENT in include/net/tcp_states.h."""
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FIELDS = 10
_MOST_FILES = 65536


class Listener(NamedTuple):
    """An address that accepts connections."""

    address: str
    port: int


class Socket(NamedTuple):
    """A row of a /proc/<pid>/net/tcp or tcp6; see parse_endpoint. Inode 0: not accepted yet."""

    local: str
    remote: str
    uid: int
    inode: int


def parse_sockets(text: str, states: Collection[str]) -> Iterator[Socket]:
    """Yields the sockets of these states in a /proc/<pid>/net/tcp or tcp6."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= _FIELDS and fields[3] in states:
            yield Socket(fields[1], fields[2], int(fields[7]), int(fields[9]))


def parse_listeners(text: str) -> dict[int, Listener]:
    """Returns the listening sockets in a /proc/<pid>/net/tcp or tcp6, by inode."""
    return {
        one.inode: Listener(*parse_endpoint(one.local)) for one in parse_sockets(text, LISTENING)
    }


# psutil reads only its own network namespace and would miss servers in containers
def read_listeners(pids: Iterable[int], root: Path = PROC) -> dict[int, tuple[Listener, ...]]:
    """Returns the listeners of each pid in port order; none for an unreadable process."""
    found: dict[int, tuple[Listener, ...]] = {}
    tables: dict[str, dict[int, Listener]] = {}
    for pid in pids:
        try:
            namespace = str((root / str(pid) / "ns" / "net").readlink())
        except OSError:
            namespace = ""
        if namespace not in tables:
            tables[namespace] = read_table(pid, root)
        table = tables[namespace]
        own = {table[inode] for inode in socket_inodes(pid, root) & table.keys()}
        found[pid] = tuple(sorted(own, key=lambda listener: (listener.port, listener.address)))
    return found


def read_table(pid: int, root: Path = PROC) -> dict[int, Listener]:
    """Returns the listening sockets of the network namespace of a process, by inode."""
    table: dict[int, Listener] = {}
    for name in ("tcp", "tcp6"):
        text = read_text(f"{root}/{pid}/net/{name}")
        if text is not None:
            table |= parse_listeners(text)
    return table


def socket_inodes(pid: int, root: Path = PROC) -> set[int]:
    """Returns the open sockets of a process; none if it has ended or belongs to another user."""
    links = islice(read_open_links(pid, root), _MOST_FILES)
    return {int(match[1]) for _, link in links if (match := _SOCKET.fullmatch(link)) is not None}


def parse_endpoint(text: str) -> tuple[str, int]:
    """Returns the IP address and the port in hexadecimal digits, as a Socket has them."""
    digits, _, port = text.partition(":")
    # Each group of four bytes is a number in host byte order.
    raw = bytes.fromhex(digits)
    groups = (raw[at : at + 4] for at in range(0, len(raw), 4))
    ordered = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    return str(ipaddress.ip_address(ordered)), int(port, 16)
