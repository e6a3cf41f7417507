"""Management API, with the paths of Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.webserver.service import Readiness, Reloader

Refuse = Callable[[web.Request], Awaitable[web.Response | None]]


async def _refuse_nobody(_: web.Request) -> None:
    return None


def management_routes(
    readiness: Readiness,
    reloader: Reloader,
    *,
    alive: Callable[[], bool] = lambda: True,
    refuse_reload: Refuse = _refuse_nobody,
) -> list[web.RouteDef]:
    """Returns the routes `/-/healthy`, `/-/ready` and `POST /-/reload`.

    `/-/healthy` responds 503 unless `alive()`, `/-/ready` 503 unless `readiness` says that the
    program is ready, and `/-/reload` 500 with the problems, one per line, if a file is invalid.
    `refuse_reload` returns the response to a request that must not reload.
    """

    async def healthy(_: web.Request) -> web.Response:
        if alive():
            return web.Response(text="healthy\n")
        return web.Response(status=503, text="not healthy: no progress\n")

    async def ready(_: web.Request) -> web.Response:
        if readiness.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: starting or stopping\n")

    async def reload(request: web.Request) -> web.Response:
        if (refusal := await refuse_reload(request)) is not None:
            return refusal
        try:
            await reloader.reload()
        except ConfigError as error:
            return web.Response(status=500, text=f"{error}\n")
        return web.Response(text="reloaded\n")

    return [
        web.get("/-/healthy", healthy),
        web.get("/-/ready", ready),
        web.post("/-/reload", reload),
    ]


def add_security_headers(app: web.Application, *, style_source: str) -> None:
    """Adds headers to every response by which a browser restricts what the pages may do.

    `style_source` is the only source of style sheets, as a Content-Security-Policy source. A
    response may have a policy of its own.
    """
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"default-src 'none'; style-src {style_source}; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "Server": "trainwarden",
        "X-Content-Type-Options": "nosniff",
    }

    async def add(_: web.Request, response: web.StreamResponse) -> None:
        own_policy = response.headers.get("Content-Security-Policy")
        response.headers.update(headers)
        if own_policy is not None:
            response.headers["Content-Security-Policy"] = own_policy

    app.on_response_prepare.append(add)
