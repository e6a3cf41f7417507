"""Posts messages; errors never contain the URL or the response."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus

import aiohttp

from trainwarden_remediator.config.notifications import Receiver, check_url
from trainwarden_remediator.credentials.outgoing import read_secret, run_once
from trainwarden_remediator.exceptions import NotDeliveredError, SecretError
from trainwarden_remediator.notify.formats import PostRequest

POST_TIMEOUT_SECONDS = 10.0
"""Timeout of a request to a receiver."""

_REJECTED_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""Statuses by which a receiver rejects the content of a message."""

MAX_RETRY_AFTER_SECONDS = 3600.0
"""The maximum delay that a receiver can request."""

_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_ERRNO = re.compile(r"\[Errno (\d{1,3})\]", re.ASCII)

Sender = Callable[[Receiver, PostRequest], Awaitable[None]]
"""Delivers a message. Raises NotDeliveredError."""


class HttpSender:
    """Delivers messages over HTTP. Follows no redirects: they would send the message elsewhere."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, receiver: Receiver, request: PostRequest) -> None:
        try:
            async with asyncio.timeout(POST_TIMEOUT_SECONDS):
                address, headers = await run_once(receiver, partial(_address_and_headers, receiver))
                async with self._session.post(
                    address,
                    data=request.body,
                    headers={**request.headers, **headers},
                    allow_redirects=False,
                ) as answer:
                    status = answer.status
                    retry_after = answer.headers.get("Retry-After", "")
        except TimeoutError:
            raise NotDeliveredError(f"no response within {POST_TIMEOUT_SECONDS:g} s") from None
        except SecretError as error:
            raise NotDeliveredError(str(error)) from None
        # Without aiohttp's message, which may contain the URL.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotDeliveredError(f"unreachable: {_in_words(error)}") from None
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise NotDeliveredError(
                f"responded with status {status}",
                rejected=status in _REJECTED_STATUSES,
                retry_after=parse_retry_after(retry_after),
            )


def _in_words(error: Exception) -> str:
    """Returns why a receiver is not reached, without the text of a library, which may have the URL.

    Of a name with several addresses, aiohappyeyeballs joins different errors in one sentence.
    """
    match error:
        case aiohttp.ClientSSLError():
            return "its TLS certificate or version is not accepted"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without a response"
        case aiohttp.ClientConnectorDNSError():
            return "its name is not found"
        case aiohttp.ClientOSError():
            cause = getattr(error, "os_error", error)
            numbers = [cause.errno or 0, *map(int, _ERRNO.findall(str(cause)))]
            words = dict.fromkeys(os.strerror(one).lower() for one in numbers if one > 0)
            return ", ".join(words) or "no connection"
    return type(error).__name__


def parse_retry_after(text: str) -> float:
    """Parses the seconds in a `Retry-After` header; 0 without a number (dates are not used)."""
    return min(float(text), MAX_RETRY_AFTER_SECONDS) if _SECONDS.fullmatch(text) else 0.0


def _address_and_headers(receiver: Receiver) -> tuple[str, Mapping[str, str]]:
    """Returns the URL and the authentication headers; blocks. Raises SecretError."""
    if receiver.url_file is not None:
        try:
            address = check_url(read_secret(receiver.url_file))
        except ValueError as error:
            raise SecretError(f"{receiver.url_file}: {error}") from None
    else:
        address = receiver.url.get_secret_value() if receiver.url is not None else ""
    if receiver.token_file is None:
        return address, {}
    return address, {"Authorization": f"Bearer {read_secret(receiver.token_file)}"}


def secret_problem(receiver: Receiver) -> str:
    """Returns why the receiver's secret files are not usable, or ""; blocks."""
    try:
        _address_and_headers(receiver)
    except SecretError as error:
        return str(error)
    return ""
