"""The HTTP endpoints by which an operator holds and resumes actions.

`POST /-/hold` and `POST /-/resume`, with `run`, `worker` and (hold only) `for` in the query, and
the reason as the body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from aiohttp import web

from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.runtime.formatting import format_duration
from trainwarden_remediator.api.middleware import (
    authenticate,
    unauthorized,
    with_memory_error_response,
)
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import ApprovalError, HoldError, JournalError
from trainwarden_remediator.holds import service
from trainwarden_remediator.holds.hold_file import Hold
from trainwarden_remediator.journal.approvals import APPROVAL_SECONDS

log = logging.getLogger(__name__)

MAX_REASON_BYTES = 8 << 10
"""Bytes of the body that are read as the reason."""
BODY_TIMEOUT_SECONDS = 10.0
_KEYS = frozenset({"run", "worker", "for"})


def hold_routes(remediator: Remediator) -> list[web.RouteDef]:
    """Returns the routes of the module docstring.

    They respond 401 without a token, 400 to an invalid request, 503 if the journal or memory
    failed. After a 503 the command may be in force; repeating it is harmless.
    """

    async def hold(request: web.Request) -> web.Response:
        return await _answer(request, remediator, run_hold)

    async def resume(request: web.Request) -> web.Response:
        return await _answer(request, remediator, run_resume)

    return [
        web.post("/-/hold", with_memory_error_response(hold, "out of memory; hold failed")),
        web.post("/-/resume", with_memory_error_response(resume, "out of memory; resume failed")),
    ]


Command = Callable[[Remediator, dict[str, str], str, str], str]


async def _answer(request: web.Request, remediator: Remediator, command: Command) -> web.Response:
    if (by := await authenticate(request, remediator)) is None:
        return unauthorized()
    who = f"{by} from {request.remote or 'an unknown address'}"
    query = dict(request.query)
    if unknown := sorted(query.keys() - _KEYS):
        return web.Response(status=400, text=f"unknown parameters: {', '.join(unknown)}\n")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            body = await request.content.read(MAX_REASON_BYTES)
    except TimeoutError:
        answer = web.Response(status=400, text="request body timed out\n")
        answer.force_close()
        return answer
    why = service.normalize_reason(body.decode("utf-8", "replace"))
    return await run_command(remediator, command, query, who, why)


async def run_command(
    remediator: Remediator, command: Command, query: dict[str, str], who: str, why: str
) -> web.Response:
    """Holds or resumes, and returns the response that says what is in force now."""
    try:
        result = await asyncio.to_thread(command, remediator, query, who, why)
    except ValueError as error:
        return web.Response(status=400, text=f"for: {error}\n")
    except (HoldError, ApprovalError) as error:
        return web.Response(status=400, text=f"{error}\n")
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
        return web.Response(status=503, text="in force, but not recorded: journal unavailable\n")
    remediator.control_loop.wake()
    return web.Response(text=f"{result}\n")


def run_hold(remediator: Remediator, query: dict[str, str], who: str, why: str) -> str:
    now = remediator.clock.now()
    wanted = Hold(since=now)
    if "for" in query:
        wanted = Hold.lasting(parse_typed_duration(query["for"]), remediator.clock)
    run, worker = query.get("run", ""), query.get("worker", "")
    wanted = replace(wanted, run=run, worker=worker, who=who, why=why)
    service.hold(remediator.setup, wanted, now)
    return f"held: {wanted.scope} {wanted.description}"


def run_approve(remediator: Remediator, query: dict[str, str], who: str, why: str) -> str:
    """Approves the action that was proposed for an incident, at the time in `query`."""
    del why
    try:
        incident, proposed_at = int(query["incident"]), float(query["proposed"])
    except (KeyError, ValueError) as error:
        raise ApprovalError("no incident, or no time of its proposal") from error
    now = remediator.clock.now()
    what = service.approve(remediator.setup, incident, now, who=who, proposed_at=proposed_at)
    return f"approved once, for {format_duration(APPROVAL_SECONDS)}: {what}"


def run_resume(remediator: Remediator, query: dict[str, str], who: str, why: str) -> str:
    if "for" in query:
        raise ValueError("only valid for hold")
    where = {name: query.get(name, "") for name in ("run", "worker")}
    done = service.resume(remediator.setup, remediator.clock.now(), **where, who=who, why=why)
    return service.describe_resume(done)
