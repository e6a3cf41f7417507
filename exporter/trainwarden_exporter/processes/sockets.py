"""The TCP ports that processes listen on, from /proc."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC, read_text

_LISTENS = "0A"  # TCP_LISTEN in include/net/tcp_states.h
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FIELDS = 10
_MOST_FILES = 65536


class Listener(NamedTuple):
    """An address that connections are accepted at."""

    address: str
    port: int


def parse_listeners(text: str) -> dict[int, Listener]:
    """The listening sockets in a /proc/<pid>/net/tcp or tcp6, by inode."""
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= _FIELDS and fields[3] == _LISTENS:
            address, _, port = fields[1].partition(":")
            found[int(fields[9])] = Listener(_address(address), int(port, 16))
    return found


def read_listeners(pids: Iterable[int], root: Path = PROC) -> dict[int, tuple[Listener, ...]]:
    """Where each of `pids` listens, in the order of ports; nothing of one that may not be read."""
    found: dict[int, tuple[Listener, ...]] = {}
    tables: dict[str, dict[int, Listener]] = {}
    for pid in pids:
        try:
            namespace = str((root / str(pid) / "ns" / "net").readlink())
        except OSError:
            namespace = ""
        if namespace not in tables:
            tables[namespace] = _read_table(pid, root)
        own = {tables[namespace][inode] for inode in _inodes(pid, root) & tables[namespace].keys()}
        found[pid] = tuple(sorted(own, key=lambda listener: (listener.port, listener.address)))
    return found


def _read_table(pid: int, root: Path) -> dict[int, Listener]:
    table: dict[int, Listener] = {}
    for name in ("tcp", "tcp6"):
        text = read_text(f"{root}/{pid}/net/{name}")
        if text is not None:
            table |= parse_listeners(text)
    return table


def _inodes(pid: int, root: Path) -> set[int]:
    """The sockets that a process has open; none of one that is gone, or another user's."""
    found: set[int] = set()
    try:
        names = os.listdir(f"{root}/{pid}/fd")  # noqa: PTH208 - there may be thousands
    except OSError:
        return found
    for name in names[:_MOST_FILES]:
        with suppress(OSError):
            match = _SOCKET.fullmatch(os.readlink(f"{root}/{pid}/fd/{name}"))  # noqa: PTH115 - as above
            if match is not None:
                found.add(int(match[1]))
    return found


def _address(text: str) -> str:
    # Each group of four bytes is a number in the machine's own order.
    raw = bytes.fromhex(text)
    groups = (raw[at : at + 4] for at in range(0, len(raw), 4))
    ordered = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    return str(ipaddress.ip_address(ordered))
