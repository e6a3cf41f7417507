from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks.completeness_rules import RenamedRule
from trainwarden_exporter.run_config import RunConfig

OWN = "name: own, folder: out, entry: a, complete: {renamed: true}"


def run(**more: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "r", "path": "/data", **more})


def test_an_entry_may_be_written_out() -> None:
    text = r"""
name: r
path: /data/exp
rollouts:
  - name: batches
    folder: rollouts
    entry: 'step_(?P<step>\d+)'
    complete: {renamed: true}
    rank: 'rank_(?P<rank>\d+)\.pt'
    ranks: 4
    lag_limit: 8
    staleness_limit: 2
"""
    (rollout,) = loader.parse(text, Path("exporter.yml"), RunConfig).rollouts
    layout = rollout.layout(None)
    assert layout is not None
    assert (layout.name, layout.folder, layout.carries) == ("batches", "rollouts", "batches")
    assert (layout.completeness, layout.rank) == (RenamedRule(), r"rank_(?P<rank>\d+)\.pt")
    assert (rollout.ranks, rollout.lag_limit) == (4, 8)


def test_what_leaves_no_files_needs_no_folder() -> None:
    (rollout,) = run(rollouts=[{"name": "memory", "staleness_limit": 8}]).rollouts
    assert rollout.layout(None) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{name: a, folder: out}", "rollouts[0].entry: required: the framework has no"),
        ("{name: a, folder: out, entry: b}", "rollouts[0].complete: required"),
        ("{name: a, entry: b}", "rollouts[0].entry: requires a folder"),
        ("{name: a, ranks: 2}", "rollouts[0].ranks: requires the rank pattern"),
        (f"{{{OWN}, ranks: 2}}", "rollouts[0].ranks: requires the rank pattern"),
        (f"{{{OWN}, rank: 'r'}}", "rollouts[0].rank: has no group (?P<rank>…)"),
        (f"{{{OWN}, carries: weight}}", "rollouts[0].carries: expected 'batches' or 'weights'"),
        (f"{{{OWN}, lag_limit: -1}}", "rollouts[0].lag_limit"),
    ],
)
def test_an_error_is_shown_where_it_stands(line: str, message: str) -> None:
    text = f"name: r\npath: /d\nrollouts:\n  - {line}\n"
    with pytest.raises(ConfigError) as caught:
        loader.parse(text, Path("exporter.yml"), RunConfig)
    assert f"exporter.yml:4: {message}" in str(caught.value)


def test_of_one_of_the_framework_s_own_a_part_may_be_given() -> None:
    given = run(framework="prime_rl", rollouts=[{"name": "batches", "ranks": 2, "step_offset": 1}])
    base = RunConfig.model_validate({"name": "x"}).rollouts
    assert base == ()
    (rollout,) = given.rollouts
    assert rollout.ranks == 2
