"""Keeps connections that ask nothing from keeping out those that ask something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 256
"""So many are open at once, and twice as many while each of them is being answered: well within
the 1,024 files that a process may usually have open."""


class Crowd:
    """Makes the protocol of each new connection of a server, and makes room for it.

    Where there are too many, one that waits for its next request is closed, and first one that has
    never made any: whoever opens connections and is silent loses them to whoever has something to
    say, and a client that meant to use its idle one again opens another.
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._server: web.Server | None = None
        # Not weakly: aiohttp's cannot be. What is closed is left out when another one opens.
        self._answered: dict[asyncio.BaseProtocol, int] = {}
        self._heard: set[asyncio.BaseProtocol] = set()
        self._leaving: set[asyncio.BaseProtocol] = set()

    def of(self, server: web.Server) -> Crowd:
        """Let in the connections of that server."""
        self._server = server
        return self

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """While inside, the connection of `request` is not one that waits."""
        protocol = request.protocol
        self._heard.add(protocol)
        self._answered[protocol] = self._answered.get(protocol, 0) + 1
        try:
            yield
        finally:
            if protocol in self._answered:
                self._answered[protocol] -= 1

    def __call__(self) -> asyncio.BaseProtocol:
        if self._server is None:
            raise RuntimeError("no server to let connections into")
        open_now = self._server.connections
        self._heard.intersection_update(open_now)
        self._answered = {one: n for one in open_now if (n := self._answered.get(one, 0))}
        self._leaving.intersection_update(open_now)
        staying = [one for one in open_now if one not in self._leaving]
        # Sorting keeps the oldest first.
        waiting = sorted(
            (one for one in staying if not self._answered.get(one)),
            key=self._heard.__contains__,
        )
        too_many = max(0, len(staying) + 1 - self._most)
        for one in waiting[:too_many]:
            one.force_close()
            self._leaving.add(one)
        if too_many > len(waiting) + self._most:
            log.warning("connection turned away", extra={"open": len(open_now)})
            return _TurnedAway()
        return self._server()


class _TurnedAway(asyncio.Protocol):
    """A connection that there is no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()
