"""Authorises requests: rate limit, web pages, client certificates and users."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from contextlib import nullcontext

from aiohttp import web
from aiohttp.typedefs import Handler

from trainwarden_exporter.runtime.repeated_logs import limit_repetition
from trainwarden_exporter.webserver.basic_auth import BasicAuthenticator, parse_credentials
from trainwarden_exporter.webserver.connections import Connection
from trainwarden_exporter.webserver.sockets import is_loopback_name
from trainwarden_exporter.webserver.tls import subject_names
from trainwarden_exporter.webserver.tls_config import TLSServerConfig
from trainwarden_exporter.webserver.web_config import RateLimit, WebConfig

log = logging.getLogger(__name__)
limit_repetition(log)  # a peer can provoke its messages

AUTHENTICATED_USER = web.RequestKey("authenticated_user", str)
"""The user of the web config file who sent the request."""

CLIENT_CERTIFICATE_VERIFIED = web.RequestKey("client_certificate_verified", bool)
"""Whether the request came with a required and verified client certificate."""


class TokenBucket:
    """Allows `limit.burst` requests at once and one more each `limit.interval` seconds."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = float(limit.burst)
        self._filled = clock()

    def take(self) -> bool:
        """Takes a token; returns whether one more request is allowed now."""
        if self._limit.interval == 0:
            return True
        now = self._clock()
        gained = (now - self._filled) / self._limit.interval
        self._tokens, self._filled = min(self._tokens + gained, float(self._limit.burst)), now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Admission:
    """Decides about each request before the application sees it.

    Requests for `open_paths` need no credential. Requests for `own_credential_paths()` are checked
    by their handlers; they need no user and have no rate limit, but a required client certificate
    is required for them too. `host_names`, if not None, are the names that a request may address
    the server by, besides names of the loopback interface. Requests that change something are
    refused where a web page sends them, except a page of this server to `form_paths`.

    A request without valid credentials is answered 401. If the connection has no client
    certificate, or one with names that are not allowed, the response is 403 (401 would have to name
    a scheme that the client could respond with), and the connection is closed so that the client
    can return with a certificate.
    """

    def __init__(
        self,
        open_paths: frozenset[str],
        *,
        own_credential_paths: Callable[[], frozenset[str]] = frozenset,
        host_names: frozenset[str] | None = None,
        form_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._context: ssl.SSLContext | None = None
        self._open_paths = open_paths
        self._own_credential_paths = own_credential_paths
        self._host_names = host_names
        self._form_paths = form_paths
        self._config = WebConfig()
        self._bucket = TokenBucket(self._config.rate_limit)
        self._authenticator = BasicAuthenticator()

    def guard(self, app: web.Application) -> None:
        """Guards all routes of `app`, including its 404; `app` must not be running yet."""
        app.middlewares.insert(0, self._admit)
        app.on_response_prepare.append(self._add_headers)

    def apply(self, config: WebConfig, context: ssl.SSLContext | None) -> None:
        """Applies `config` from the next request on; `context` is that of new connections."""
        if config.rate_limit != self._config.rate_limit:
            self._bucket = TokenBucket(config.rate_limit)
        self._config, self._context = config, context

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = request.protocol
        progress = (
            connection.request_in_progress(request)
            if isinstance(connection, Connection)
            else nullcontext()
        )
        with progress:
            try:
                response = await self._refusal(request) or await handler(request)
            except web.HTTPException as answer:
                self._close_if_needed(request, answer)
                raise
            except ConnectionResetError:
                if request.transport is not None:
                    raise
                # Its peer has left before the whole request was read: no answer can be sent.
                log.warning("a request was lost with its connection")
                return web.Response(status=400)
            self._close_if_needed(request, response)
            return response

    def _close_if_needed(self, request: web.Request, response: web.StreamResponse) -> None:
        """Closes the connection after `response` if it cannot or should not be used again."""
        connection, transport = request.protocol, request.transport
        if (
            transport is None
            # It was made under earlier TLS settings.
            or transport.get_extra_info("sslcontext") is not self._context
            # The rest of the body would have to be read first, whatever its size.
            or request.can_read_body
            # The peer sends without reading the answers, and would never stop to.
            or (isinstance(connection, Connection) and connection.has_pipelined_requests)
        ):
            response.force_close()

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in self._config.headers.items():
            response.headers.setdefault(name, value)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        # A few bytes may expand to gigabytes, and no client compresses its requests.
        if any(one.lower() != "identity" for one in request.headers.getall("Content-Encoding", ())):
            return web.Response(
                status=415,
                text="compressed requests are not accepted\n",
                headers={"Accept-Encoding": "identity"},
            )
        if _is_route(request, self._open_paths):
            return None
        if (reason := self._web_page_error(request)) is not None:
            return web.Response(status=403, text=f"{reason}\n")
        return await self._credential_refusal(request)

    def _web_page_error(self, request: web.Request) -> str | None:
        """Why the request may come from a web page in the operator's browser; None if not.

        Any web page may send requests to this host. It cannot read the answers, unless its own name
        resolves to this host, which the header `Host` then shows.
        """
        if self._host_names is not None:
            for host in request.headers.getall("Host", ()):
                name = _host_name(host)
                if name not in self._host_names and not is_loopback_name(name):
                    return f"{name} is not a name of this server: set --web.external-url"
        # Browsers set these headers, and no script can; command-line tools do not.
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site == "same-origin" and _is_route(request, self._form_paths):
            return None
        if request.method not in {"GET", "HEAD"} and (
            "Origin" in request.headers or site != "none"
        ):
            return "requests from a web page are not accepted"
        return None

    async def _credential_refusal(self, request: web.Request) -> web.Response | None:
        has_own = _is_route(request, self._own_credential_paths())
        if not has_own and not self._bucket.take():
            return web.Response(status=429, text="too many requests\n")
        tls = self._config.tls
        if tls is not None and (reason := _certificate_error(tls, request)) is not None:
            response = web.Response(status=403, text=f"{reason}\n")
            response.force_close()
            return response
        # An optional certificate proves nothing: any that the CA signed would be valid.
        request[CLIENT_CERTIFICATE_VERIFIED] = tls is not None and tls.demands_certificate
        users = self._config.basic_auth_users
        if has_own or not users:
            return None
        authorization = request.headers.get("Authorization")
        match await self._authenticator.authenticate(users, authorization):
            case "known":
                if (credentials := parse_credentials(authorization)) is not None:
                    request[AUTHENTICATED_USER] = credentials[0]
                return None
            case "busy":
                return web.Response(
                    status=503, text="too many logins\n", headers={"Retry-After": "1"}
                )
            case "unknown":
                return web.Response(
                    status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Basic"}
                )


def _host_name(host: str) -> str:
    """Returns the name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_route(request: web.Request, paths: frozenset[str]) -> bool:
    # The route that the router chose: no other spelling of the URL bypasses it.
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in paths


def _certificate_error(tls: TLSServerConfig, request: web.Request) -> str | None:
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return "client certificate required" if tls.demands_certificate else None
    allowed = tls.client_allowed_sans
    if allowed and not subject_names(certificate).intersection(allowed):
        return "client certificate has no allowed name"
    return None
