"""Restricts discovered servers to addresses of this host and to sockets of their worker.

A command line is text that any account can choose: its `--host` may name another host, and its
`--port` the port of another program.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden_exporter.inference.addresses import DEFAULT_PORTS, is_local_address
from trainwarden_exporter.inference.command_lines import local_url
from trainwarden_exporter.processes.listening_ports import Listener, read_listeners, read_table
from trainwarden_exporter.processes.procfs import PROC


@dataclass(frozen=True, slots=True)
class WorkerSockets:
    """The listening sockets of a worker, and the ports that other processes listen on."""

    own: tuple[Listener, ...] = ()
    other_ports: frozenset[int] = frozenset()

    def confine(self, url: str) -> str | None:
        """Returns `url` with a local address; None if another process listens on its port.

        Without a listener the server is starting or has ended.
        """
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
        address = next((one.address for one in self.own if one.port == port), None)
        if address is None:
            if port in self.other_ports:
                return None
            host = parts.hostname or ""
            address = host if is_local_address(host) else ""
        local = local_url(address, port, tls=parts.scheme == "https")
        return parts._replace(netloc=urlsplit(local).netloc).geturl()


def read_sockets(pids: Collection[int], root: Path = PROC) -> WorkerSockets:
    """Returns the sockets of the processes of a worker.

    Without permission to read their open files no port counts as another program's.
    """
    by_pid = read_listeners(pids, root)
    own = tuple(listener for found in by_pid.values() for listener in found)
    readable = [pid for pid in pids if _has_readable_files(pid, root)]
    if len(readable) < len(pids):
        return WorkerSockets(own)
    listening = {one.port for pid in readable[:1] for one in read_table(pid, root).values()}
    return WorkerSockets(own, frozenset(listening - {one.port for one in own}))


def _has_readable_files(pid: int, root: Path) -> bool:
    try:
        next((root / str(pid) / "fd").iterdir(), None)
    except OSError:
        return False
    return True
