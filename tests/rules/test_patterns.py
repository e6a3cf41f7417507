"""Which lines are told one by one, and which only in numbers, is decided for all that are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from trainwarden_exporter.layouts import LAYOUTS
from trainwarden_exporter.layouts.troubles import SHARED

Alerts = list[dict[str, Any]]

IN_NUMBERS = {
    *("connection_refused", "connection_lost", "exception", "not_writable"),
    *("queue_full", "cancelled", "empty_batch", "episode_failed", "stale_sample", "starved"),
    *("staleness_violated", "memory_retried", "engine_recovered", "trial_failed", "failure"),
    "lock_held",
}
"""Trouble only when it comes in numbers: TrainingErrorStorm."""
OWN = "fatal_.*"
"""Patterns that a user names so."""


def known_troubles() -> set[str]:
    lines = (*SHARED, *(line for layout in LAYOUTS for line in layout.lines))
    return {line.name for line in lines if line.trouble}


def told_singly(alerts: Alerts) -> set[str]:
    (rule,) = (alert for alert in alerts if alert["alert"] == "TrainingTroubleLine")
    (pattern,) = re.findall(r'pattern=~"([^"]+)"', rule["expr"])
    return set(pattern.split("|"))


def test_every_line_of_trouble_is_told_singly_or_in_numbers(alerts: Alerts) -> None:
    singly = told_singly(alerts) - {OWN}
    assert singly.isdisjoint(IN_NUMBERS)
    assert singly | IN_NUMBERS == known_troubles()


def test_every_line_that_a_mute_names_is_told_singly(project: Path, alerts: Alerts) -> None:
    config = yaml.safe_load((project / "rules" / "alertmanager.yml").read_text())
    named = {
        name
        for rule in config["inhibit_rules"]
        for matcher in rule["target_matchers"]
        if (found := re.fullmatch(r'pattern=~?"(.*)"', matcher)) is not None
        for name in found[1].split("|")
    }
    assert named
    assert named <= told_singly(alerts)


def test_the_runbook_explains_every_line_that_is_told_singly(project: Path, alerts: Alerts) -> None:
    page = (project / "docs" / "runbooks" / "TrainingTroubleLine.md").read_text()
    for name in told_singly(alerts) - {OWN}:
        assert f"`{name}`" in page, name
