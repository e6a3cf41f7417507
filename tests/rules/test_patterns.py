"""Every known line is classified: reported one by one, or only in numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS

Alerts = list[dict[str, Any]]

IN_NUMBERS = {
    *("connection_refused", "connection_lost", "exception", "not_writable"),
    *("queue_full", "cancelled", "empty_batch", "episode_failed", "stale_sample", "starved"),
    *("staleness_violated", "memory_retried", "engine_recovered", "trial_failed", "failure"),
    *("lock_held", "child_ended"),
}
"""Trouble only when it comes in numbers: TrainingErrorStorm."""
GOT_OVER = {
    *("gpu_busy", "oom_thrown", "disk_full", "disk_error", "checkpoint_failed", "rollout_timeout"),
    *("no_checkpoint", "no_resume_data", "data_at_an_end", "method_failed"),
    *("errored", "trial_errored", "environment_missing"),
}
"""Reported singly, and yet no reason for a silence that follows: a run gets over it, or its process
ends, which another alert reports."""
AGAIN_AND_AGAIN = {"connection_refused", "connection_lost"}
"""Such a reason only in numbers: who gets over it writes it as well."""
OWN = "fatal_.*"
"""Patterns that a user names so."""


def known_troubles() -> set[str]:
    lines = (*COMMON_ERROR_PATTERNS, *(line for layout in FRAMEWORKS for line in layout.lines))
    return {line.name for line in lines if line.error}


def reported_singly(alerts: Alerts) -> set[str]:
    (rule,) = (alert for alert in alerts if alert["alert"] == "TrainingTroubleLine")
    (pattern,) = re.findall(r'pattern=~"([^"]+)"', rule["expr"])
    return set(pattern.split("|"))


def reasons_for_a_silence(recordings: Alerts) -> list[str]:
    """The patterns in the records of trouble: of what is a reason once, then those in numbers."""
    record = "run:trainwarden_trouble_timestamp_seconds:"
    exprs = [
        one["expr"]
        for one in recordings
        if one["record"] in (f"{record}beside_servers", f"{record}servers")
    ]
    own, servers, *in_numbers = re.findall(r'_log_\w+\{pattern=~"([^"]+)"', " ".join(exprs))
    return [f"{own}|{servers}", *in_numbers]


def test_every_line_of_trouble_is_reported_singly_or_in_numbers(alerts: Alerts) -> None:
    singly = reported_singly(alerts) - {OWN}
    assert singly.isdisjoint(IN_NUMBERS)
    assert singly | IN_NUMBERS == known_troubles()


def test_every_line_that_a_mute_names_is_reported_singly(project: Path, alerts: Alerts) -> None:
    config = yaml.safe_load((project / "rules" / "alertmanager.yml").read_text())
    named = {
        name
        for rule in config["inhibit_rules"]
        for matcher in rule["target_matchers"]
        if (found := re.fullmatch(r'pattern=~?"(.*)"', matcher)) is not None
        for name in found[1].split("|")
    }
    assert named
    assert named <= reported_singly(alerts)


def test_the_runbook_explains_every_line_that_is_reported_singly(
    project: Path, alerts: Alerts
) -> None:
    page = (project / "docs" / "runbooks" / "TrainingTroubleLine.md").read_text()
    for name in reported_singly(alerts) - {OWN}:
        assert f"`{name}`" in page, name


def test_for_each_line_that_is_reported_singly_it_is_decided_whether_a_run_hangs_of_it(
    recordings: Alerts, alerts: Alerts
) -> None:
    """A new or renamed pattern of a layout must be put on either side."""
    one_is_enough, *in_numbers = reasons_for_a_silence(recordings)
    once = set(one_is_enough.split("|")) - {OWN}
    assert once.isdisjoint(GOT_OVER)
    assert once | GOT_OVER == known_troubles() - IN_NUMBERS == reported_singly(alerts) - {OWN}
    for pattern in in_numbers:
        meant = {name for name in known_troubles() if re.fullmatch(pattern, name)}
        assert meant == AGAIN_AND_AGAIN, pattern
    assert len(in_numbers) == 2
