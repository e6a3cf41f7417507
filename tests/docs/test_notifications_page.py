"""What docs/notifications.md and docs/actions.md show can be written so."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
import yaml

from trainwarden_remediator.config import Config
from trainwarden_remediator.notifying.forms import request
from trainwarden_remediator.notifying.messages import TITLES, Notice, message
from trainwarden_remediator.notifying.models import URGENT, Occasion
from trainwarden_remediator.records import Event

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "notifications.md").read_text(encoding="utf-8")
ACTIONS = (DOCS / "actions.md").read_text(encoding="utf-8")
OWN = ("A pod of Kubernetes", "A job of Slurm", "A command of yours")


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_configuration_on_the_page_is_accepted(block: str) -> None:
    Config.model_validate({"insecure": True, **yaml.safe_load(block)})


@pytest.mark.parametrize("title", OWN)
def test_the_target_of_a_means_is_accepted(title: str) -> None:
    section = ACTIONS.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"((?:^    .*\n)*^    targets:\n(?:^    .*\n)+)", section, re.MULTILINE)
    (target,) = Config.model_validate(
        {"insecure": True, **yaml.safe_load(textwrap.dedent(block))}
    ).targets
    assert target.means.told


def test_every_occasion_is_on_the_page_and_those_that_press_come_first() -> None:
    table = PAGE.split("| `about` | when |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert set(named) == set(TITLES)
    assert tuple(named[: len(URGENT)]) == URGENT


def test_a_program_of_ones_own_gets_what_the_page_says() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    shown = json.loads(block)
    told: Occasion = "gave_up"
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
    notice = Notice(1, "log", told, event, tried)
    sent = json.loads(request("json", message([notice], box="node-3", mode="act")).body)
    del sent["items"][0]["what"], shown["items"][0]["what"]
    assert sent == shown
