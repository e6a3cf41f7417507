"""What the remediator shows of its own guards."""

from __future__ import annotations

from tests.remediator.conftest import Box, delivery, make_alert
from tests.remediator.test_webhook import post, running

from trainwarden_remediator.decision import Decision, Verdict


async def test_the_page_shows_how_its_guards_stand(box: Box) -> None:
    async with running(box) as (client, remediator):
        before = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_open 0.0\n" in before
        assert "trainwarden_remediator_breaker_limit_actions 6.0\n" in before
        assert "trainwarden_remediator_blocked_since_timestamp_seconds{" not in before
        assert (await post(client, delivery(box.alert()))).status == 200
        journal = remediator.journal
        (incident,) = journal.open_incidents()
        journal.decided(incident, Decision(Verdict.WAIT, "breaker_open", detail="6 actions"))
        after = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_open 1.0\n" in after
        assert 'blocked_since_timestamp_seconds{reason="breaker_open"} ' in after
        page = await (await client.get("/")).text()
        assert "the breaker is open, nothing is done until" in page
        assert journal.reopen()
        assert "breaker_open 0.0\n" in await (await client.get("/metrics")).text()


async def test_actions_are_counted_as_the_breaker_counts_them(box: Box) -> None:
    async with running(box) as (client, remediator):
        remediator.journal.hear([make_alert()])
        (incident,) = remediator.journal.open_incidents()
        key = remediator.setup.config.targets[0].key
        for kind in ("restart", "restart", "gpu_cleanup"):
            remediator.journal.intend(incident.id, key, kind, ())
        page = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_actions 2.0\n" in page
