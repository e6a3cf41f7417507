"""What the remediator shows of its own guards."""

from __future__ import annotations

from tests.remediator.api.test_webhook import post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery, make_alert

from trainwarden_remediator.journal.database import offline_transaction
from trainwarden_remediator.journal.transitions import reset_breaker
from trainwarden_remediator.model import Decision, Verdict


async def test_the_page_shows_how_its_guards_stand(box: Box) -> None:
    async with running(box) as (client, remediator):
        before = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_open 0.0\n" in before
        assert "trainwarden_remediator_breaker_limit_actions 6.0\n" in before
        assert "trainwarden_remediator_blocked_since_timestamp_seconds{" not in before
        assert (await post(client, delivery(box.alert()))).status == 200
        journal = remediator.journal
        (incident,) = journal.open_incidents()
        journal.record_decisions(
            [(incident, Decision(Verdict.WAIT, "breaker_open", detail="6 actions"))]
        )
        after = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_open 1.0\n" in after
        assert 'blocked_since_timestamp_seconds{reason="breaker_open"} ' in after
        page = await (await client.get("/")).text()
        assert "circuit breaker open until an operator runs `resume`" in page
        with offline_transaction(box.folder / "state/journal.db") as db:
            assert reset_breaker(db, incident.starts_at)
        assert "breaker_open 0.0\n" in await (await client.get("/metrics")).text()


async def test_actions_are_counted_as_the_breaker_counts_them(box: Box) -> None:
    async with running(box) as (client, remediator):
        remediator.journal.record_alerts([make_alert()])
        (incident,) = remediator.journal.open_incidents()
        key = remediator.setup.config.targets[0].key
        for kind in ("restart", "restart", "gpu_cleanup"):
            remediator.journal.record_intent(incident.id, key, kind, ())
        page = await (await client.get("/metrics")).text()
        assert "trainwarden_remediator_breaker_actions 2.0\n" in page


async def test_a_remediator_without_targets_blocks_no_alert(box: Box) -> None:
    for targets, shown in (([], False), (None, True)):
        box.configure(**({} if targets is None else {"targets": targets}))
        async with running(box) as (client, remediator):
            remediator.journal.record_alerts([make_alert(worker="rollout-7")])
            (incident, *_) = remediator.journal.open_incidents()
            remediator.journal.record_decisions(
                [(incident, Decision(Verdict.REFUSE, "unknown_target"))]
            )
            page = await (await client.get("/metrics")).text()
            assert ('blocked_since_timestamp_seconds{reason="unknown_target"}' in page) is shown
