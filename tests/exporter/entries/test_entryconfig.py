from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainwarden_exporter.entries.config import CompleteConfig
from trainwarden_exporter.layouts import proofs
from trainwarden_exporter.layouts.proofs import Proof


@pytest.mark.parametrize(
    ("given", "proof"),
    [
        ({"marker": ["DONE"]}, proofs.Marker(("DONE",))),
        (
            {"marker": ["a/.metadata", "b"], "none_of": ["*.tmp"], "last": True},
            proofs.Marker(("a/.metadata", "b"), ("*.tmp",), last=True),
        ),
        ({"tracker": "latest.txt"}, proofs.Tracker("latest.txt")),
        (
            {"tracker": "latest", "pattern": r"step_(?P<step>\d+)"},
            proofs.Tracker("latest", r"step_(?P<step>\d+)"),
        ),
        ({"renamed": True}, proofs.Renamed()),
        (
            {"json": "state.json", "key": "global_step"},
            proofs.JsonStep("state.json", "global_step"),
        ),
        ({"listed": "snapshot.json"}, proofs.Listed("snapshot.json")),
        ({"settled": ["*.safetensors"]}, proofs.Settled(("*.safetensors",))),
        ({"settled": ["*.pt"], "seconds": "1m"}, proofs.Settled(("*.pt",), 60.0)),
    ],
)
def test_each_proof_can_be_written_down(given: dict[str, Any], proof: Proof) -> None:
    assert CompleteConfig.model_validate(given).proof() == proof


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one is needed of marker, tracker, renamed, json, listed, settled"),
        ({"renamed": False}, "exactly one"),
        ({"marker": ["a"], "renamed": True}, "exactly one"),
        ({"marker": []}, "at least 1"),
        ({"json": "state.json"}, "needed with json"),
        ({"tracker": "latest", "last": True}, "means nothing without marker"),
        ({"renamed": True, "none_of": ["*.tmp"]}, "means nothing without marker or json"),
        ({"tracker": "/etc/latest"}, "not a name inside"),
        ({"json": "../state.json", "key": "step"}, "not a name inside"),
        ({"tracker": "latest", "pattern": r"(\d+)"}, "has no group"),
        ({"tracker": "latest", "pattern": "("}, "not a regular expression"),
        ({"settled": ["a"], "seconds": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CompleteConfig.model_validate(given)
