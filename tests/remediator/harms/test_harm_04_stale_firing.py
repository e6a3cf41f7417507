"""Harm 4: an alert is delivered late, when it is long over."""

from __future__ import annotations

import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, delivery

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal


async def test_one_refused_while_it_fired_and_sent_again_when_it_is_over_is_not_acted_upon(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alertmanager repeats what it was refused as it stood then (webhook/webhook.go)."""
    worker = box.start_worker()

    def full(*_: object, **__: object) -> None:
        raise JournalError("disk full")

    async with running(box, engine=True) as (client, remediator):
        body = delivery(box.alert())
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "record_alerts", full)
            assert (await post(client, body)).status == 503
        box.known = {}
        assert (await post(client, body)).status == 200
        await come(lambda: "not_active" in str(remediator.journal.counters().get("decisions")))
        # it goes on leaking, and only the alert is over: that is reason enough to leave it alone
        box.known = {FINGERPRINT: "suppressed"}
        remediator.control_loop.wake()
        await come(lambda: all(one.last_decision for one in remediator.journal.open_incidents()))
    assert worker.poll() is None
    assert "intent" not in box.journaled()
