from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.run_specs import checkpoint_specs

OWN = {"name": "own", "folder": "out/{x}", "entry": "a", "complete": {"renamed": True}}


def run(**more: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "r", **more})


def test_a_framework_and_a_path_are_enough() -> None:
    specs = checkpoint_specs(run(framework="areal", path="/data", variables={"trial": "t"}))
    assert [spec.labels for spec in specs] == [("r", "default"), ("r", "critic")]
    assert specs[0].layout == get_framework("areal").checkpoints[0]
    assert specs[0].location.path == Path("/data")
    assert specs[0].location.templates == get_framework("areal").templates
    assert specs[0].location.variables == (("trial", "t"),)


def test_the_configuration_has_the_last_word() -> None:
    specs = checkpoint_specs(
        run(
            framework="areal",
            path="/data",
            checkpoints=[OWN, {"name": "critic", "folder": "c", "interval": 60}],
        )
    )
    assert [spec.labels[1] for spec in specs] == ["default", "critic", "own"]
    assert (specs[1].layout.folder, specs[1].interval) == ("c", 60)
    assert (specs[2].layout.folder, specs[2].interval) == ("out/{x}", None)
    assert {"c", "out/{x}"} <= set(specs[0].location.templates)


def test_without_a_path_only_what_lies_elsewhere_is_watched() -> None:
    assert checkpoint_specs(run(framework="areal")) == ()
    (spec,) = checkpoint_specs(run(checkpoints=[{**OWN, "folder": "/scratch/{x}"}]))
    assert spec.location.path == Path("/")
    assert spec.location.templates == ("/scratch/{x}",)


def test_equal_configurations_are_equal_subjects_of_a_watch() -> None:
    given = {"framework": "areal", "path": "/data", "checkpoints": [OWN]}
    assert set(checkpoint_specs(run(**given))) == set(checkpoint_specs(run(**given)))
    assert len(set(checkpoint_specs(run(**given)))) == 3


def test_an_unknown_framework_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown framework"):
        checkpoint_specs(run(path="/data").model_copy(update={"framework": "unheard"}))
