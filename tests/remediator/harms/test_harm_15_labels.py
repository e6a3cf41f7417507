"""Harm 15: a label becomes a command, an option or a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery

HOSTILE = (
    "-oProxyCommand=touch {}",
    "--help",
    "$(touch {})",
    "`touch {}`",
    "; touch {}",
    "| touch {}",
    "&& touch {}",
    "rollout-0\ntouch {}",
    "rollout-0\0",
    "../../../{}",
    "{}",
    "x" * 65_536,
    "\N{RIGHT-TO-LEFT OVERRIDE}0-tuollor",
    "rollout-0 ",
    "ROLLOUT-0",
    "rollout-\N{FULLWIDTH DIGIT ZERO}",
    "%2e%2e%2f",
    "${{HOME}}",
    "'\"",
    "*",
    "",
)


@pytest.mark.parametrize("label", ["run", "worker", "remediation", "alertname", "instance"])
async def test_no_label_is_ever_more_than_a_key(box: Box, label: str, tmp_path: Path) -> None:
    worker = box.start_worker()
    proof = tmp_path / "proof"
    alerts = []
    for number, text in enumerate(HOSTILE):
        sent = box.alert()
        sent["labels"][label] = text.replace("{}", str(proof))
        # these two select nothing, and what else it says would be a good alert
        if label in ("alertname", "instance"):
            sent["labels"]["worker"] = "nobody"
        alerts.append({**sent, "fingerprint": f"{number:016x}"})
    async with running(box, engine=True) as (client, remediator):
        assert (await post(client, delivery(*alerts))).status == 200
        await come(lambda: all(one.last_decision for one in remediator.journal.open_incidents()))
        reasons = {event.facts.get("reason") for event in box.events()} - {None}
        assert reasons <= {"unknown_target", "unknown_playbook", "no_remediation"}
    assert not proof.exists()
    assert worker.poll() is None
    assert not {"intent", "stop", "start"} & set(box.journaled())
