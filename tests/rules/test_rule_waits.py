"""How long an alert waits, and outlasts, is explained in the comment above it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

Alerts = list[dict[str, Any]]


def seconds(text: str) -> float:
    return float(promql.parse_duration(text).total_seconds())


def blocks(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Every alert of a file, with the comment right above it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("      - alert: "):
            above = []
            for before in reversed(lines[:number]):
                if not before.startswith("      #"):
                    break
                above.append(before.strip(" #"))
            end = number + 1
            while end < len(lines) and (lines[end].startswith("        ") or not lines[end]):
                end += 1
            (rule,) = yaml.safe_load("\n".join(lines[number:end]))
            yield rule, " ".join(reversed(above))


def written(project: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for file in sorted((project / "rules" / "alerts").glob("*.yml")):
        yield from blocks(file.read_text())


def test_every_wait_is_explained_above_it(project: Path, alerts: Alerts) -> None:
    found = 0
    for rule, comment in written(project):
        found += 1
        if "for" in rule:
            assert f"`for: {rule['for']}`" in comment, rule["alert"]
        if rule.get("keep_firing_for", "15s") != "15s":  # workers.yml explains 15 s
            assert re.search(r"[Kk]ept firing for", comment), rule["alert"]
    assert found == len(alerts)


@pytest.mark.parametrize("key", ["for", "keep_firing_for"])
def test_a_wait_is_some_wait(key: str, alerts: Alerts) -> None:
    for alert in alerts:
        assert seconds(alert.get(key, "1s")) > 0, alert["alert"]
