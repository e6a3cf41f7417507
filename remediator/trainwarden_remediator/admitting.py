"""Who may send webhooks, read reports, and hold or resume: whoever has a token of the file."""

from __future__ import annotations

import base64
import binascii

from aiohttp import web

from trainwarden_exporter.serving.admission import CERTIFIED
from trainwarden_remediator.app import Remediator


async def admitted(
    request: web.Request, remediator: Remediator, *, as_password: bool = False
) -> str | None:
    """By what it is let in, in words; None where it is not.

    Without a file of tokens that takes a client certificate, or `insecure: true`. `as_password`: a
    token is taken as the password of a browser's login, too, whatever the user.
    """
    tokens = remediator.tokens
    if tokens is None:
        if request.get(CERTIFIED, False):
            return "a client certificate"
        return "anybody" if remediator.setup.config.insecure else None
    await tokens.refresh()
    given = request.headers.get("Authorization", "")
    number = tokens.number_of(_as_bearer(given) if as_password else given)
    return None if number is None else f"token {number}"


def _as_bearer(authorization: str) -> str:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, _, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return ""
    return f"Bearer {password.decode('utf-8', 'surrogateescape')}"
