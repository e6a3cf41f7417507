"""Harm 8: what is empty or missing selects everything."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.config.schema import load_setup

LABELS = ("run", "worker", "remediation")
EMPTY = ("", " ", "*", ".*", None)


async def test_no_alert_with_an_empty_or_missing_label_selects_anything(box: Box) -> None:
    worker = box.start_worker()
    alerts: list[dict[str, Any]] = []
    for texts in itertools.product(("as it is", *EMPTY), repeat=len(LABELS)):
        sent = box.alert()
        for label, text in zip(LABELS, texts, strict=True):
            if text is None:
                del sent["labels"][label]
            elif text != "as it is":
                sent["labels"][label] = text
        if set(texts) != {"as it is"}:
            alerts.append({**sent, "fingerprint": f"{len(alerts):016x}"})
    box.known = {alert["fingerprint"]: "active" for alert in alerts}
    async with running(box, engine=True) as (client, remediator):
        assert (await post(client, delivery(*alerts))).status == 200
        await come(lambda: all(one.last_decision for one in remediator.journal.open_incidents()))
        assert remediator.journal.past_actions(0) == ()
    assert worker.poll() is None
    assert not {"intent", "stop", "start"} & set(box.journaled())


@pytest.mark.parametrize("match", [{}, None, {"command": ""}, {"command": None}, ""], ids=str)
def test_a_worker_without_a_selector_is_refused(box: Box, match: Any) -> None:
    file: Path = box.folder / "exporter.yml"
    content = yaml.safe_load(file.read_text())
    content["runs"][0]["workers"][0]["match"] = match
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError):
        load_setup(box.config_file)


@pytest.mark.parametrize("spoilt", [{"worker": ""}, {"run": ""}, {"worker": "nobody"}], ids=str)
def test_a_target_that_names_nobody_is_refused(box: Box, spoilt: dict[str, str]) -> None:
    process = {"start": box.command}
    box.configure(targets=[{"run": "demo", "worker": "rollout-0", "process": process, **spoilt}])
    with pytest.raises(ConfigError):
        load_setup(box.config_file)
