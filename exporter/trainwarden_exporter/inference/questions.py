"""What is asked of a server and what comes back; asking itself is `asking`'s business."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Literal

SMALL = 1 << 20
"""Bytes that an answer may have unless it is a page of metrics."""

PAGE = 8 << 20
"""Bytes that a page of metrics may have; one of vLLM has 70 kB for each engine."""

SOON = 5.0
"""Seconds for what a server answers at once, or not at all."""


class Contact(StrEnum):
    """How far a question came."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Nobody listens."""
    SILENT = "silent"
    """No answer, or not all of one, in time."""
    UNREACHABLE = "unreachable"
    """The name, the route or TLS is at fault."""
    BROKEN = "broken"
    """The connection ended early, or what came was no HTTP, or too much."""


@dataclass(frozen=True, slots=True)
class Question:
    """One HTTP request. None of those built here changes anything at the server.

    `path` is below the server's URL. `patience` is in seconds; None stands
    for the server's own timeout.
    """

    name: str
    path: str
    method: Literal["GET", "POST"] = "GET"
    body: object = None
    """Sent as JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    limit: int = SMALL
    patience: float | None = SOON


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question; status and body are those of an answer alone."""

    contact: Contact
    status: int = 0
    body: bytes = b""
    seconds: float = 0.0
    detail: str = ""
    """What went wrong, for a person."""

    @property
    def answered(self) -> bool:
        return self.contact is Contact.ANSWERED

    @property
    def good(self) -> bool:
        """Whether it is an answer with a status of success."""
        return self.answered and HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def unknown_here(self) -> bool:
        """Whether the server has no such endpoint, or has it switched off."""
        return self.answered and self.status in (
            HTTPStatus.NOT_FOUND,
            HTTPStatus.METHOD_NOT_ALLOWED,
            HTTPStatus.NOT_IMPLEMENTED,
        )

    @property
    def unauthorized(self) -> bool:
        return self.answered and self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def field(self, *keys: str) -> Any:
        """The value below `keys` in a body of nested objects; None where there is none."""
        value = self.json()
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value


Answers = Mapping[str, Answer]
"""By the name of the question."""
