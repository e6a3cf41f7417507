"""Serves the runbooks of the shipped alerts."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.markdown import to_html
from trainwarden_exporter.webserver.runbooks import local_runbook, read_runbook


def runbook_routes(program: str) -> list[web.RouteDef]:
    """Returns the route `/runbook/NAME`; `program` is named on the page."""

    async def show(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        text = await asyncio.to_thread(read_runbook, name)
        if text is None:
            return web.Response(status=404, text="no such runbook\n")
        body = text.partition("\n")[2]  # its first line is the name, the headline of the page
        page = html.render(
            program=program,
            status="runbook",
            tone="quiet",
            headline=name,
            sections=html.section("", to_html(body, lambda to: local_runbook(to, prefix="../"))),
            now=time.time(),
            links={"status": "../"},
        )
        return web.Response(text=page, content_type="text/html")

    return [web.get("/runbook/{name}", show)]
