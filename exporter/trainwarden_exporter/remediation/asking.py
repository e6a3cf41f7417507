"""Asks the remediator how it stands, once for each status page, with little patience."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from trainwarden_exporter.inference.asking import HttpAsker
from trainwarden_exporter.inference.questions import Answer, Contact, Question
from trainwarden_exporter.remediation.config import RemediatorConfig
from trainwarden_exporter.remediation.told import Told, parse_told

PATIENCE = 2.0
"""Seconds: a person waits for the page, and one without alerts is better than none."""

_QUESTION = Question("standing", "/status.json", limit=512 << 10, patience=PATIENCE)


async def ask(config: RemediatorConfig | None) -> Told | str | None:
    """What the remediator tells, or why it does not; None where none is configured."""
    if config is None:
        return None
    try:
        context = None if config.tls is None else await asyncio.to_thread(config.tls.context)
    except (OSError, ValueError) as error:  # the file was good when the configuration was read
        return f"no certificates there: {error}"
    async with HttpAsker(PATIENCE, context=context).visit() as put:
        return read(await put(f"{config.url}{_QUESTION.path}", _QUESTION))


def read(answer: Answer) -> Told | str:
    """What an answer tells, or why it tells nothing."""
    if answer.contact is not Contact.ANSWERED:
        return answer.detail
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return "it asks who is there, and this page has no password for it"
    if answer.status != HTTPStatus.OK:
        return f"it answered with status {answer.status}"
    try:
        return parse_told(answer.body)
    except ValueError as error:
        return str(error)
