"""HTTP routes of the exporter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from aiohttp import web

from trainwarden_exporter.app import Exporter
from trainwarden_exporter.heartbeats.api import heartbeat_routes
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_exporter.scrape import exposition, scraper
from trainwarden_exporter.status_page import page as status_page
from trainwarden_exporter.status_page.remediator_client import fetch_status, last_known_status
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.management_api import add_security_headers, management_routes
from trainwarden_exporter.webserver.runbook_pages import runbook_routes
from trainwarden_exporter.webserver.shared_calls import SharedCalls

DEFAULT_TIMEOUT = 10.0
MAX_TIMEOUT = 120.0
TIMEOUT_MARGIN = 0.5
"""Seconds of the scrape timeout reserved for rendering and transfer."""

EXPORTER = web.AppKey("exporter", Exporter)


class PageRenderer:
    """Renders pages in a thread of its own; concurrent scrapes of the same content share a page."""

    def __init__(self) -> None:
        self.thread = SerialThread("render")
        self._shared = SharedCalls[exposition.RenderedPage]()

    async def metrics(
        self, exporter: Exporter, outcomes: Sequence[scraper.Outcome], request: web.Request
    ) -> exposition.RenderedPage:
        """Returns the page of `outcomes` in the format and the encoding that `request` accepts."""
        accept, accept_encoding = (
            ",".join(request.headers.getall(name, ())) for name in ("Accept", "Accept-Encoding")
        )

        def text() -> exposition.RenderedPage:
            families = [*exporter.exporter_families(), *scraper.families(outcomes)]
            return exposition.render(families, accept=accept, accept_encoding=accept_encoding)

        async def render() -> exposition.RenderedPage:
            return await self.thread.call(text)

        return await self._shared.call((*outcomes, accept, accept_encoding), render)


PAGE_RENDERER = web.AppKey("page_renderer", PageRenderer)
SCRAPES = web.AppKey("scrapes", SharedCalls[tuple[scraper.Outcome, ...]])
"""Scrapes that begin at the same time share one collection, so that many cost little."""


def build_app(exporter: Exporter) -> web.Application:
    app = web.Application()
    app[EXPORTER] = exporter
    app[PAGE_RENDERER] = PageRenderer()
    app[SCRAPES] = SharedCalls()
    app.add_routes(
        [
            web.get("/", show_status),
            web.get("/status.json", show_status_json),
            web.get("/metrics", show_metrics),
        ]
    )
    app.add_routes(heartbeat_routes(lambda: exporter.heartbeats))
    app.add_routes(management_routes(exporter.readiness, exporter.reloader))
    app.add_routes(runbook_routes("exporter"))
    add_security_headers(app, style_source=html.STYLE_SOURCE)
    return app


async def show_metrics(request: web.Request) -> web.Response:
    """Serves all metrics, or only those of the collectors named by `collect[]`."""
    exporter = request.app[EXPORTER]
    await exporter.refresh_runs()
    names = request.query.getall("collect[]", None)
    unknown = sorted(set(names or ()) - set(exporter.scraper.names))
    if unknown:
        return web.Response(status=400, text=f"unknown collector: {', '.join(unknown)}\n")
    outcomes = await _scrape(request, names)
    rendered = await request.app[PAGE_RENDERER].metrics(exporter, outcomes, request)
    return web.Response(body=rendered.body, headers=rendered.headers)


async def show_status(request: web.Request) -> web.Response:
    """Serves the status page, freshly collected."""
    page = await _collect_page(request)
    text = await request.app[PAGE_RENDERER].thread.call(lambda: status_page.render(page))
    return web.Response(text=text, content_type="text/html")


async def show_status_json(request: web.Request) -> web.Response:
    """Serves what the status page says in a few lines, as JSON."""
    page = await _collect_page(request)
    summary = await request.app[PAGE_RENDERER].thread.call(lambda: status_page.status_json(page))
    return web.json_response(summary)


async def _scrape(
    request: web.Request, names: Sequence[str] | None = None
) -> tuple[scraper.Outcome, ...]:
    """Collects; `names` are those of the collectors, None for all."""
    source, budget = request.app[EXPORTER].scraper, _budget(request)
    key = (budget, None if names is None else tuple(names))
    return await request.app[SCRAPES].call(key, lambda: source.scrape(budget, names))


async def _collect_page(request: web.Request) -> status_page.PageData:
    exporter = request.app[EXPORTER]
    await exporter.refresh_runs()
    outcomes, remediator = await asyncio.gather(
        _scrape(request),
        fetch_status(
            exporter.config.remediator,
            exporter.identity,
            last_known=lambda: last_known_status(exporter.hold_pollers, exporter.now()),
        ),
    )
    return status_page.PageData(
        now=exporter.now(),
        started=exporter.started,
        path=exporter.path,
        problems=exporter.reloader.problems,
        reloaded=exporter.reloader.success_timestamp,
        web_config_loaded=exporter.web_config_loaded,
        outcomes=outcomes,
        remediator=remediator,
        links=_links(exporter),
        refresh=request.query.get("refresh") != "0",
    )


def _links(exporter: Exporter) -> dict[str, str]:
    """Returns the links of the status page."""
    config, links = exporter.config, {"metrics": "metrics"}
    if config.remediator is not None:
        links |= {
            "remediator": f"{config.remediator.url}/",
            "report": f"{config.remediator.url}/report",
        }
    if config.grafana_url is not None:
        links["boards"] = f"{config.grafana_url}/d/trainwarden-run"
    return links


def parse_budget(header: str | None) -> float:
    """Returns the time budget of a scrape in seconds, from its timeout header less a margin.

    Returns DEFAULT_TIMEOUT without the header or with an invalid one.
    """
    try:
        timeout = float(header or "")
    except ValueError:
        return DEFAULT_TIMEOUT
    if math.isnan(timeout) or timeout <= 0:
        return DEFAULT_TIMEOUT
    timeout = min(timeout, MAX_TIMEOUT)
    return timeout - min(TIMEOUT_MARGIN, timeout / 10)


def _budget(request: web.Request) -> float:
    return parse_budget(request.headers.get("X-Prometheus-Scrape-Timeout-Seconds"))
