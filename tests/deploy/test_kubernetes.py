"""The manifests of the exporter fit together, and fit the rules. No cluster is asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from packaging_rules import DEPLOY
from ruleset import RULES
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file.loader import parse

FOLDER = DEPLOY / "kubernetes"
PORT = 10977
NAME = "trainwarden-exporter"
KUBERNETES = ("1.30", "1.37")
"""The oldest that the manifests are for (it has `appArmorProfile`), and a newer one."""
OPERATOR = "monitoring.coreos.com/v1"


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    """What makes the exporter, by kind."""
    text = (FOLDER / "exporter.yaml").read_text()
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    network = {"Service", "NetworkPolicy", "PodMonitor"}
    assert {*found} == {"ServiceAccount", "ConfigMap", "DaemonSet"} | network
    return found


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "remediator"], ids=lambda path: path.name)
def test_all_that_is_there_is_applied(folder: Path) -> None:
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert {*named} == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_knows_every_field(version: str) -> None:
    checked = 0
    for path in sorted(FOLDER.glob("**/*.yaml")):
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if one["apiVersion"] != OPERATOR and one["kind"] != "Kustomization":
                kubernetes_validate.validate(one, version, strict=True)
                checked += 1
    assert checked > 10


def test_the_configuration_in_it_is_good(made: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    text = made["ConfigMap"]["data"]["exporter.yml"]
    config = parse(text, tmp_path / "exporter.yml", Config)
    (pod,) = [made["DaemonSet"]["spec"]["template"]["spec"]]
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    assert not mounts[str(config.state_folder)].get("readOnly")


def test_only_prometheus_and_the_remediator_reach_the_exporter(
    made: dict[str, dict[str, Any]],
) -> None:
    policy = made["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": NAME}}
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    clients = [one["podSelector"]["matchLabels"] for one in rule["from"]]
    names = [client["app.kubernetes.io/name"] for client in clients]
    assert names == ["prometheus", "trainwarden-remediator"]
    assert rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    remediator = (FOLDER / "remediator" / "remediator.yaml").read_text()
    (pods,) = [one for one in yaml.safe_load_all(remediator) if one["kind"] == "DaemonSet"]
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert clients[1].items() <= labels.items()


def test_every_selector_finds_the_pods(made: dict[str, dict[str, Any]]) -> None:
    labels = made["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        made["DaemonSet"]["spec"]["selector"]["matchLabels"],
        made["PodMonitor"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()


def test_the_job_and_the_interval_are_as_the_rules_require(
    made: dict[str, dict[str, Any]],
) -> None:
    shipped = yaml.safe_load((RULES / "prometheus.yml").read_text())
    jobs = {one["job_name"] for one in shipped["scrape_configs"]}
    spec = made["PodMonitor"]["spec"]
    labels = made["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert labels[spec["jobLabel"]] == "trainwarden-exporter"
    assert labels[spec["jobLabel"]] in jobs
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["interval"] == shipped["global"]["scrape_interval"]
    assert endpoint["scrapeTimeout"] == shipped["global"]["scrape_timeout"]


def test_no_label_of_the_operator_takes_the_place_of_ours(made: dict[str, dict[str, Any]]) -> None:
    (endpoint,) = made["PodMonitor"]["spec"]["podMetricsEndpoints"]
    dropped = [one["regex"] for one in endpoint["relabelings"] if one.get("action") == "labeldrop"]
    assert any(re.fullmatch(pattern, "container") for pattern in dropped)
    kept = [one["targetLabel"] for one in endpoint["relabelings"] if "targetLabel" in one]
    assert kept == ["instance"]


def test_the_exporter_has_no_more_than_it_needs(made: dict[str, dict[str, Any]]) -> None:
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert made["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE", "DAC_READ_SEARCH"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"/var/lib/trainwarden"}


def test_everybody_means_the_same_port(made: dict[str, dict[str, Any]]) -> None:
    (container,) = made["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert f"--web.listen-address=0.0.0.0:{PORT}" in container["args"]
    (port,) = container["ports"]
    assert port == {"name": "metrics", "containerPort": PORT}
    assert made["Service"]["spec"]["ports"] == [
        {"name": "metrics", "port": PORT, "targetPort": "metrics"}
    ]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "metrics"
