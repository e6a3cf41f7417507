"""The open connections of a web server, and which of them are closed when there are too many."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from aiohttp import web

from trainwarden_exporter.runtime.repeated_logs import limit_repetition

log = logging.getLogger(__name__)
# Peers can provoke the messages of these loggers as often as they like.
for _logger in (log, logging.getLogger("asyncio")):
    limit_repetition(_logger)

MAX_CONNECTIONS = 128
"""Connections at most, including unfinished TLS handshakes and closed ones with unsent data."""

KEEPALIVE_SECONDS = 120.0
"""A connection without a complete request head is closed after this time."""
WRITE_SECONDS = 30.0
"""A connection is aborted when its peer has not read an answer after this time."""
LINGER_SECONDS = 1.0
"""For this time the rest of an unread body is discarded, so that the peer can read the answer."""
READ_BYTES = 16 << 10
"""Bytes that are read from a connection at once."""
MAX_HEAD_BYTES = 64 << 10
"""Bytes of a request head at most."""


class _State(IntEnum):
    """The states of a connection, in the order in which they lose their place to a new one."""

    CLOSING = 0
    """Closed, and all data sent."""
    SILENT = 1
    """Has sent no complete request head yet."""
    UNREAD = 2
    """An answer waits for the peer to read."""
    IDLE = 3
    """All requests are answered."""
    ANSWERING = 4
    """A request is in progress."""


_SPARED_SECONDS = {
    _State.CLOSING: 0.0,
    _State.SILENT: 0.1,
    _State.UNREAD: 1.0,
    _State.IDLE: 0.0,
    _State.ANSWERING: 15.0,
}
"""Time in a state after which a connection may be closed in favour of a new one. A client sends its
request right after it connects, and reads the answer at once."""


class Connection(web.RequestHandler):
    """A connection that limits the size of a request head and the time to read an answer.

    aiohttp closes a connection when all data is sent, which a peer that never reads delays forever;
    `abort` does not wait.
    """

    def __init__(self, server: web.Server, table: ConnectionTable, sock: socket.socket) -> None:
        self._event_loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=self._event_loop,
            logger=log,
            access_log=None,  # type: ignore[arg-type]  # aiohttp passes None too
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            # A small compressed body may expand to gigabytes.
            auto_decompress=False,
        )
        self._table = table
        self._socket = sock
        # aiohttp sets its `transport` to None before the connection is closed.
        self._stream: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._requests_answered = 0
        self._request: web.Request | None = None
        self._head_bytes = 0
        self._state_since = self._event_loop.time()

    def set_handshake(self, task: asyncio.Task[None]) -> None:
        """Sets the task that ends once the connection is established."""
        self._handshake = task

    @property
    def established(self) -> bool:
        """Whether the connection was established, including TLS."""
        return self._stream is not None

    @property
    def has_pipelined_requests(self) -> bool:
        """Whether the peer sent further requests before the one in progress was answered."""
        return self._request_count > self._requests_answered + 1

    @contextmanager
    def request_in_progress(self, request: web.Request) -> Iterator[None]:
        """Marks `request` as in progress."""
        self._request = request
        try:
            yield
        finally:
            self._requests_answered += 1
            self._state_since = self._event_loop.time()

    def state(self) -> _State:
        if self._write_timer is not None:
            return _State.UNREAD
        if self._stream is not None and self._stream.is_closing():
            return _State.CLOSING
        if self._request_count > self._requests_answered:
            return _State.ANSWERING
        return _State.IDLE if self._request_count else _State.SILENT

    def rank(self) -> tuple[_State, int, float]:
        """Sorts connections in the order in which they lose their place to a new one.

        A regular client, whose connection has answered many requests, keeps it the longest.
        """
        state = _State.CLOSING if self.has_pipelined_requests else self.state()
        return state, self._requests_answered, self._state_since

    def is_spared(self) -> bool:
        """Whether the connection is too short in its state to lose its place."""
        if self.has_pipelined_requests:
            return False
        state, seconds = self.state(), self._event_loop.time() - self._state_since
        # A connection may look silent because this process was busy.
        return seconds < _SPARED_SECONDS[state] or (
            state is _State.SILENT and self._has_unread_data()
        )

    def abort(self) -> None:
        """Closes the connection now; unsent data is lost."""
        self._table.discard(self)
        if self._stream is not None:
            self._stream.abort()
        elif self._handshake is not None:
            self._handshake.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio after a TLS handshake, if there is one."""
        if isinstance(transport, asyncio.Transport):
            self._stream = transport
            # So that `pause_writing` is called whenever the peer has not read all there is.
            transport.set_write_buffer_limits(high=1)
            # The size of a read of asyncio, 256 KiB by default, which a peer can make each
            # connection hold by sending requests without reading the answers.
            vars(transport)["max_size"] = READ_BYTES
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by asyncio."""
        self._table.discard(self)
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by asyncio when the peer reads slower than data is sent."""
        self._state_since = self._event_loop.time()
        self._write_timer = self._event_loop.call_later(WRITE_SECONDS, self.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Called by asyncio when all data is sent."""
        self._state_since = self._event_loop.time()
        self._stop_write_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        if self._table.is_crowded and holds_pipelined_requests(data):
            self.abort()
            return
        requests = self._request_count
        super().data_received(data)
        # The connection is closed after the first response, so the others get none.
        while len(self._messages) > 1:
            self._messages.pop()
        if self._request_count != requests:
            self._state_since = self._event_loop.time()
            self._head_bytes = 0
        elif requests == self._requests_answered and not self._discards_body():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.abort()

    def _discards_body(self) -> bool:
        return self._request is not None and not self._request.content.is_eof()

    def _has_unread_data(self) -> bool:
        """Whether data from the peer is in the kernel, which this process has not read yet."""
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def _stop_write_timer(self) -> None:
        timer, self._write_timer = self._write_timer, None
        if timer is not None:
            timer.cancel()


def holds_pipelined_requests(data: bytes) -> bool:
    """Whether `data`, as a peer sent it, has more than one request.

    Recognises GET and HEAD, which have no body; regular clients wait for each answer.
    """
    end = data.find(b"\r\n\r\n")
    return 0 <= end < len(data) - 4 and data.startswith((b"GET ", b"HEAD "))


class ConnectionTable:
    """All connections of a server, `limit` at most.

    Above the limit, a connection loses its place: first a connection without any request, then a
    connection whose peer does not read, then an idle connection, the oldest first. A client that
    meant to use its idle connection again opens another one.
    """

    def __init__(self, limit: int = MAX_CONNECTIONS) -> None:
        self.limit = limit
        self._connections: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def is_crowded(self) -> bool:
        """Whether at least half of the places are taken."""
        return len(self._connections) >= self.limit // 2

    def open(self, server: web.Server, sock: socket.socket) -> Connection:
        """Returns a new connection, to be established on `sock`."""
        connection = Connection(server, self, sock)
        self._connections.add(connection)
        return connection

    def discard(self, connection: Connection) -> None:
        """Removes a connection that is closed."""
        self._connections.discard(connection)

    def make_room(self, count: int = 0) -> bool:
        """Closes connections until at most `limit` are left; returns whether that succeeded.

        With `count`, closes so many in any case.
        """
        count = max(count, len(self._connections) - self.limit)
        if count <= 0:
            return True
        by_rank = sorted(self._connections, key=Connection.rank)
        # Most clients being new, the idle ones do not make room for more of the same.
        if len(by_rank) > self.limit // 2 and by_rank[self.limit // 2].state() is _State.SILENT:
            by_rank = [one for one in by_rank if one.state() is not _State.IDLE]
        candidates = [connection for connection in by_rank if not connection.is_spared()]
        for connection in candidates[:count]:
            connection.abort()
        if candidates:
            log.warning("connections closed: too many are open", extra={"limit": self.limit})
        return len(candidates) >= count

    def abort_all(self) -> None:
        """Closes all connections now."""
        for connection in list(self._connections):
            connection.abort()
