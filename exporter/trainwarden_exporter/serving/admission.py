"""Who may ask a program for what: rate limit, client certificates and users, before any handler."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from trainwarden_exporter.serving.authentication import BasicAuthenticator
from trainwarden_exporter.serving.crowd import Crowd
from trainwarden_exporter.serving.tls import subject_names
from trainwarden_exporter.serving.tlsconfig import TLSServerConfig
from trainwarden_exporter.serving.webconfig import RateLimit, WebConfig

CERTIFIED = web.RequestKey("certified", bool)
"""Whether a request came with a client certificate that was demanded and has been verified."""


class TokenBucket:
    """Allows `limit.burst` requests at once and one more each `limit.interval` seconds."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = float(limit.burst)
        self._filled = clock()

    def take(self) -> bool:
        """Whether one more request is allowed now; if so it is counted."""
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
    """Lets requests through by the web config in force; `open_paths` are open to everybody.

    What is served at `own_credential_paths` asks for a credential of its own in place of a user's,
    and has no rate limit; but a client certificate that is demanded is demanded there too. A
    request that showed one carries CERTIFIED.

    A request without credentials is answered 401. One whose connection shows no client certificate,
    or one with names that are not allowed, is answered 403 (401 would have to name a scheme that
    the client could answer with) and loses its connection, so that it can come back with one.
    """

    def __init__(
        self, open_paths: frozenset[str], *, own_credential_paths: frozenset[str] = frozenset()
    ) -> None:
        self.context: ssl.SSLContext | None = None
        self.crowd = Crowd()
        self._open_paths = open_paths
        self._own_credential_paths = own_credential_paths
        self._config = WebConfig()
        self._bucket = TokenBucket(self._config.rate_limit)
        self._authenticator = BasicAuthenticator()

    def guard(self, app: web.Application) -> None:
        """Stand before everything `app` serves, also its 404; `app` must not be running yet."""
        app.middlewares.insert(0, self._admit)
        app.on_response_prepare.append(self._add_headers)

    def adopt(self, config: WebConfig, context: ssl.SSLContext | None) -> None:
        """Judge by `config` from the next request on; `context` is that of new connections."""
        if config.rate_limit != self._config.rate_limit:
            self._bucket = TokenBucket(config.rate_limit)
        self._config, self.context = config, context

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            with self.crowd.answering(request):
                response = await self._refusal(request) or await handler(request)
        except web.HTTPException as answer:
            self._part(request, answer)
            raise
        self._part(request, response)
        return response

    def _part(self, request: web.Request, response: web.StreamResponse) -> None:
        transport = request.transport
        if transport is None or transport.get_extra_info("sslcontext") is not self.context:
            response.force_close()

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in self._config.headers.items():
            response.headers.setdefault(name, value)

    async def _refusal(self, request: web.Request) -> web.Response | None:
        if _is_at(request, self._open_paths):
            return None
        has_own = _is_at(request, self._own_credential_paths)
        if not has_own and not self._bucket.take():
            return web.Response(status=429, text="too many requests\n")
        tls = self._config.tls
        if tls is not None and (reason := _objection(tls, request)) is not None:
            response = web.Response(status=403, text=f"{reason}\n")
            response.force_close()
            return response
        # One that is merely taken when given proves nothing: any that the CA signed would do.
        request[CERTIFIED] = tls is not None and tls.demands_certificate
        users = self._config.basic_auth_users
        if has_own or not users:
            return None
        match await self._authenticator.verdict(users, request.headers.get("Authorization")):
            case "known":
                return None
            case "busy":
                return web.Response(
                    status=503, text="too many logins\n", headers={"Retry-After": "1"}
                )
            case "unknown":
                return web.Response(
                    status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Basic"}
                )


def _is_at(request: web.Request, paths: frozenset[str]) -> bool:
    # What the router chose, not what the URL looks like: no spelling can slip past it.
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in paths


def _objection(tls: TLSServerConfig, request: web.Request) -> str | None:
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return "client certificate required" if tls.demands_certificate else None
    allowed = tls.client_allowed_sans
    if allowed and not subject_names(certificate).intersection(allowed):
        return "client certificate bears no allowed name"
    return None
