"""TCP ports that processes listen on, from /proc."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, read_open_links, read_text

_LISTENS = "0A"  # TCP_LISTEN in include/net/tcp_states.h
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FIELDS = 10
_MOST_FILES = 65536


class Listener(NamedTuple):
    """An address that accepts connections."""

    address: str
    port: int


def parse_listeners(text: str) -> dict[int, Listener]:
    """Returns the listening sockets in a /proc/<pid>/net/tcp or tcp6, by inode."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= _FIELDS and fields[3] == _LISTENS:
            address, _, port = fields[1].partition(":")
            found[int(fields[9])] = Listener(parse_address(address), int(port, 16))
    return found


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


def parse_address(text: str) -> str:
    """Returns the IP address in a /proc/<pid>/net/tcp or tcp6, which is in hexadecimal digits."""
    # Each group of four bytes is a number in host byte order.
    raw = bytes.fromhex(text)
    groups = (raw[at : at + 4] for at in range(0, len(raw), 4))
    ordered = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    return str(ipaddress.ip_address(ordered))
