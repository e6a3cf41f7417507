"""The HTTP endpoints of the reports: a page for a browser, Markdown for all others."""

from __future__ import annotations

import asyncio
import logging
import time

from aiohttp import web

from trainwarden_exporter.config_file.types import parse_typed_duration
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.markdown import plain_text, to_html
from trainwarden_exporter.webserver.runbooks import local_runbook
from trainwarden_remediator.api.middleware import (
    LOGIN_CHALLENGE,
    LOGIN_TEXT,
    authenticate,
    unauthorized,
    with_memory_error_response,
)
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError, NoIncidentError
from trainwarden_remediator.observation.model import ExporterState
from trainwarden_remediator.report.current_state import CurrentState
from trainwarden_remediator.report.incident import ReportStyle, named_config
from trainwarden_remediator.report.nightly import report_incident, report_nights

log = logging.getLogger(__name__)

DEFAULT_PERIOD_SECONDS = 86400.0
MAX_CONCURRENT_REPORTS = 2
"""Number of reports that are rendered at the same time."""


def report_routes(remediator: Remediator) -> list[web.RouteDef]:
    """Returns the routes `/report/ID`, and `/report` for the last 24 hours or `?since=7d`.

    `?full=1` describes healed incidents of a night at length; `?format=md` returns Markdown to a
    browser, too. They require the same token as webhooks; a browser may send it as the password of
    a login.
    """
    slots = asyncio.Semaphore(MAX_CONCURRENT_REPORTS)

    async def one(request: web.Request) -> web.Response:
        number = request.match_info["incident"]
        return await answer(request, number)

    async def nights(request: web.Request) -> web.Response:
        return await answer(request, "")

    async def answer(request: web.Request, number: str) -> web.Response:
        if await authenticate(request, remediator, as_password=True) is None:
            return unauthorized(LOGIN_CHALLENGE, LOGIN_TEXT)
        try:
            since = parse_typed_duration(request.query.get("since", f"{DEFAULT_PERIOD_SECONDS:g}s"))
        except ValueError as error:
            return web.Response(status=400, text=f"since: {error}\n")
        async with slots:
            try:
                if number:
                    exporter = await remediator.read_exporter_state()
                    of_one = int(number), exporter
                    text = await asyncio.to_thread(_incident, remediator, request, *of_one)
                else:
                    current = await remediator.read_current_state()
                    text = await asyncio.to_thread(_nights, remediator, request, since, current)
            except NoIncidentError as error:
                return web.Response(status=404, text=f"{error}\n")
            except JournalError as error:
                log.warning("report failed", extra={"error": str(error)})
                return web.Response(status=503, text="journal unavailable\n")
        if _wants_page(request):
            page = await asyncio.to_thread(_page, text, number)
            return web.Response(text=page, content_type="text/html")
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    return [
        web.get("/report", with_memory_error_response(nights)),
        web.get(r"/report/{incident:\d{1,18}}", with_memory_error_response(one)),
    ]


def _wants_page(request: web.Request) -> bool:
    accepted = ",".join(request.headers.getall("Accept", ()))
    return "text/html" in accepted and request.query.get("format") != "md"


def _page(markdown: str, number: str) -> str:
    """Returns a report as a page; its first heading is the headline."""
    first, _, body = markdown.partition("\n")
    prefix = "../" if number else ""
    sections = html.section("", to_html(body, lambda to: local_runbook(to, prefix=prefix)))
    links = {"status": prefix or "./"} | ({"report": f"{prefix}report"} if number else {})
    return html.render(
        program="remediator",
        status="report",
        tone="quiet",
        headline=plain_text(first.lstrip("# ")),
        sections=sections,
        now=time.time(),
        links=links | {"as Markdown": "?format=md"},
    )


def _incident(
    remediator: Remediator, request: web.Request, number: int, exporter: ExporterState | None
) -> str:
    style, journal = _style(remediator, request), remediator.setup.config.journal
    return report_incident(journal, number, style, time.time(), exporter)


def _nights(
    remediator: Remediator, request: web.Request, since: float, current: CurrentState
) -> str:
    style, journal, now = _style(remediator, request), remediator.setup.config.journal, time.time()
    return report_nights(journal, now - since, style, now, current)


def _style(remediator: Remediator, request: web.Request) -> ReportStyle:
    config = remediator.setup.config
    return ReportStyle(
        config_file=named_config(remediator.path),
        unattended_until=config.unattended_until,
        answered_after=config.answered_after,
        grafana_url=remediator.setup.exporter_config.grafana_url or "",
        full=request.query.get("full", "") not in ("", "0"),
    )
