"""The files for many boxes are what Prometheus and Alertmanager take, and fit each other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.exporter.conftest import Authority

import write_alertmanager
from ruleset import FOLDERS, RULES
from stack import PROJECT, Binaries
from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.webserver.web_config import load_web_config
from trainwarden_remediator.config.schema import Config

MANY = PROJECT / "deploy" / "many"
WEBHOOKS = {"box-1": "https://box-1:10978", "box-2": "http://box-2:10978/"}


def read(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((MANY / name).read_text(encoding="utf-8"))
    return tree


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture
def center(tmp_path: Path) -> Path:
    """The folder of the centre as an operator has it, with something in each secret."""
    folder = tmp_path / "center"
    shutil.copytree(MANY / "center", folder)
    for name in FOLDERS:
        shutil.copytree(RULES / name, folder / name)
    fill_secrets(folder)
    return folder


def fill_secrets(folder: Path) -> None:
    (folder / "secrets").mkdir()
    for name in ("ca.crt", "boxes-password", "center-password"):
        (folder / "secrets" / name).write_text("something\n")


def check(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_prometheus_takes_what_the_centre_starts_with(center: Path, binaries: Binaries) -> None:
    output = check(binaries.promtool, "check", "config", center / "prometheus.yml")
    assert "SUCCESS" in output


def test_an_agent_takes_what_a_box_starts_with(tmp_path: Path, binaries: Binaries) -> None:
    box = tmp_path / "box"
    shutil.copytree(MANY / "box", box)
    fill_secrets(box)
    check(binaries.promtool, "check", "config", "--agent", box / "prometheus.yml")


@pytest.mark.parametrize("place", ["center", "reached"])
def test_a_client_with_a_password_is_accepted(
    place: str, tmp_path: Path, authority: Authority, binaries: Binaries
) -> None:
    """Where a box sends to, and where the centre asks; as Prometheus and the exporter read it."""
    file = Path(shutil.copy(MANY / place / "web.yml", tmp_path))
    fill_secrets(tmp_path)
    pair = authority.issue_server(place)
    tls = yaml.safe_load(file.read_text())["tls_server_config"]
    shutil.copy(pair.cert_file, tmp_path / tls["cert_file"])
    shutil.copy(pair.key_file, tmp_path / tls["key_file"])
    check(binaries.promtool, "check", "web-config", file)
    web, _ = load_web_config(file)
    jobs = {one["job_name"]: one for one in read("center/prometheus.yml")["scrape_configs"]}
    coming = {
        "center": [*read("box/prometheus.yml")["remote_write"], jobs["prometheus"]],
        "reached": [jobs["trainwarden-exporter"], jobs["trainwarden-remediator"]],
    }[place]
    assert {one["basic_auth"]["username"] for one in coming} <= {*web.basic_auth_users}


def test_the_centre_asks_as_often_and_by_the_names_that_the_rules_want() -> None:
    shipped = yaml.safe_load((RULES / "prometheus.yml").read_text(encoding="utf-8"))
    for name in ("center/prometheus.yml", "box/prometheus.yml"):
        tree = read(name)
        for key in ("scrape_interval", "scrape_timeout"):
            assert tree["global"][key] == shipped["global"][key]
        jobs = [one["job_name"] for one in tree["scrape_configs"]]
        assert jobs[:2] == [one["job_name"] for one in shipped["scrape_configs"]][:2]
    assert read("center/prometheus.yml")["rule_files"] == shipped["rule_files"]


def test_a_box_has_one_name_everywhere() -> None:
    """For both of its programs, and in what its remediator asks for."""
    scraped = read("box/prometheus.yml")["scrape_configs"]
    (name,) = {one["static_configs"][0]["labels"]["instance"] for one in scraped}
    config = load(MANY / "box" / "remediator.yml", Config)
    assert config.mode == "observe"
    assert config.alertmanager.pull is not None
    assert list(config.alertmanager.pull.match) == [f'instance="{name}"']
    (reached,) = yaml.safe_load((MANY / "center/boxes/reached.yml").read_text())
    assert name not in reached["targets"]
    assert not any(":" in target for target in reached["targets"])
    exporter, remediator = read("center/prometheus.yml")["scrape_configs"][:2]
    for job, port in ((exporter, 10977), (remediator, 10978)):
        steps = [(one["target_label"], one.get("replacement")) for one in job["relabel_configs"]]
        assert steps == [("instance", None), ("__address__", f"$1:{port}")]


def test_what_tells_the_pair_apart_is_no_part_of_an_alert() -> None:
    tree = read("center/prometheus.yml")
    dropped = [one["regex"] for one in tree["alerting"]["alert_relabel_configs"]]
    assert dropped == [*tree["global"]["external_labels"]]


def test_who_pulls_and_who_is_called_by_webhook(tmp_path: Path, binaries: Binaries) -> None:
    file = tmp_path / "alertmanager.yml"
    named = [word for pair in WEBHOOKS.items() for word in ("--webhook", "=".join(pair))]
    assert write_alertmanager.main([*named, "--output", str(file)]) == 0
    check(binaries.amtool, "check-config", file)

    def receivers(**labels: str) -> list[str]:
        output = check(
            *(binaries.amtool, "config", "routes", "test", f"--config.file={file}"),
            *(f"{name}={value}" for name, value in labels.items()),
        )
        return output.strip().split(",")

    gone = {"alertname": "TrainingWorkerGone", "severity": "critical", "run": "grpo"}
    gone["remediation"] = "start_missing_worker"
    assert receivers(**gone, instance="box-1") == ["trainwarden-remediator-box-1", "on-call"]
    assert receivers(**gone, instance="box-2") == ["trainwarden-remediator-box-2", "on-call"]
    assert receivers(**gone, instance="box-3") == ["on-call"]
    assert receivers(alertname="TrainingWatchdog", severity="none") == ["trainwarden-remediator"]
    tree = yaml.safe_load(file.read_text())
    sent = {one["name"]: one.get("webhook_configs", []) for one in tree["receivers"]}
    assert [one["url"] for one in sent["trainwarden-remediator"]] == [
        "https://box-1:10978/webhook",
        "http://box-2:10978/webhook",
    ]
    tokens = [
        one["http_config"]["authorization"]["credentials_file"]
        for one in sent["trainwarden-remediator"]
    ]
    assert len(set(tokens)) == 2


def test_where_all_pull_no_alert_is_sent_to_a_remediator(
    tmp_path: Path, binaries: Binaries
) -> None:
    file = tmp_path / "alertmanager.yml"
    assert write_alertmanager.main(["--output", str(file)]) == 0
    check(binaries.amtool, "check-config", file)
    tree = yaml.safe_load(file.read_text())
    assert [one["name"] for one in tree["receivers"]] == ["on-call", "nobody"]
    assert tree["route"]["routes"][0]["receiver"] == "nobody"
    assert "webhook" not in json.dumps(tree)


def test_what_mutes_what_and_who_is_called_stays_as_shipped() -> None:
    shipped = yaml.safe_load((RULES / "alertmanager.yml").read_text(encoding="utf-8"))
    made = write_alertmanager.for_boxes(shipped, WEBHOOKS)
    assert made["inhibit_rules"] == shipped["inhibit_rules"]
    people = [one for one in shipped["route"]["routes"] if one["receiver"] in ("on-call", "nobody")]
    assert [one for one in made["route"]["routes"] if one["receiver"] in ("on-call", "nobody")] == (
        people
    )
    # Else a box's trouble could mute another's.
    assert all("instance" in rule["equal"] for rule in made["inhibit_rules"])


@pytest.mark.parametrize("word", ["box-1", "=https://box-1", 'b"1=https://box-1', "b=box-1:10978"])
def test_what_is_no_box_is_reported(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--webhook", word, "--output", str(tmp_path / "alertmanager.yml")]
    assert write_alertmanager.main(arguments) == 1
    assert "NAME=http" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
