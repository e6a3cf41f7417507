"""The boards, as they are written and as Grafana loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelling import Labels, alerting_rules, declared

PROJECT = Path(__file__).resolve().parents[2]
Models = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def models() -> Models:
    """Every committed dashboard, by its uid."""
    found = {}
    for path in sorted((PROJECT / "grafana" / "dashboards").glob("*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        found[model["uid"]] = model
    assert found
    return found


@pytest.fixture(scope="session")
def known() -> dict[str, Labels]:
    """The labels of every metric there is."""
    return declared()


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    """Every alerting rule, as written."""
    return alerting_rules()
