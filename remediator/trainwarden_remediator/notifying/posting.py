"""Posts messages, and tells of what went wrong without giving an address or an answer away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

import aiohttp

from trainwarden_remediator.exceptions import NotDeliveredError, SecretError
from trainwarden_remediator.notifying.forms import Request
from trainwarden_remediator.notifying.models import Receiver, check_url
from trainwarden_remediator.secretfile import read_secret

POST_SECONDS = 10.0
"""How long a receiver may take to answer."""

_REFUSALS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""The receiver was reached, and does not like this message."""


LONGEST_PAUSE = 3600.0
"""Seconds; a receiver that wants to be left alone for longer is tried again all the same."""

_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


class Post(Protocol):
    """Whoever can deliver a message; a test may do so in the network's place."""

    async def __call__(self, receiver: Receiver, request: Request) -> None:
        """Deliver it. Raises NotDeliveredError."""


class HttpPost:
    """Over HTTP; follows no redirect, for it would carry the message elsewhere."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, receiver: Receiver, request: Request) -> None:
        try:
            async with asyncio.timeout(POST_SECONDS):
                address, headers = await asyncio.to_thread(_secrets, receiver)
                async with self._session.post(
                    address,
                    data=request.body,
                    headers={**request.headers, **headers},
                    allow_redirects=False,
                ) as answer:
                    status = answer.status
                    after = answer.headers.get("Retry-After", "")
        except TimeoutError:
            raise NotDeliveredError(f"no answer within {POST_SECONDS:g} s") from None
        except SecretError as error:
            raise NotDeliveredError(str(error)) from None
        # Not what aiohttp says of it: there the address may stand.
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotDeliveredError(f"cannot be reached ({type(error).__name__})") from None
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise NotDeliveredError(
                f"answered {status}", refused=status in _REFUSALS, after=parse_wait(after)
            )


def parse_wait(text: str) -> float:
    """Seconds in a header `Retry-After`; 0 where it names none (or a date, as none of them do)."""
    return min(float(text), LONGEST_PAUSE) if _SECONDS.fullmatch(text) else 0.0


def _secrets(receiver: Receiver) -> tuple[str, Mapping[str, str]]:
    """Where to post, and the headers that let one in; blocks. Raises SecretError."""
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
    """Why the receiver's files are of no use, or nothing; blocks."""
    try:
        _secrets(receiver)
    except SecretError as error:
        return str(error)
    return ""
