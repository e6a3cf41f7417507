"""Whatever is posted: answered, never 5xx, never acted upon. The long version is in tests/heavy."""

from __future__ import annotations

import random

from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.odd_payloads import odd_payload

PAYLOADS = 1_500


async def test_nothing_that_is_posted_breaks_it_or_makes_it_act(box: Box) -> None:
    worker = box.start_worker()
    chance = random.Random(26)  # noqa: S311 - the same payloads each time
    async with running(box, engine=True) as (client, remediator):
        answers: dict[int, int] = {}
        for _ in range(PAYLOADS):
            status = (await post(client, odd_payload(chance))).status
            answers[status] = answers.get(status, 0) + 1
        assert set(answers) == {200, 400}, answers
        await come(lambda: all(one.last_decision for one in remediator.journal.open_incidents()))
        assert remediator.journal.past_actions(0) == ()
        for page in ("/", "/metrics"):
            assert (await client.get(page)).status == 200
    assert worker.poll() is None
