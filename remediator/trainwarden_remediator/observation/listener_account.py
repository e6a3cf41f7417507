"""Checks whose program listens at an address of this host, before its answers count.

Any account can take the port of the exporter or of Alertmanager while that restarts.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trainwarden_exporter.processes.accounts import find_uid
from trainwarden_exporter.processes.listening_ports import LISTENING, parse_endpoint, parse_sockets
from trainwarden_exporter.processes.procfs import account_name
from trainwarden_remediator.exceptions import ObservationError

TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))

_HTTP = 80
_ORDINARY = (range(1000, 61184), range(65536, 2**32 - 2))
"""The uids of ordinary accounts: the others are those of the system and of `DynamicUser=`, and
`nobody`, as which the images of Prometheus run (https://systemd.io/UIDS-GIDS)."""

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_listener(url: str, user: str | None = None, tables: Iterable[Path] = TABLES) -> None:
    """Raises ObservationError if an ordinary account listens at the port of `url` on this host.

    Not if it is the account of this program, or `user`, a name or a uid. With `https` the
    certificate proves who answers. A port at which nothing of this network namespace listens is
    not checked: the kernel passes it on, by a rule of root.
    """
    parts = urlsplit(url)
    if parts.scheme != "http":
        return
    port = parts.port or _HTTP
    addresses = set(_own_addresses(parts.hostname or "", port))
    accepted = {os.geteuid(), find_uid(user)}
    for uid in sorted(_listening_uids(port, addresses, tables) - accepted) if addresses else ():
        if any(uid in ordinary for ordinary in _ORDINARY):
            raise ObservationError(
                f"{parts.scheme}://{parts.netloc}: its answers do not count, because the account"
                f" {account_name(uid)} listens there: run that program as root, as a system"
                " account or as the remediator's, or write `user`, its account, beside `url`"
            )


def _own_addresses(host: str, port: int) -> Iterator[_Address]:
    """Yields the addresses of `host` that are of this network namespace."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):  # the request reports it
        return
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.bind((address[0], 0))
        except OSError:
            continue
        yield ipaddress.ip_address(address[0])


def _listening_uids(port: int, addresses: set[_Address], tables: Iterable[Path]) -> set[int]:
    uids = set()
    for table in tables:
        try:
            content = table.read_text(encoding="ascii", errors="replace")
        except OSError:  # without IPv6 there is no tcp6
            continue
        for one in parse_sockets(content, LISTENING):
            host, listening = parse_endpoint(one.local)
            address = ipaddress.ip_address(host)
            address = getattr(address, "ipv4_mapped", None) or address
            if listening == port and (address.is_unspecified or address in addresses):
                uids.add(one.uid)
    return uids
