"""Addresses to listen on, and sockets bound to them."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\[\]:\s]*)):(?P<port>\d+)"
)
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def parse_listen_address(text: str) -> tuple[str | None, int]:
    """Returns host and port of `127.0.0.1:10977`, `[::1]:10977` or `:10977`.

    The host None is all interfaces. Raises ValueError for any other text.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:  # noqa: PLR2004 - the largest port there is
        raise ValueError(f"not a listen address: {text!r}: write host:port, [IPv6]:port or :port")
    return match["v6"] or match["host"] or None, int(match["port"])


def is_loopback(listen_address: str) -> bool:
    """Whether only this host can reach the address. Raises ValueError if it is not an address."""
    host, _ = parse_listen_address(listen_address)
    return host is not None and is_loopback_name(host)


def is_loopback_name(host: str) -> bool:
    """Whether `host` is an address of the loopback interface, or a name reserved for it.

    Names below `localhost` never leave the host (RFC 6761, section 6.3).
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        name = host.lower().removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")


async def bind(listen_address: str) -> list[socket.socket]:
    """Returns a bound socket for each address of `listen_address`; all get the same port.

    Raises ValueError for an invalid address, OSError if it is taken or not an address of this host.
    An address family that this host lacks is skipped if another one is left.
    """
    host, port = parse_listen_address(listen_address)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(
            error.errno, f"cannot listen on {listen_address}: {error.strerror}"
        ) from error
    bound: list[socket.socket] = []
    absent: OSError | None = None
    for family, address in dict.fromkeys((item[0], item[4]) for item in found):
        chosen = bound[0].getsockname()[1] if bound else port
        try:
            bound.append(_bound_socket(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            if error.errno in _ABSENT:
                absent = error
                continue
            for sock in bound:
                sock.close()
            raise OSError(
                error.errno, f"cannot listen on {listen_address}: {error.strerror}"
            ) from error
    if not bound and absent is not None:
        raise OSError(
            absent.errno, f"cannot listen on {listen_address}: {absent.strerror}"
        ) from absent
    return bound


def _bound_socket(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
