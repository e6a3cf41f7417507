"""The paths by which reports are read over HTTP, as the plain text of their Markdown."""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from trainwarden_exporter.units import parse_duration
from trainwarden_remediator.admitting import admitted
from trainwarden_remediator.answering import unless_starved
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.reporting.incident import Style
from trainwarden_remediator.reporting.telling import tell_incident, tell_nights

log = logging.getLogger(__name__)

NIGHT_SECONDS = 86400.0
AT_ONCE = 2
"""Reports that are written at once: each may take a while."""


def report_routes(remediator: Remediator) -> list[web.RouteDef]:
    """`/report/ID`, and `/report` for the last night, or `?since=7d`.

    A token is asked for as for webhooks; a browser may give it as the password of a login.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(request: web.Request) -> web.Response:
        number = request.match_info["incident"]
        return await answer(request, number)

    async def nights(request: web.Request) -> web.Response:
        return await answer(request, "")

    async def answer(request: web.Request, number: str) -> web.Response:
        if await admitted(request, remediator, as_password=True) is None:
            challenge = {"WWW-Authenticate": 'Basic realm="trainwarden: the token as password"'}
            return web.Response(status=401, text="unauthorized\n", headers=challenge)
        try:
            since = parse_duration(request.query.get("since", f"{NIGHT_SECONDS:g}"))
        except ValueError as error:
            return web.Response(status=400, text=f"since: {error}\n")
        async with turns:
            try:
                text = await asyncio.to_thread(_tell, remediator, number, since)
            except JournalError as error:
                log.warning("no report", extra={"error": str(error)})
                return web.Response(status=503, text="the journal cannot be read\n")
        if text is None:
            return web.Response(status=404, text="no such incident\n")
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    return [
        web.get("/report", unless_starved(nights)),
        web.get(r"/report/{incident:\d{1,18}}", unless_starved(one)),
    ]


def _tell(remediator: Remediator, number: str, since: float) -> str | None:
    config, now = remediator.setup.config, time.time()
    style = Style(config_file=str(remediator.path), alertmanager_url=config.alertmanager.url)
    if number:
        return tell_incident(config.journal, int(number), style, now)
    return tell_nights(config.journal, now - since, style, now)
