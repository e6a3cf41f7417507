"""The configurations of docs/notifications.md and docs/actions.md are accepted."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

from trainwarden_remediator.config.notifications import URGENT, NotificationEvent
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.journal.evidence_text import FaultFacts
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.notify.formats import build_request
from trainwarden_remediator.notify.messages import TITLES, Notification, build_message

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "notifications.md").read_text(encoding="utf-8")
ACTIONS = (DOCS / "actions.md").read_text(encoding="utf-8")
OWN = ("A Kubernetes pod", "A Slurm job", "A custom command")


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_configuration_on_the_page_is_accepted(block: str) -> None:
    Config.model_validate({"insecure": True, **yaml.safe_load(block)})


@pytest.mark.parametrize("title", OWN)
def test_the_target_of_a_restart_method_is_accepted(title: str) -> None:
    section = ACTIONS.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"((?:^    .*\n)*^    targets:\n(?:^    .*\n)+)", section, re.MULTILINE)
    (target,) = Config.model_validate(
        {"insecure": True, **yaml.safe_load(textwrap.dedent(block))}
    ).targets
    assert target.restart_method.summary


def test_every_event_is_on_the_page_and_the_urgent_come_first() -> None:
    table = PAGE.split("| `events` | when |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert set(named) == set(TITLES)
    assert tuple(named[: len(URGENT)]) == URGENT


def test_a_program_of_ones_own_gets_what_the_page_says() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    shown = json.loads(block)
    kind: NotificationEvent = "gave_up"
    event = Event(
        id=1,
        at=1_800_000_000.0,
        incident=3,
        action=None,
        kind="decision",
        alert="TrainingWorkerGone",
        run="grpo",
        worker="rollout-0",
        facts={"verdict": "refuse", "reason": "ladder_exhausted"},
    )
    tried = (("restart", "not_healed"),) * 3
    fault = FaultFacts(
        cause="grpo/rollout-0 ended with exit status 1",
        error="ValueError: no such dataset",
        log="/runs/grpo/rollout-0.log",
    )
    notification = Notification(1, "log", kind, event, tried, fault=fault)
    sent = json.loads(
        build_request("json", build_message([notification], instance="node-3", mode="act")).body
    )
    del sent["items"][0]["what"], shown["items"][0]["what"]
    assert sent == shown
