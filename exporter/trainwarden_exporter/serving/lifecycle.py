"""The paths by which a program is watched and steered over HTTP, named as Prometheus's own are."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.serving.reload import Reloader
from trainwarden_exporter.serving.service import Readiness


def lifecycle_routes(
    readiness: Readiness, reloader: Reloader, *, alive: Callable[[], bool] = lambda: True
) -> list[web.RouteDef]:
    """`/-/healthy`: 503 while `alive` says no; `/-/ready`: 503 unless it takes work.

    `POST /-/reload`: 200, or 500 with what is wrong, one problem a line.
    """

    async def healthy(_: web.Request) -> web.Response:
        if alive():
            return web.Response(text="healthy\n")
        return web.Response(status=503, text="not healthy: its work stands still\n")

    async def ready(_: web.Request) -> web.Response:
        if readiness.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready: starting or stopping\n")

    async def reload(_: web.Request) -> web.Response:
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


def add_safe_headers(app: web.Application, *, style_source: str = "'none'") -> None:
    """Make every answer of `app` forbid a browser what these pages do not need.

    `style_source` is the one source of style sheets, as a Content-Security-Policy names it.
    """
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"default-src 'none'; style-src {style_source}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "Server": "trainwarden",
        "X-Content-Type-Options": "nosniff",
    }

    async def add(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(headers)

    app.on_response_prepare.append(add)
