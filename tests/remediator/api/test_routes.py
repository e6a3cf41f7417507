"""The ways by which a remediator may come by its alerts, as its file says them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.config.schema import Config, load_setup

PULL = {"alertmanager": {"pull": {"match": ['instance="node1"']}}}


def write(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "exporter.yml").write_text("runs: []\n")
    file = folder / "remediator.yml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize(
    "settings",
    [{"token_file": "token"}, {"client_certificates": True}, {"insecure": True}, PULL],
    ids=str,
)
def test_one_of_them_is_enough(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = load_setup(write(tmp_path, settings)).config
    assert isinstance(config, Config)


@pytest.mark.parametrize("settings", [{}, {"insecure": False}, {"alertmanager": {}}], ids=str)
def test_none_is_not(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="token_file"):
        load_setup(write(tmp_path, settings))


@pytest.mark.parametrize("value", ["false", ""])
def test_what_stands_in_the_environment_is_no_way_round(
    tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSECURE", value)
    monkeypatch.setenv("TRAINWARDEN_INSECURE", "true")
    with pytest.raises(ConfigError):
        load_setup(write(tmp_path, {"insecure": "${INSECURE}"}))


def test_the_files_of_credentials_are_beside_the_file_that_names_them(tmp_path: Path) -> None:
    settings = {
        **PULL,
        "exporter": {"url": "https://a", "tls": {"ca_file": "ca.pem"}, "token_file": "t"},
    }
    exporter = load_setup(write(tmp_path, settings)).config.exporter
    assert (exporter.tls.ca_file, exporter.token_file) == (tmp_path / "ca.pem", tmp_path / "t")


@pytest.mark.parametrize(
    ("alertmanager", "line"),
    [
        ({"pull": {"match": []}}, "alertmanager.pull.match"),
        ({"pull": {"match": ["node1"]}}, "alertmanager.pull.match[0]"),
        ({"pull": {"match": ['a="b"'], "interval": 0}}, "alertmanager.pull.interval"),
        ({"pull": {"match": ['a="b"'], "every": 1}}, "alertmanager.pull.every"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(
    tmp_path: Path, alertmanager: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_setup(write(tmp_path, {"insecure": True, "alertmanager": alertmanager}))
    assert line in str(error.value)
