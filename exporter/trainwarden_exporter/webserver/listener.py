"""Accepts connections on bound sockets, at most as many as a table of connections has room for.

asyncio's own server accepts without a limit and logs a traceback for each connection that fails for
lack of a file descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from ssl import SSLContext

from aiohttp import web

from trainwarden_exporter.webserver.connections import (
    READ_BYTES,
    ConnectionTable,
    holds_pipelined_requests,
)

log = logging.getLogger("trainwarden_exporter.webserver.connections")

QUEUED_CONNECTIONS = 1024
"""Connections that wait in the kernel at most (less if net.core.somaxconn is). They hold no file
descriptor of this process, and a client waits there rather than fails."""

RECEIVE_BUFFER_BYTES = 64 << 10
"""Receive buffer of a connection; Linux doubles it."""
HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 2.0
"""Time for the peer to confirm the end of a TLS connection."""
CLOSE_SECONDS = 1.0
"""Time for connections that were just accepted to be established when the listener closes."""

_ACCEPTED_AT_ONCE = 16
"""Connections accepted before others get their turn, and so their requests a chance to be read."""
_RETRY_SECONDS = 0.05
"""Pause when there is no room, or no file descriptor."""
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """Listens on `sockets`; use `start` and `close`.

    `server` returns the server of a new connection. `context`, which may be replaced at any time,
    is the TLS context of new connections.
    """

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        table: ConnectionTable,
        server: Callable[[], web.Server],
    ) -> None:
        self.context: SSLContext | None = None
        self._sockets = list(sockets)
        self._table = table
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Starts to accept connections. Raises OSError if a socket cannot listen."""
        for sock in self._sockets:
            # Inherited by each connection: it bounds what a peer can send before it is read.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            # A client sends first, so a connection without data waits in the kernel, for about 1 s.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
            sock.listen(QUEUED_CONNECTIONS)
        for sock in self._sockets:
            self._loop.add_reader(sock, self._accept, sock)

    async def close(self) -> None:
        """Stops accepting; established connections stay open. May be called again."""
        sockets, self._sockets = self._sockets, []
        for sock in sockets:
            self._loop.remove_reader(sock)
        for retry in self._retries.values():
            retry.cancel()
        if self._handshakes:
            await asyncio.wait(self._handshakes, timeout=CLOSE_SECONDS)
        for handshake in self._handshakes:
            handshake.cancel()
        for sock in sockets:
            sock.close()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            # The table may hold one connection above its limit, which waits for its place.
            if not self._table.make_room():
                self._pause(sock)
                return
            try:
                accepted, _ = sock.accept()
            except OSError as error:
                if error.errno in _NO_RESOURCES:
                    log.warning("connection not accepted", extra={"error": error.strerror})
                    self._table.make_room(1)
                    self._pause(sock)
                return  # no more, or the peer has left
            accepted.setblocking(False)
            if self._is_unwanted(accepted):
                # The kernel resets a connection that is closed with unread data.
                accepted.close()
            else:
                self._establish(accepted)

    def _is_unwanted(self, accepted: socket.socket) -> bool:
        """Whether to close a new connection before it costs more than a few system calls."""
        if not self._table.is_crowded or self.context is not None:
            return False
        try:
            data = accepted.recv(READ_BYTES, socket.MSG_PEEK)
        except OSError:
            return False  # no data yet
        return holds_pipelined_requests(data)

    def _pause(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        self._retries[sock] = self._loop.call_later(
            _RETRY_SECONDS, self._loop.add_reader, sock, self._accept, sock
        )

    def _establish(self, accepted: socket.socket) -> None:
        connection = self._table.open(self._server(), accepted)
        started = False

        async def establish() -> None:
            nonlocal started
            started = True
            tls = self.context is not None
            with suppress(OSError):
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=self.context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls else None,
                )

        def done(task: asyncio.Task[None]) -> None:
            self._handshakes.discard(task)
            if not started:
                accepted.close()
            if not connection.established:
                self._table.discard(connection)

        task = self._loop.create_task(establish())
        task.add_done_callback(done)
        self._handshakes.add(task)
        connection.set_handshake(task)
