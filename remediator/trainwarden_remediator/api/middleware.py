"""Authentication of requests, and the response to a memory shortage."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from trainwarden_exporter.webserver.middleware import (
    AUTHENTICATED_USER,
    CLIENT_CERTIFICATE_VERIFIED,
)
from trainwarden_remediator.app import Remediator


async def authenticate(
    request: web.Request, remediator: Remediator, *, as_password: bool = False
) -> str | None:
    """Returns the credential that admits a request, in words; None if it is rejected.

    Without a token file, a request needs a client certificate, a user of the web config file, or
    `insecure: true`.
    `as_password`: also accept a token as the password of basic authentication, with any user.
    """
    tokens = remediator.tokens
    if tokens is None:
        if request.get(CLIENT_CERTIFICATE_VERIFIED, False):
            return "a client certificate"
        if AUTHENTICATED_USER in request:
            return f"user {request[AUTHENTICATED_USER]}"
        return "anybody" if remediator.setup.config.insecure else None
    await tokens.refresh()
    given = request.headers.get("Authorization", "")
    number = tokens.token_number(_as_bearer(given) if as_password else given)
    return None if number is None else f"token {number}"


async def refuse_without_credential(
    request: web.Request, remediator: Remediator
) -> web.Response | None:
    """Returns the response to a request without a valid credential, or None."""
    return unauthorized() if await authenticate(request, remediator) is None else None


LOGIN_CHALLENGE = 'Basic realm="trainwarden: the token as password"'
LOGIN_TEXT = "Any user name; the password is a token of token_file in remediator.yml.\n"
"""The answer to a browser: it shows no realm."""


def unauthorized(challenge: str = "Bearer", text: str = "unauthorized\n") -> web.Response:
    """Returns the response to a request without a valid credential."""
    headers = {"WWW-Authenticate": challenge}
    return web.Response(status=401, text=text, headers=headers)


def _as_bearer(authorization: str) -> str:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return ""
    return f"Bearer {password.decode('utf-8', 'surrogateescape')}"


log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.Response]]


def with_memory_error_response(
    handler: Handler, log_message: str = "out of memory; request failed"
) -> Handler:
    """Wraps `handler` to respond 503 on MemoryError, and to log `log_message`."""

    async def answer(request: web.Request) -> web.Response:
        with suppress(MemoryError):
            return await handler(request)
        # Outside of the `with`, where the memory that the error referenced is free again.
        with suppress(MemoryError):
            log.error(log_message, extra={"path": request.path})
        return web.Response(status=503, text="out of memory\n")

    return answer
