"""What the exporter answers over HTTP."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from aiohttp import web

from trainwarden_exporter import core, status
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.lane import Lane
from trainwarden_exporter.progress.heartbeatroutes import heartbeat_routes
from trainwarden_exporter.remediation.asking import ask
from trainwarden_exporter.serving import exposition, page
from trainwarden_exporter.serving.lifecycle import add_safe_headers, lifecycle_routes

DEFAULT_BUDGET = 10.0
LONGEST_TIMEOUT = 120.0
MARGIN = 0.5
"""Seconds of a scrape's timeout that are kept for rendering and the way back."""

EXPORTER = web.AppKey("exporter", Exporter)


class Rendering:
    """Makes pages in a thread of its own; scrapes that share all they show share the page too."""

    def __init__(self) -> None:
        self.lane = Lane("render")
        self._under_way: dict[tuple[object, ...], asyncio.Future[exposition.Rendered]] = {}

    async def metrics(
        self, exporter: Exporter, outcomes: Sequence[core.Outcome], request: web.Request
    ) -> exposition.Rendered:
        """The page of `outcomes`, in the format and the coding that `request` asks for."""
        accept, accept_encoding = (
            ",".join(request.headers.getall(name, ())) for name in ("Accept", "Accept-Encoding")
        )

        def page() -> exposition.Rendered:
            families = [*exporter.own_families(), *core.families(outcomes)]
            return exposition.render(families, accept=accept, accept_encoding=accept_encoding)

        key = (*outcomes, accept, accept_encoding)
        if key not in self._under_way:
            self._under_way[key] = rendered = self.lane.call(page)
            rendered.add_done_callback(lambda _: self._under_way.pop(key))
        # One client that goes away must not take the page from the others.
        return await asyncio.shield(self._under_way[key])


RENDERING = web.AppKey("rendering", Rendering)


def build_app(exporter: Exporter) -> web.Application:
    """The application that serves `exporter`."""
    app = web.Application()
    app[EXPORTER] = exporter
    app[RENDERING] = Rendering()
    app.add_routes([web.get("/", show_status), web.get("/metrics", show_metrics)])
    app.add_routes(heartbeat_routes(lambda: exporter.heartbeats))
    app.add_routes(lifecycle_routes(exporter.readiness, exporter.reloader))
    add_safe_headers(app, style_source=page.STYLE_SOURCE)
    return app


async def show_metrics(request: web.Request) -> web.Response:
    """All metrics; of the collectors named by `collect[]` only, where that is given."""
    exporter = request.app[EXPORTER]
    names = request.query.getall("collect[]", None)
    unknown = sorted(set(names or ()) - set(exporter.scraper.names))
    if unknown:
        return web.Response(status=400, text=f"unknown collector: {', '.join(unknown)}\n")
    outcomes = await exporter.scraper.scrape(_budget(request), names)
    rendered = await request.app[RENDERING].metrics(exporter, outcomes, request)
    return web.Response(body=rendered.body, headers=rendered.headers)


async def show_status(request: web.Request) -> web.Response:
    """A page for a person, with what the collectors see at this moment."""
    exporter = request.app[EXPORTER]
    outcomes, told = await asyncio.gather(
        exporter.scraper.scrape(_budget(request)), ask(exporter.config.remediator)
    )
    snapshot = status.Status(
        now=exporter.now(),
        started=exporter.started,
        path=exporter.path,
        problems=exporter.reloader.problems,
        reloaded=exporter.reloader.success_timestamp,
        web_file_successful=exporter.web_file_successful,
        outcomes=outcomes,
        told=told,
    )
    text = await request.app[RENDERING].lane.call(lambda: status.render(snapshot))
    return web.Response(text=text, content_type="text/html")


def parse_budget(header: str | None) -> float:
    """Seconds a scrape may take, by Prometheus's X-Prometheus-Scrape-Timeout-Seconds header.

    A margin is kept off it. Without a header, or with one that makes no sense, DEFAULT_BUDGET.
    """
    try:
        timeout = float(header or "")
    except ValueError:
        return DEFAULT_BUDGET
    if math.isnan(timeout) or timeout <= 0:
        return DEFAULT_BUDGET
    timeout = min(timeout, LONGEST_TIMEOUT)
    return timeout - min(MARGIN, timeout / 10)


def _budget(request: web.Request) -> float:
    return parse_budget(request.headers.get("X-Prometheus-Scrape-Timeout-Seconds"))
