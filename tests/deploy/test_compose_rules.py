"""What Prometheus reads under compose: the shipped rules, with the changes of an operator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from overriding import read_overrides
from ruleset import RULES, read_shipped
from stack import PROJECT

COMPOSE = PROJECT / "deploy" / "compose"


def prepare(changes: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """As the container does it."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, COMPOSE / "prepare_rules.py", changes, folder],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "deploy")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_changes_they_are_as_shipped(tmp_path: Path) -> None:
    for changes in (COMPOSE / "config" / "overrides.yml", tmp_path / "none.yml"):
        folder = tmp_path / changes.stem
        assert prepare(changes, folder).returncode == 0
        assert read_shipped(folder) == read_shipped()
        text = (folder / "prometheus.yml").read_text(encoding="utf-8")
        assert text == (RULES / "prometheus.yml").read_text(encoding="utf-8")


def test_what_an_operator_changes_is_changed_and_changed_back(tmp_path: Path) -> None:
    changes, folder = tmp_path / "overrides.yml", tmp_path / "rules"
    changes.write_text("alerts: [{alert: TrainingGpuIdle, enabled: false}]\n")
    assert prepare(changes, folder).returncode == 0
    left = [
        rule.get("alert")
        for groups in read_shipped(folder).values()
        for group in groups
        for rule in group["rules"]
    ]
    assert "TrainingErrorStorm" in left
    assert "TrainingGpuIdle" not in left
    changes.unlink()
    assert prepare(changes, folder).returncode == 0
    assert read_shipped(folder) == read_shipped()


def test_a_file_that_is_wrong_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    changes, folder = tmp_path / "overrides.yml", tmp_path / "rules"
    changes.write_text("alerts:\n  - {alert: TrainingNothing, enabled: false}\n")
    result = prepare(changes, folder)
    assert result.returncode == 1
    assert "overrides.yml:2: alerts[0].alert: no shipped alert" in result.stderr
    assert not any(folder.iterdir())


def test_the_examples_in_its_comments_are_good(tmp_path: Path) -> None:
    text = (COMPOSE / "config" / "overrides.yml").read_text(encoding="utf-8")
    examples = text.partition("alerts: []\n")[2].replace("#", "")
    file = tmp_path / "overrides.yml"
    file.write_text(f"alerts:\n{examples}")
    assert len(read_overrides(file).alerts) == 2


def test_prometheus_waits_for_them_and_reads_nothing_else() -> None:
    stack = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))
    prometheus, rules = stack["services"]["prometheus"], stack["services"]["rules"]
    assert prometheus["depends_on"]["rules"] == {"condition": "service_completed_successfully"}
    assert "rules:/etc/prometheus:ro" in prometheus["volumes"]
    assert "rules:/run/trainwarden/rules" in rules["volumes"]
    assert rules["command"][-1] == "/run/trainwarden/rules"
    assert "--config.file=/etc/prometheus/prometheus.yml" in prometheus["command"]
