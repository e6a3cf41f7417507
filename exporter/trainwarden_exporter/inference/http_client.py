"""HTTP client for probes.

Each probe opens a connection of its own, so that it experiences what a new client would: an old
connection may still be served by a process that no longer listens. Redirects, compressed bodies and
proxies from the environment are not used, because a hostile server could exploit them.
"""

from __future__ import annotations

import asyncio
import errno
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from trainwarden_exporter import __version__
from trainwarden_exporter.inference.api_keys import KeySource, no_key
from trainwarden_exporter.inference.http_messages import HttpOutcome, HttpRequest, HttpResponse
from trainwarden_exporter.runtime.ca_bundle import system_context

Send = Callable[[str, HttpRequest], Awaitable[HttpResponse]]
"""Sends a request to a URL. Never raises for anything that a server does."""

_CHUNK = 1 << 16
_HEADERS = {"User-Agent": f"trainwarden-exporter/{__version__}", "Accept-Encoding": "identity"}


class _TooLargeError(Exception):
    """The response exceeds the limit of the request."""


class ProbeClient(Protocol):
    """Connects to one server."""

    def connect(self) -> AbstractAsyncContextManager[Send]:
        """Returns a connection that opens with the first request and closes with the context."""


@dataclass(frozen=True)
class HttpClient:
    """HTTP client of one server: key, TLS settings and timeout (seconds)."""

    timeout: float
    key: KeySource = no_key
    context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        """Opens a connection with the first request."""
        key = self.key()
        headers = _HEADERS if key is None else {**_HEADERS, "Authorization": key.authorization}
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
        ) as session:

            async def send(url: str, request: HttpRequest) -> HttpResponse:
                return await self._send(session, url, request)

            yield send

    async def _send(
        self, session: aiohttp.ClientSession, url: str, request: HttpRequest
    ) -> HttpResponse:
        began = time.monotonic()
        timeout = self.timeout if request.timeout is None else request.timeout
        status, body = 0, b""
        try:
            async with asyncio.timeout(timeout):
                status, body = await _exchange(session, url, request, self._tls_context(url))
        except Exception as error:  # noqa: BLE001 - _explain re-raises unknown errors
            outcome, detail = _explain(error, timeout)
        else:
            outcome, detail = HttpOutcome.ANSWERED, ""
        return HttpResponse(outcome, status, body, time.monotonic() - began, detail)

    def _tls_context(self, url: str) -> ssl.SSLContext | bool:
        """Returns the TLS context for `url`, if it uses TLS."""
        if self.context is not None or url[:6].lower() != "https:":
            return self.context or True
        return system_context()


async def _exchange(
    session: aiohttp.ClientSession, url: str, request: HttpRequest, tls: ssl.SSLContext | bool
) -> tuple[int, bytes]:
    data = None if request.body is None else json.dumps(request.body).encode()
    headers = dict(request.headers)
    if data is not None:
        headers["Content-Type"] = "application/json"
    async with session.request(
        request.method, url, data=data, headers=headers, allow_redirects=False, ssl=tls
    ) as response:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise aiohttp.ClientPayloadError("the body is compressed, which was not requested")
        chunks, size = [], 0
        async for chunk in response.content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > request.limit:
                raise _TooLargeError(f"the body is longer than {request.limit} bytes")
            chunks.append(chunk)
        return response.status, b"".join(chunks)


def _explain(error: Exception, timeout: float) -> tuple[HttpOutcome, str]:
    """Returns the outcome of a request that ended in `error`, with an explanation."""
    match error:
        case TimeoutError():
            return HttpOutcome.SILENT, f"no answer within {timeout:g} s"
        case _TooLargeError():
            return HttpOutcome.BROKEN, str(error)
        case aiohttp.ClientSSLError():
            return HttpOutcome.UNREACHABLE, f"TLS: {error}"
        case aiohttp.ClientConnectorError() if _is_refusal(error.os_error):
            return HttpOutcome.REFUSED, "connection refused"
        case aiohttp.ClientConnectorError():
            return HttpOutcome.UNREACHABLE, str(error)
        case aiohttp.ClientError() | OSError() | ValueError():
            return HttpOutcome.BROKEN, f"{type(error).__name__}: {error}"
    raise error


def _is_refusal(error: OSError) -> bool:
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    # For a name with several addresses, aiohappyeyeballs joins different errors in one sentence.
    return f"[Errno {errno.ECONNREFUSED}]" in str(error)
