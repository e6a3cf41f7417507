from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import rollout_specs


def run(**more: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "r", **more})


def test_a_framework_and_a_path_are_enough() -> None:
    specs = rollout_specs(run(framework="prime_rl", path="/data"))
    known = get_framework("prime_rl").rollouts
    assert [spec.layout for spec in specs] == list(known)
    assert all(spec.location.path == Path("/data") for spec in specs)
    limits = {spec.name: (spec.carries, spec.lag_limit) for spec in specs}
    assert limits["batches"] == ("batches", 1)
    assert limits["broadcasts"][0] == "weights"


def test_the_configuration_has_the_last_word() -> None:
    given = [
        {"name": "batches", "ranks": 4, "lag_limit": 3, "staleness_limit": 0},
        {"name": "memory", "staleness_limit": 8},
    ]
    specs = {
        one.name: one for one in rollout_specs(run(framework="prime_rl", path="/d", rollouts=given))
    }
    batches = specs["batches"]
    assert (batches.ranks, batches.lag_limit, batches.staleness_limit) == (4, 3, 0)
    assert batches.layout == get_framework("prime_rl").rollouts[0]
    assert (specs["memory"].layout, specs["memory"].staleness_limit) == (None, 8)
    assert specs["memory"].lag_limit is None


def test_without_a_path_only_what_lies_elsewhere_is_watched() -> None:
    assert rollout_specs(run(framework="prime_rl")) == ()
    permissions = {"name": "a", "folder": "/w", "entry": "a", "complete": {"renamed": True}}
    (spec,) = rollout_specs(run(rollouts=[{**permissions, "carries": "weights"}]))
    assert (spec.location.templates, spec.carries, spec.lag_limit) == (("/w",), "weights", None)


def test_equal_configurations_are_equal_subjects_of_a_watch() -> None:
    assert set(rollout_specs(run(framework="prime_rl", path="/d"))) == set(
        rollout_specs(run(framework="prime_rl", path="/d"))
    )
