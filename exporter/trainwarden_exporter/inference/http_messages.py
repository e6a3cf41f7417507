"""Requests to servers and their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Literal

MAX_BODY_BYTES = 1 << 20
"""Maximum size of a response in bytes, unless it is a page of metrics."""

MAX_PAGE_BYTES = 8 << 20
"""Maximum size of a page of metrics in bytes; vLLM has 70 kB per engine."""

SHORT_TIMEOUT = 5.0
"""Timeout in seconds for endpoints that answer immediately or not at all."""


class HttpOutcome(StrEnum):
    """Outcome of a request."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Connection refused."""
    SILENT = "silent"
    """No complete response in time."""
    UNREACHABLE = "unreachable"
    """Name resolution, routing or TLS failed."""
    BROKEN = "broken"
    """The connection ended early, or the response was too large or not HTTP."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request; none changes the state of the server.

    `path` is relative to the server's URL. `timeout` is in seconds; None stands for the server's
    configured timeout.
    """

    name: str
    path: str
    method: Literal["GET", "POST"] = "GET"
    body: object = None
    """JSON body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: int = MAX_BODY_BYTES
    timeout: float | None = SHORT_TIMEOUT


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Response to a request; status and body are valid only for an answer."""

    outcome: HttpOutcome
    status: int = 0
    body: bytes = b""
    seconds: float = 0.0
    detail: str = ""
    """Description of the failure."""

    @property
    def answered(self) -> bool:
        return self.outcome is HttpOutcome.ANSWERED

    @property
    def succeeded(self) -> bool:
        """Whether it is a response with a 2xx status."""
        return self.answered and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_unknown_endpoint(self) -> bool:
        """Whether the server lacks the endpoint, or has it disabled."""
        return self.answered and self.status in (
            HTTPStatus.NOT_FOUND,
            HTTPStatus.METHOD_NOT_ALLOWED,
            HTTPStatus.NOT_IMPLEMENTED,
        )

    @property
    def unauthorized(self) -> bool:
        return self.answered and self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    def json(self) -> Any:
        """Returns the body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def field(self, *keys: str) -> Any:
        """Returns the value below `keys` in a body of nested objects; None if missing."""
        value = self.json()
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value


HttpResponses = Mapping[str, HttpResponse]
"""By the name of the request."""
