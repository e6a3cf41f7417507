"""Asks servers over HTTP: one connection for each visit, and nothing that a hostile one could use.

A visit opens a connection of its own, so that it meets what a new client would meet: a connection
kept from before would be served still by a process that no longer listens. Redirects are not
followed, compressed bodies not unpacked, proxies of the environment not used; time and size are
limited.
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
from trainwarden_exporter.authorities import system_context
from trainwarden_exporter.inference.keys import Keyring, no_key
from trainwarden_exporter.inference.questions import Answer, Contact, Question

Ask = Callable[[str, Question], Awaitable[Answer]]
"""Asks a question at a URL. Never raises for anything that a server does."""

_CHUNK = 1 << 16
_HEADERS = {
    "User-Agent": f"trainwarden-exporter/{__version__}",
    "Accept-Encoding": "identity",
}


class _TooLargeError(Exception):
    """More came than the question allows for."""


class Asker(Protocol):
    """Who asks one server."""

    def visit(self) -> AbstractAsyncContextManager[Ask]:
        """A connection, opened by the first question and closed with the context."""


@dataclass(frozen=True)
class HttpAsker:
    """How one server is asked: its key, how its certificate is checked, and its patience (s)."""

    timeout: float
    key: Keyring = no_key
    context: ssl.SSLContext | None = None
    clock: Callable[[], float] = time.monotonic

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[Ask]:
        """Open a connection with the first question."""
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

            async def ask(url: str, question: Question) -> Answer:
                return await self._ask(session, url, question)

            yield ask

    async def _ask(self, session: aiohttp.ClientSession, url: str, question: Question) -> Answer:
        began = self.clock()
        patience = self.timeout if question.patience is None else question.patience
        status, body = 0, b""
        try:
            async with asyncio.timeout(patience):
                status, body = await _exchange(session, url, question, self._secured(url))
        except Exception as error:  # noqa: BLE001 - what it means is told apart there
            contact, detail = _explain(error, patience)
        else:
            contact, detail = Contact.ANSWERED, ""
        return Answer(contact, status, body, self.clock() - began, detail)

    def _secured(self, url: str) -> ssl.SSLContext | bool:
        """What the server at `url` is checked with, where TLS is spoken."""
        if self.context is not None or url[:6].lower() != "https:":
            return self.context or True
        return system_context()


async def _exchange(
    session: aiohttp.ClientSession, url: str, question: Question, secured: ssl.SSLContext | bool
) -> tuple[int, bytes]:
    data = None if question.body is None else json.dumps(question.body).encode()
    headers = dict(question.headers)
    if data is not None:
        headers["Content-Type"] = "application/json"
    async with session.request(
        question.method, url, data=data, headers=headers, allow_redirects=False, ssl=secured
    ) as response:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise aiohttp.ClientPayloadError(
                "the body is compressed, though that was not asked for"
            )
        chunks, size = [], 0
        async for chunk in response.content.iter_chunked(_CHUNK):
            size += len(chunk)
            if size > question.limit:
                raise _TooLargeError(f"the body is longer than {question.limit} bytes")
            chunks.append(chunk)
        return response.status, b"".join(chunks)


def _explain(error: Exception, patience: float) -> tuple[Contact, str]:
    """How far a question came that ended in `error`, and why, for a person."""
    match error:
        case TimeoutError():
            return Contact.SILENT, f"no answer within {patience:g} s"
        case _TooLargeError():
            return Contact.BROKEN, str(error)
        case aiohttp.ClientSSLError():
            return Contact.UNREACHABLE, f"TLS: {error}"
        case aiohttp.ClientConnectorError() if _is_refusal(error.os_error):
            return Contact.REFUSED, "connection refused"
        case aiohttp.ClientConnectorError():
            return Contact.UNREACHABLE, str(error)
        case aiohttp.ClientError() | OSError() | ValueError():
            return Contact.BROKEN, f"{type(error).__name__}: {error}"
    raise error


def _is_refusal(error: OSError) -> bool:
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    # Of a name with several addresses, aiohappyeyeballs puts errors that differ into one sentence.
    return f"[Errno {errno.ECONNREFUSED}]" in str(error)
