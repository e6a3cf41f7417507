"""What the remediator answers over HTTP: the webhook first of all.

Alertmanager sends again what was answered 5xx, and drops nothing that was answered otherwise, so:
200 once a delivery is in the journal, whatever will be decided; 503 when it cannot be written, or
there is no memory to take it with; 401, 413, 400 for what is not a delivery at all; and never a
redirect, 408 or 429. What is only looked at is answered 503 too where there is no memory for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from trainwarden_exporter.serving import exposition, page
from trainwarden_exporter.serving.lifecycle import add_safe_headers, lifecycle_routes
from trainwarden_remediator import metrics, status
from trainwarden_remediator.admitting import admitted
from trainwarden_remediator.alerts import WATCHDOG, Alert, parse_notification
from trainwarden_remediator.answering import unless_starved
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.decision import Incident, PastAction
from trainwarden_remediator.exceptions import JournalError, MalformedError
from trainwarden_remediator.holdroutes import hold_routes
from trainwarden_remediator.reportroutes import report_routes
from trainwarden_remediator.together import Together

log = logging.getLogger(__name__)

BODY_BYTES = 32 * 1024 * 1024
"""The longest delivery that is read: a group of well over 10,000 alerts. aiohttp's own default,
1 MiB, would refuse a storm again and again, and so never hear of it."""

AT_ONCE_BYTES = 64 * 1024
"""A delivery no longer than this is parsed in less time than it takes to hand it to a thread."""

BODY_SECONDS = 20.0
"""How long a delivery may take to arrive."""

REMEDIATOR = web.AppKey("remediator", Remediator)
TOGETHER = web.AppKey("together", Together)
ANSWERED: web.AppKey[dict[int, int]] = web.AppKey("answered", dict)


def build_app(remediator: Remediator) -> web.Application:
    """The application that serves `remediator`."""
    app = web.Application(client_max_size=BODY_BYTES)
    app[REMEDIATOR] = remediator
    app[TOGETHER] = Together(partial(_journal, remediator))
    app[ANSWERED] = {}
    app.add_routes(
        [
            web.get("/", unless_starved(show_status)),
            web.get("/status.json", unless_starved(show_status_in_short)),
            web.get("/metrics", unless_starved(show_metrics)),
            web.post("/webhook", take_webhook),
        ]
    )
    app.add_routes(
        lifecycle_routes(remediator.readiness, remediator.reloader, alive=remediator.is_alive)
    )
    app.add_routes(hold_routes(remediator))
    app.add_routes(report_routes(remediator))
    add_safe_headers(app, style_source=page.STYLE_SOURCE)
    return app


async def take_webhook(request: web.Request) -> web.Response:
    """Journal a delivery of Alertmanager's, and answer; what comes of it comes later."""
    answer = await unless_starved(_take, "no memory to take a delivery with")(request)
    answered = request.app[ANSWERED]
    answered[answer.status] = answered.get(answer.status, 0) + 1
    return answer


async def _take(request: web.Request) -> web.Response:
    remediator = request.app[REMEDIATOR]
    if await admitted(request, remediator) is None:
        return web.Response(
            status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"}
        )
    if not remediator.readiness.ready:
        return web.Response(status=503, text="starting or stopping\n")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return web.Response(status=413, text="too large\n")
    except TimeoutError:
        answer = web.Response(status=400, text="body: too slow\n")
        answer.force_close()
        return answer
    except web.RequestPayloadError:
        return web.Response(status=400, text="body: spoilt on the way\n")
    try:
        if len(body) <= AT_ONCE_BYTES:
            notification = parse_notification(body)
        else:
            notification = await asyncio.to_thread(parse_notification, body)
    except MalformedError as error:
        log.warning("malformed webhook", extra={"error": str(error)})
        return web.Response(status=400, text=f"{error}\n")
    if notification.truncated:
        log.warning("alerts were left out", extra={"truncated": notification.truncated})
    try:
        await request.app[TOGETHER].hear(notification.alerts)
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
        return web.Response(status=503, text="cannot be written down\n")
    remediator.engine.wake()
    return web.Response(text="heard\n")


def _journal(remediator: Remediator, alerts: Sequence[Alert]) -> None:
    heartbeats = [alert for alert in alerts if alert.name == WATCHDOG]
    remediator.journal.hear(
        [alert for alert in alerts if alert.name != WATCHDOG],
        heartbeat=any(alert.firing for alert in heartbeats),
    )


async def show_metrics(request: web.Request) -> web.Response:
    """The remediator's own metrics."""
    condition = await _condition(request)
    accept, accept_encoding = (
        ",".join(request.headers.getall(name, ())) for name in ("Accept", "Accept-Encoding")
    )
    rendered = await asyncio.to_thread(
        exposition.render,
        metrics.families(condition),
        accept=accept,
        accept_encoding=accept_encoding,
    )
    return web.Response(body=rendered.body, headers=rendered.headers)


async def show_status(request: web.Request) -> web.Response:
    """A page for a person: how it stands, and the newest lines of the journal."""
    remediator = request.app[REMEDIATOR]
    condition = await _condition(request)
    try:
        events = await asyncio.to_thread(remediator.newest_events, status.EVENTS)
    except JournalError:
        events = ()
    text = await asyncio.to_thread(
        status.render, condition, remediator.setup.config, events, now=remediator.now()
    )
    return web.Response(text=text, content_type="text/html")


async def show_status_in_short(request: web.Request) -> web.Response:
    """What the page says, in short, as JSON; the exporter's page shows it. Open as the page is."""
    remediator = request.app[REMEDIATOR]
    condition = await _condition(request)
    return web.json_response(await asyncio.to_thread(_in_short, remediator, condition))


def _in_short(remediator: Remediator, condition: metrics.Condition) -> Mapping[str, Any]:
    incidents: Sequence[Incident] = ()
    actions: Sequence[PastAction] = ()
    try:
        incidents = remediator.journal.first_incidents(status.ALERTS)
        actions = remediator.journal.last_actions(status.ACTIONS)
    except JournalError as error:
        log.error("journal failed", extra={"error": str(error)})
    return status.in_short(condition, remediator.setup.config, incidents, actions)


async def _condition(request: web.Request) -> metrics.Condition:
    remediator = request.app[REMEDIATOR]
    return await asyncio.to_thread(remediator.condition, request.app[ANSWERED].copy())
