"""The shipped rules and their tests, as read from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the repository."""
    return PROJECT


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    """Every alerting rule, as written."""
    return [
        rule
        for file in sorted((PROJECT / "rules" / "alerts").glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


@pytest.fixture(scope="session")
def rule_tests() -> list[dict[str, Any]]:
    """Every test of the promtool suites, as written."""
    return [
        test
        for file in sorted((PROJECT / "rules" / "tests").glob("*_test.yml"))
        for test in yaml.safe_load(file.read_text())["tests"]
    ]
