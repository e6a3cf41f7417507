"""Listening sockets: where they are bound, and listeners on them that can be replaced."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Iterable
from ssl import SSLContext

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\[\]:\s]*)):(?P<port>\d+)"
)
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_BACKLOG = 1024
"""So many connections may wait for us, or as few as net.core.somaxconn says. One more has to try
again after a second, and a storm of webhooks comes within less."""


def parse_listen_address(text: str) -> tuple[str | None, int]:
    """Host and port of `127.0.0.1:10977`, `[::1]:10977` or `:10977` (host None: all interfaces).

    Raises ValueError for anything else.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:  # noqa: PLR2004 - the largest port there is
        raise ValueError(f"not a listen address: {text!r}: write host:port, [IPv6]:port or :port")
    return match["v6"] or match["host"] or None, int(match["port"])


async def bind(listen_address: str) -> list[socket.socket]:
    """One bound socket for each address of `listen_address`; port 0 is chosen once for all.

    Raises ValueError for what is no listen address, OSError when it is taken or not of this
    machine. An address family that this machine lacks is passed over while another one is left.
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


async def open_listeners(
    sockets: Iterable[socket.socket],
    factory: Callable[[], asyncio.BaseProtocol],
    context: SSLContext | None,
    *,
    handshake_seconds: float,
) -> list[asyncio.Server]:
    """Accept connections on duplicates of `sockets`, with TLS by `context` where there is one.

    Listeners opened later on the same sockets serve beside the earlier ones until those are
    retired. Raises OSError; none is left open then.
    """
    loop = asyncio.get_running_loop()
    opened: list[asyncio.Server] = []
    try:
        for sock in sockets:
            duplicate = sock.dup()
            try:
                listener = await loop.create_server(
                    factory,
                    sock=duplicate,
                    ssl=context,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=None if context is None else handshake_seconds,
                )
            except BaseException:
                duplicate.close()
                raise
            opened.append(listener)
    except BaseException:
        await retire(opened)
        raise
    return opened


async def retire(listeners: Iterable[asyncio.Server]) -> None:
    """Stop accepting, without losing a connection that was just accepted."""
    loop = asyncio.get_running_loop()
    retiring = list(listeners)
    for listener in retiring:
        for sock in listener.sockets:
            loop.remove_reader(sock.fileno())
    # asyncio hands an accepted connection on in a task of its own, which fails, and resets the
    # connection, when the listener is closed before the task had its first step.
    await asyncio.sleep(0)
    for listener in retiring:
        listener.close()
