"""The HTTP application of the remediator.

Alertmanager retries a webhook only after a 5xx response. The webhook therefore responds 200 once a
delivery is in the journal, whatever will be decided; 503 if the journal or memory fails; 401, 413
or 400 if the request is not a valid delivery; and never a redirect, 408 or 429. Pages respond 503
as well if memory runs out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from aiohttp import web

from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.runtime.responsibility import LINE_SECONDS
from trainwarden_exporter.scrape import exposition
from trainwarden_exporter.scrape.exposition import RenderedPage
from trainwarden_exporter.webserver import html
from trainwarden_exporter.webserver.management_api import add_security_headers, management_routes
from trainwarden_exporter.webserver.runbook_pages import runbook_routes
from trainwarden_exporter.webserver.shared_calls import SharedCalls
from trainwarden_remediator.api.hold_page import hold_page_routes
from trainwarden_remediator.api.holds import hold_routes
from trainwarden_remediator.api.middleware import (
    Handler,
    refuse_without_credential,
    with_memory_error_response,
)
from trainwarden_remediator.api.reports import report_routes
from trainwarden_remediator.api.webhook import (
    MAX_BODY_BYTES,
    REMEDIATOR,
    RESPONSE_COUNTS,
    WRITE_BATCHER,
    WriteBatcher,
    _record_alerts,
    handle_webhook,
    log,
)
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.model import Incident, PastAction
from trainwarden_remediator.observation.active_alerts import ActiveAlerts
from trainwarden_remediator.policy.alert_handling import WAITING
from trainwarden_remediator.policy.halts import HALTS_SHOWN, halted_runs
from trainwarden_remediator.telemetry import metrics, status_page
from trainwarden_remediator.telemetry.headline import CurrentWork
from trainwarden_remediator.telemetry.state import RemediatorState

MAX_CONCURRENT_PAGES = 2
"""Number of pages that are rendered at the same time."""

_DEPENDS_ON_RUN = HALTS_SHOWN | {WAITING, *LINE_SECONDS}
"""Alerts about which the run itself decides who acts."""

REREAD_SECONDS = 1.0
"""Seconds between two readings of the exporter's file for pages: anybody may request these, and a
decision waits for each reading."""

Render = Callable[[web.Request], Awaitable[RenderedPage]]


def build_app(remediator: Remediator) -> web.Application:
    """Returns the application that serves `remediator`."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    pages = SharedPages()
    app[REMEDIATOR] = remediator
    app[WRITE_BATCHER] = WriteBatcher(partial(_record_alerts, remediator))
    app[RESPONSE_COUNTS] = {}
    app.add_routes(
        [
            web.get("/", pages.handler(render_status)),
            web.get("/status.json", pages.handler(render_status_json)),
            # Does not wait for status pages, which ask Alertmanager.
            web.get("/metrics", SharedPages().handler(render_metrics)),
            web.post("/webhook", handle_webhook),
        ]
    )
    app.add_routes(
        management_routes(
            remediator.readiness,
            remediator.reloader,
            alive=remediator.is_alive,
            refuse_reload=lambda request: refuse_without_credential(request, remediator),
        )
    )
    app.add_routes(hold_routes(remediator))
    app.add_routes(hold_page_routes(remediator))
    app.add_routes(report_routes(remediator))
    app.add_routes(runbook_routes("remediator"))
    add_security_headers(app, style_source=html.STYLE_SOURCE)
    return app


class SharedPages:
    """Renders pages, and lets requests for the same page that arrive at the same time share it.

    Only few pages are rendered at once, so that a flood does not take memory and threads.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_PAGES)
        self._shared = SharedCalls[RenderedPage]()

    def handler(self, render: Render) -> Handler:
        """Returns the handler that responds with the page of `render`, or 503 without memory."""

        async def render_in_turn(request: web.Request) -> RenderedPage:
            async with self._slots:
                return await render(request)

        async def answer(request: web.Request) -> web.Response:
            key = (render, _refreshes(request), *_accepted(request))
            page = await self._shared.call(key, lambda: render_in_turn(request))
            return web.Response(body=page.body, headers=page.headers)

        return with_memory_error_response(answer)


def _refreshes(request: web.Request) -> bool:
    return request.query.get("refresh") != "0"


def _accepted(request: web.Request) -> tuple[str, str]:
    """Returns the formats and the encodings that the client accepts."""
    formats, encodings = (
        ",".join(request.headers.getall(name, ())) for name in ("Accept", "Accept-Encoding")
    )
    return formats, encodings


async def render_metrics(request: web.Request) -> RenderedPage:
    """Returns the remediator's own metrics."""
    condition = await _condition(request)
    accept, accept_encoding = _accepted(request)
    return await asyncio.to_thread(
        exposition.render,
        metrics.metric_families(condition),
        accept=accept,
        accept_encoding=accept_encoding,
    )


async def render_status(request: web.Request) -> RenderedPage:
    """Returns the status page: the state, and the newest events of the journal."""
    remediator = request.app[REMEDIATOR]
    work = await _current_work(request)
    try:
        events = await asyncio.to_thread(remediator.journal.newest_events, status_page.EVENTS)
    except JournalError:
        events = ()
    text = await asyncio.to_thread(
        status_page.render,
        work,
        remediator.setup,
        events,
        now=remediator.clock.now(),
        refresh=_refreshes(request),
    )
    return RenderedPage(text.encode(), {"Content-Type": "text/html; charset=utf-8"})


async def render_status_json(request: web.Request) -> RenderedPage:
    """Returns a summary of the status page as JSON, for the exporter's page."""
    remediator = request.app[REMEDIATOR]
    work = await _current_work(request)
    summary = await asyncio.to_thread(
        status_page.status_json, work, remediator.setup, now=remediator.clock.now()
    )
    return RenderedPage(
        json.dumps(summary).encode(), {"Content-Type": "application/json; charset=utf-8"}
    )


async def _current_work(request: web.Request) -> CurrentWork:
    remediator = request.app[REMEDIATOR]
    # A run that an operator has just stopped needs nobody, before the next decision, too (harm 23).
    await remediator.reread_exporter_file(max_age=REREAD_SECONDS)
    alerts = await remediator.active_alerts.list()
    state = await _condition(request)
    work = await asyncio.to_thread(_read_work, remediator, state, alerts)
    # The end of an announced run is known without the exporter.
    known = {"", *(key.run for key in remediator.setup.announced.workers)}
    if isinstance(alerts, str) or all(
        one.name not in _DEPENDS_ON_RUN and one.run in known for one in alerts
    ):
        return work
    if (exporter := await remediator.read_exporter_state()) is None:
        return work
    return replace(
        work,
        halted=halted_runs(exporter),
        finished=exporter.finished_runs,
        last_steps=exporter.last_steps,
        last_lines=exporter.last_lines,
        ending=exporter.ending_runs,
        dead=exporter.dead_runs,
    )


def _read_work(remediator: Remediator, state: RemediatorState, alerts: ActiveAlerts) -> CurrentWork:
    incidents: Sequence[Incident] = ()
    actions: Sequence[PastAction] = ()
    faults: Mapping[WorkerKey, FaultFacts] = {}
    try:
        incidents = remediator.journal.first_incidents(status_page.ALERTS)
        actions = remediator.journal.last_actions(status_page.ACTIONS)
        faults = remediator.journal.faults()
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
    return CurrentWork(state, alerts, incidents, actions, remediator.setup, faults=faults)


async def _condition(request: web.Request) -> RemediatorState:
    remediator = request.app[REMEDIATOR]
    return await asyncio.to_thread(remediator.program_state, request.app[RESPONSE_COUNTS].copy())
