"""Lets a person try whether a message arrives, without waiting for a night."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from trainwarden_remediator.exceptions import NotDeliveredError
from trainwarden_remediator.notifying.forms import request
from trainwarden_remediator.notifying.messages import trial
from trainwarden_remediator.notifying.models import Notify, Receiver
from trainwarden_remediator.notifying.notifier import box_name
from trainwarden_remediator.notifying.posting import HttpPost


async def try_receivers(notify: Notify, receivers: Sequence[Receiver]) -> list[tuple[str, str]]:
    """Send a message to each; returns their names, and why it was not delivered, or nothing."""
    told = trial(box=box_name(notify))
    results = []
    async with aiohttp.ClientSession() as session:
        post = HttpPost(session)
        for receiver in receivers:
            try:
                await post(receiver, request(receiver.kind, told))
            except NotDeliveredError as error:
                results.append((receiver.name, str(error)))
            else:
                results.append((receiver.name, ""))
    return results
