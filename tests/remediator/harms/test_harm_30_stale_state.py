"""Harm 30: what is known of a process that has ended is believed of the process after it."""

from __future__ import annotations

import asyncio

from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery

from trainwarden_remediator.actions.process_count import START_TOLERANCE_SECONDS


async def test_a_healthy_process_is_spared_while_the_exporter_shows_the_one_before(
    box: Box,
) -> None:
    leaking = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        box.stale_page = box.page()
        leaking.kill()
        leaking.wait()
        await asyncio.sleep(START_TOLERANCE_SECONDS + 0.2)
        healthy = box.start_worker()
        # as many processes as before, of the same name and account
        assert (await post(client, delivery(box.alert()))).status == 200
        await come(
            lambda: (
                "that started at"
                in str([event.facts for event in remediator.journal.newest_events(9)])
            )
        )
        assert healthy.poll() is None
        assert not {"stop", "start"} & set(box.journaled())
