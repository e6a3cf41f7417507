from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.config_file import loader
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.frameworks.base import RecoveryLayout
from trainwarden_exporter.frameworks.completeness_rules import MarkerRule, SettledRule
from trainwarden_exporter.run_config import RunConfig

WHOLE = {"name": "own", "folder": "out", "entry": r"s(?P<step>\d+)", "complete": {"renamed": True}}


def problem(*lines: str) -> str:
    text = "\n".join(("name: r", *lines))
    with pytest.raises(ConfigError) as caught:
        loader.parse(text, Path("exporter.yml"), RunConfig)
    return str(caught.value)


def run(**more: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "r", **more})


def test_an_entry_may_be_written_out() -> None:
    text = r"""
name: r
path: /data/exp
checkpoints:
  - name: default
    folder: 'checkpoints/{experiment}'
    entry: 'step_(?P<step>\d+)'
    complete: {marker: [DONE]}
    partial: 'tmp_step_\d+'
    step_offset: 1
    interval: 30m
    recovery: {file: recover/info.json, step: '"step": (?P<step>\d+)', newer: recover/.metadata}
"""
    (checkpoint,) = loader.parse(text, Path("exporter.yml"), RunConfig).checkpoints
    layout = checkpoint.layout(None)
    assert checkpoint.interval == 1800
    assert (layout.name, layout.folder) == ("default", "checkpoints/{experiment}")
    assert layout.completeness == MarkerRule(("DONE",))
    assert (layout.partial, layout.step_offset) == (r"tmp_step_\d+", 1)
    assert layout.recovery == RecoveryLayout(
        "recover/info.json", r'"step": (?P<step>\d+)', newer="recover/.metadata"
    )


def test_of_one_of_the_framework_s_own_a_part_may_be_given() -> None:
    (checkpoint,) = run(
        framework="areal", path="/data", checkpoints=[{"name": "default", "interval": "1h"}]
    ).checkpoints
    assert checkpoint.interval == 3600


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["path: /d", "checkpoints:", "  - {name: own, folder: out}"],
            ":4: checkpoints[0].entry: required: the framework has no checkpoints of this name",
        ),
        (
            ["path: /d", "framework: trl", "checkpoints:", "  - {name: default}", "  - {name: b}"],
            ":6: checkpoints[1].folder: required",
        ),
        (
            ["path: /d", "checkpoints:", "  - {name: a, folder: 'a/{'}"],
            ":4: checkpoints[0].folder: {: unmatched brace",
        ),
        (
            ["path: /d", "checkpoints:", "  - {name: a, entry: '('}"],
            ":4: checkpoints[0].entry: not a regular expression",
        ),
        (
            ["checkpoints:", "  - {name: a, folder: out, entry: a, complete: {renamed: true}}"],
            ":3: checkpoints[0].folder: relative to the run's path, which is not configured",
        ),
        (
            ["framework: trl", "checkpoints:", "  - {name: default, interval: 1h}"],
            ":4: checkpoints[0].name: relative to the run's path, which is not configured",
        ),
        (
            [
                "path: /d",
                "framework: trl",
                "checkpoints:",
                "  - name: default",
                "  - name: default",
            ],
            ":6: checkpoints[1].name: another one is named default",
        ),
        (
            [
                "checkpoints:",
                "  - {name: a, folder: /o, entry: a, complete: {renamed: true},",
                "     recovery: {file: /i, step: '(?P<step>.)', newer: rel}}",
            ],
            ":4: checkpoints[0].recovery.newer: relative",
        ),
        (
            [
                "path: /d",
                "framework: trl",
                "checkpoints:",
                "  - {name: default, recovery: {file: a}}",
            ],
            ":5: checkpoints[0].recovery.step: required",
        ),
        (["checkpoints:", "  - {name: a, interval: 0}"], ":3: checkpoints[0].interval"),
    ],
)
def test_an_error_is_shown_where_it_stands(lines: list[str], message: str) -> None:
    assert f"exporter.yml{message}" in problem(*lines)


def test_a_path_that_is_none_is_one_error_and_not_two() -> None:
    reported = problem(
        "path: ''", "checkpoints:", "  - {name: a, folder: b, entry: c, complete: {renamed: true}}"
    )
    assert len(reported.splitlines()) == 1


def test_a_framework_that_is_not_known_is_one_error_and_not_two() -> None:
    reported = problem(
        "framework: unheard", "path: /d", "checkpoints: [{name: default, interval: 1h}]"
    )
    assert len(reported.splitlines()) == 1


def test_what_is_given_replaces_and_what_is_not_given_stays() -> None:
    given = {"name": "own", "complete": {"settled": ["*"]}, "step_offset": 0}
    base = run(path="/d", checkpoints=[{**WHOLE, "step_offset": 1}]).checkpoints[0].layout(None)
    changed_at = run(path="/d", checkpoints=[{**WHOLE, **given}]).checkpoints[0].layout(base)
    assert (base.step_offset, changed_at.step_offset) == (1, 0)
    assert changed_at.completeness == SettledRule(("*",))
    assert (changed_at.folder, changed_at.entry) == (base.folder, base.entry)
