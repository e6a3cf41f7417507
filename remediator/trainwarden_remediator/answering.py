"""Answers to requests that there is no memory to answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.Response]]


def unless_starved(handler: Handler, told: str = "no memory to answer with") -> Handler:
    """`handler`, or 503 where it has no memory: whoever asks may ask again.

    `told` is the line of the log.
    """

    async def answer(request: web.Request) -> web.Response:
        with suppress(MemoryError):
            return await handler(request)
        # Said only here, where what the error held of the answer is let go of.
        with suppress(MemoryError):
            log.error(told, extra={"path": request.path})
        return web.Response(status=503, text="no memory\n")

    return answer
