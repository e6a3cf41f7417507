from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwarden_exporter.layouts import layout
from trainwarden_exporter.rollouts.specs import rollout_specs
from trainwarden_exporter.runs import RunConfig


def run(**more: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "r", **more})


def test_a_framework_and_a_path_are_enough() -> None:
    specs = rollout_specs(run(framework="prime_rl", path="/data"))
    known = layout("prime_rl").rollouts
    assert [spec.layout for spec in specs] == list(known)
    assert all(spec.place.path == Path("/data") for spec in specs)
    limits = {spec.name: (spec.carries, spec.lag_limit) for spec in specs}
    assert limits["batches"] == ("batches", 1)
    assert limits["broadcasts"][0] == "weights"


def test_the_configuration_has_the_last_word() -> None:
    given = [
        {"name": "batches", "ranks": 4, "lag_limit": 3, "staleness_limit": 0, "interval": 60},
        {"name": "memory", "staleness_limit": 8},
    ]
    specs = {
        one.name: one for one in rollout_specs(run(framework="prime_rl", path="/d", rollouts=given))
    }
    batches = specs["batches"]
    assert (batches.ranks, batches.lag_limit, batches.staleness_limit) == (4, 3, 0)
    assert batches.interval == 60
    assert batches.layout == layout("prime_rl").rollouts[0]
    assert (specs["memory"].layout, specs["memory"].staleness_limit) == (None, 8)
    assert specs["memory"].lag_limit is None


def test_without_a_path_only_what_lies_elsewhere_is_watched() -> None:
    assert rollout_specs(run(framework="prime_rl")) == ()
    own = {"name": "a", "folder": "/w", "entry": "a", "complete": {"renamed": True}}
    (spec,) = rollout_specs(run(rollouts=[{**own, "carries": "weights"}]))
    assert (spec.place.templates, spec.carries, spec.lag_limit) == (("/w",), "weights", None)


def test_equal_configurations_are_equal_subjects_of_a_watch() -> None:
    assert set(rollout_specs(run(framework="prime_rl", path="/d"))) == set(
        rollout_specs(run(framework="prime_rl", path="/d"))
    )
