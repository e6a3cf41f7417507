"""Harm 14: somebody forges the webhook, or plays an old one again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, TOKEN, delivery

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.app import Remediator

FORGED = ("", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}")


async def test_without_the_token_it_is_rejected_and_with_it_the_alert_must_fire(
    box: Box,
) -> None:
    worker = box.start_worker()
    async with running(box, engine=True) as (client, remediator):
        old = delivery(box.alert())
        for credential in FORGED:
            headers = {"Authorization": credential}
            assert (await post(client, old, headers)).status == 401
        assert (await post(client, old, {})).status == 401
        assert remediator.journal.open_incidents() == ()
        # a caller with the token can send any alert; Alertmanager does not have this one
        box.known = {}
        assert (await post(client, old)).status == 200
        await come(lambda: "not_active" in str(remediator.journal.counters().get("decisions")))
        # nor does an alert that it has excuse another
        box.known = {FINGERPRINT[::-1]: "active"}
        for _ in range(20):
            assert (await post(client, old)).status == 200
        await come(lambda: all(one.last_decision for one in remediator.journal.open_incidents()))
    assert worker.poll() is None
    assert "intent" not in box.journaled()


@pytest.mark.parametrize("content", ["", "\n", "short\n", None])
def test_a_file_without_a_token_lets_nothing_start(box: Box, content: Any) -> None:
    if content is None:
        box.token_file.unlink()
    else:
        box.token_file.write_text(content)
    with pytest.raises(ConfigError):
        Remediator(box.config_file)


def test_nor_does_a_configuration_without_any(box: Box) -> None:
    box.configure(token_file=None)
    with pytest.raises(ConfigError, match="insecure: true"):
        Remediator(box.config_file)
