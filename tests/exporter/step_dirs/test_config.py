from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.frameworks import completeness_rules
from trainwarden_exporter.frameworks.completeness_rules import CompletenessRule
from trainwarden_exporter.step_dirs.config import CompleteConfig


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"marker": ["DONE"]}, completeness_rules.MarkerRule(("DONE",))),
        (
            {"marker": ["a/.metadata", "b"], "none_of": ["*.tmp"], "last": True},
            completeness_rules.MarkerRule(("a/.metadata", "b"), ("*.tmp",), last=True),
        ),
        ({"tracker": "latest.txt"}, completeness_rules.TrackerRule("latest.txt")),
        (
            {"tracker": "latest", "pattern": r"step_(?P<step>\d+)"},
            completeness_rules.TrackerRule("latest", r"step_(?P<step>\d+)"),
        ),
        ({"renamed": True}, completeness_rules.RenamedRule()),
        (
            {"json": "state.json", "key": "global_step"},
            completeness_rules.JsonStepRule("state.json", "global_step"),
        ),
        ({"listed": "snapshot.json"}, completeness_rules.ListedRule("snapshot.json")),
        ({"settled": ["*.safetensors"]}, completeness_rules.SettledRule(("*.safetensors",))),
        (
            {"settled": ["*.pt"], "settled_for": "1m"},
            completeness_rules.SettledRule(("*.pt",), 60.0),
        ),
    ],
)
def test_each_proof_can_be_written_down(given: dict[str, Any], rule: CompletenessRule) -> None:
    assert CompleteConfig.model_validate(given).rule() == rule


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one is required of marker, tracker, renamed, json, listed, settled"),
        ({"renamed": False}, "exactly one"),
        ({"marker": ["a"], "renamed": True}, "exactly one"),
        ({"marker": []}, "at least 1"),
        ({"json": "state.json"}, "required with json"),
        ({"tracker": "latest", "last": True}, "requires marker"),
        ({"renamed": True, "none_of": ["*.tmp"]}, "requires marker or json"),
        ({"tracker": "/etc/latest"}, "not a name inside"),
        ({"json": "../state.json", "key": "step"}, "not a name inside"),
        ({"tracker": "latest", "pattern": r"(\d+)"}, "has no group"),
        ({"tracker": "latest", "pattern": "("}, "not a regular expression"),
        ({"settled": ["a"], "settled_for": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompleteConfig.model_validate(given)
