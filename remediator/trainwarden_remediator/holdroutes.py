"""The paths by which a person stops actions and allows them again over HTTP.

`POST /-/hold` and `POST /-/resume`, with `run`, `worker` and (to hold) `for` in the query, and the
reason as the body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web

from trainwarden_exporter.units import parse_duration
from trainwarden_remediator import holding
from trainwarden_remediator.admitting import admitted
from trainwarden_remediator.answering import unless_starved
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import HoldError, JournalError
from trainwarden_remediator.holdfile import Hold

log = logging.getLogger(__name__)

LONGEST_REASON = 8 << 10
"""Bytes of a body that is read as a reason."""
BODY_SECONDS = 10.0
_KEYS = frozenset({"run", "worker", "for"})


def hold_routes(remediator: Remediator) -> list[web.RouteDef]:
    """As the module says. 401 without a token, 400 for what makes no sense, 503 where it failed.

    What failed for want of memory may be in force or not; to ask again does no harm.
    """

    async def hold(request: web.Request) -> web.Response:
        return await _answer(request, remediator, _hold)

    async def resume(request: web.Request) -> web.Response:
        return await _answer(request, remediator, _resume)

    return [
        web.post("/-/hold", unless_starved(hold, "no memory to hold with")),
        web.post("/-/resume", unless_starved(resume, "no memory to resume with")),
    ]


Does = Callable[[Remediator, dict[str, str], str, str], str]


async def _answer(request: web.Request, remediator: Remediator, does: Does) -> web.Response:
    # A page in a person's browser may send requests from there; it says so, and no tool does.
    if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
        return web.Response(status=403, text="not from a web page\n")
    if (by := await admitted(request, remediator)) is None:
        return web.Response(
            status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"}
        )
    who = f"{by} from {request.remote or 'an unknown address'}"
    query = dict(request.query)
    if unknown := sorted(query.keys() - _KEYS):
        return web.Response(status=400, text=f"not understood: {', '.join(unknown)}\n")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.content.read(LONGEST_REASON)
    except TimeoutError:
        answer = web.Response(status=400, text="body: too slow\n")
        answer.force_close()
        return answer
    why = holding.reason(body.decode("utf-8", "replace"))
    try:
        said = await asyncio.to_thread(does, remediator, query, who, why)
    except ValueError as error:
        return web.Response(status=400, text=f"for: {error}\n")
    except HoldError as error:
        return web.Response(status=400, text=f"{error}\n")
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
        return web.Response(status=503, text="in force, but it could not be written down\n")
    remediator.engine.wake()
    return web.Response(text=f"{said}\n")


def _hold(remediator: Remediator, query: dict[str, str], who: str, why: str) -> str:
    now = remediator.now()
    until = now + parse_duration(query["for"]) if "for" in query else None
    wanted = Hold(query.get("run", ""), query.get("worker", ""), until, now, who, why)
    holding.hold(remediator.setup, wanted, now)
    return f"held: {wanted.scope} {wanted.told}"


def _resume(remediator: Remediator, query: dict[str, str], who: str, why: str) -> str:
    if "for" in query:
        raise ValueError("means something only to hold")
    where = {name: query.get(name, "") for name in ("run", "worker")}
    done = holding.resume(remediator.setup, remediator.now(), **where, who=who, why=why)
    return holding.told(done)
