"""The configuration that compose and systemd start with, read as the programs read it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from stack import PROJECT
from trainwarden_exporter.config import load_config
from trainwarden_exporter.config_file.loader import load
from trainwarden_remediator.config.schema import Config

PLACES = ("deploy/compose/config", "deploy/systemd")


@pytest.mark.parametrize("place", PLACES)
def test_it_watches_the_host_keeps_what_it_knows_and_touches_nothing(place: str) -> None:
    exporter = load_config(PROJECT / place / "exporter.yml")
    assert exporter.runs == ()
    assert exporter.state_folder is not None
    remediator = load(PROJECT / place / "remediator.yml", Config)
    assert (remediator.mode, remediator.targets, remediator.insecure) == ("observe", (), False)
    assert remediator.journal.is_relative_to("/var/lib/trainwarden")


def test_the_demo_in_containers_may_restart_what_the_demo_may() -> None:
    def targets(path: Path) -> list[tuple[str, str]]:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))["targets"]
        return sorted((each["run"], each["worker"]) for each in read)

    here = PROJECT / "deploy/compose/demo/remediator.yml"
    assert load(here, Config).mode == "act"
    assert targets(here) == targets(PROJECT / "examples/demo/remediator.yml")


def test_the_examples_in_comments_are_good(tmp_path: Path) -> None:
    for place in PLACES:
        text = (PROJECT / place / "remediator.yml").read_text(encoding="utf-8")
        _, _, example = text.partition("# targets:")
        lines = [line.removeprefix("#").removeprefix(" ") for line in example.splitlines()]
        uncommented = text.partition("# targets:")[0] + "targets:" + "\n".join(lines)
        (tmp_path / "remediator.yml").write_text(uncommented, encoding="utf-8")
        (target,) = load(tmp_path / "remediator.yml", Config).targets
        assert target.worker == "rollout-0"
