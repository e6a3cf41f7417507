"""The manifests of the remediator fit together, fit the exporter's, and allow what it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.remediator.actions.test_kubernetes import TOKEN, Cluster

from packaging_rules import DEPLOY
from trainwarden_exporter.config import load_config
from trainwarden_remediator.actions.kubernetes_api import KubernetesApi
from trainwarden_remediator.actions.kubernetes_objects import CONTROLLER_RESOURCES, Controller
from trainwarden_remediator.api.bind_policy import check_exposure
from trainwarden_remediator.config.restart_methods.kubernetes import KubernetesTarget
from trainwarden_remediator.config.schema import load_setup

FOLDER = DEPLOY / "kubernetes"
PORT = 10978
NAME = "trainwarden-remediator"
VERBS: Mapping[tuple[str, bool], str] = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("DELETE", True): "delete",
    ("POST", True): "create",
}
"""What a request is called in a rule, by its method and whether it is about one object.

Source: kubernetes.io/docs/reference/access-authn-authz/authorization.
"""
Right = tuple[str, str, str]
"""API group, resource and verb."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def made() -> dict[str, dict[str, Any]]:
    """What makes the remediator, by kind; of its two services, its own."""
    found = {one["kind"]: one for one in documents("remediator/remediator.yaml")}
    assert {*found} == {
        *("ServiceAccount", "ConfigMap", "DaemonSet", "Service", "NetworkPolicy", "PodMonitor")
    }
    return found


@pytest.fixture(scope="module")
def rights() -> dict[str, dict[str, Any]]:
    found = {one["kind"]: one for one in documents("remediator/rights.yaml")}
    assert {*found} == {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    return found


def exporters() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in documents("exporter.yaml")}


def pod_of(made: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = made["DaemonSet"]["spec"]["template"]["spec"]
    return spec


def labels_of(made: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = made["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    return labels


def mounted(made: Mapping[str, Any], place: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mount that a file lies in, and its volume."""
    (container,) = pod_of(made)["containers"]
    (mount,) = (one for one in container["volumeMounts"] if place.is_relative_to(one["mountPath"]))
    (volume,) = (one for one in pod_of(made)["volumes"] if one["name"] == mount["name"])
    return mount, volume


@pytest.fixture
def config_file(made: dict[str, dict[str, Any]], tmp_path: Path) -> Path:
    """The folder of configuration as the pod has it; the path of the remediator's file."""
    for one in (made["ConfigMap"], exporters()["ConfigMap"]):
        for name, text in one["data"].items():
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "remediator.yml"


def test_the_configuration_in_it_is_good_and_touches_nothing(
    made: dict[str, dict[str, Any]], config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    config = load_setup(config_file).config
    assert (config.mode, config.targets) == ("observe", ())
    assert config.alertmanager.pull is not None
    assert list(config.alertmanager.pull.match) == ['instance="node-1"']
    for kept in (config.journal, config.hold_file):
        mount, volume = mounted(made, kept)
        assert not mount.get("readOnly")
        assert "hostPath" in volume
    assert config.token_file is not None
    _, volume = mounted(made, config.token_file)
    assert volume["secret"]["secretName"] == NAME
    # Beyond loopback, for the probes: that is refused unless somebody would be asked who they are.
    check_exposure(config, config_file, listen_address=f"0.0.0.0:{PORT}", web_config_file=None)


def test_the_example_in_its_comments_is_good(
    made: dict[str, dict[str, Any]],
    rights: dict[str, dict[str, Any]],
    config_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    text = made["ConfigMap"]["data"]["remediator.yml"].replace("# ", "")
    config_file.write_text(text, encoding="utf-8")
    worker = {"name": "rollout-0", "match": {"command": "rollout"}}
    file = config_file.with_name("exporter.yml")
    file.write_text(yaml.safe_dump({"runs": [{"name": "grpo", "workers": [worker]}]}))
    assert load_config(file).runs
    (target,) = load_setup(config_file).config.targets
    assert target.kubernetes is not None
    assert target.kubernetes.namespace == rights["Role"]["metadata"]["namespace"]


def test_its_exporter_is_that_of_its_own_node(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    url = urlsplit(load_setup(config_file).config.exporter.url)
    services = {
        one["metadata"]["name"]: one["spec"]
        for one in documents("remediator/remediator.yaml")
        if one["kind"] == "Service"
    }
    service = services[url.hostname or ""]
    assert service["internalTrafficPolicy"] == "Local"
    assert "clusterIP" not in service  # a headless one has no such policy
    assert [port["port"] for port in service["ports"]] == [url.port]
    exporter = exporters()["DaemonSet"]["spec"]["template"]
    assert service["selector"].items() <= exporter["metadata"]["labels"].items()
    (container,) = exporter["spec"]["containers"]
    assert [port["targetPort"] for port in service["ports"]] == [
        port["name"] for port in container["ports"]
    ]


def test_both_have_the_same_name_for_a_box(made: dict[str, dict[str, Any]]) -> None:
    scraped = [one["PodMonitor"]["spec"]["podMetricsEndpoints"] for one in (made, exporters())]
    assert scraped[0] == scraped[1]
    (env,) = pod_of(made)["containers"][0]["env"]
    assert env["name"] == "NODE_NAME"
    assert env["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    sources = [one.get("sourceLabels") for one in scraped[0][0]["relabelings"]]
    assert ["__meta_kubernetes_pod_node_name"] in sources


def test_every_selector_finds_its_pods(made: dict[str, dict[str, Any]]) -> None:
    for selector in (
        made["DaemonSet"]["spec"]["selector"]["matchLabels"],
        made["PodMonitor"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels_of(made).items()
    assert labels_of(made)[made["PodMonitor"]["spec"]["jobLabel"]] == NAME


def test_everybody_means_the_same_port(made: dict[str, dict[str, Any]]) -> None:
    (container,) = pod_of(made)["containers"]
    assert f"--web.listen-address=0.0.0.0:{PORT}" in container["args"]
    assert container["ports"] == [{"name": "metrics", "containerPort": PORT}]
    (port,) = made["Service"]["spec"]["ports"]
    assert port == {"name": "metrics", "port": PORT, "targetPort": "metrics"}
    ((allowed,),) = (rule["ports"] for rule in made["NetworkPolicy"]["spec"]["ingress"])
    (endpoint,) = made["PodMonitor"]["spec"]["podMetricsEndpoints"]
    probes = [container[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")]
    assert {allowed["port"], endpoint["port"], *probes} == {"metrics"}


def test_it_has_no_more_than_it_needs(made: dict[str, dict[str, Any]]) -> None:
    (container,) = pod_of(made)["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security
    assert "hostPID" not in pod_of(made)
    writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert writable == {"/var/lib/trainwarden"}


def test_two_of_them_never_share_a_journal(made: dict[str, dict[str, Any]]) -> None:
    rolling = made["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"]
    assert rolling["maxSurge"] == 0


def test_the_rights_are_bound_to_its_account(
    made: dict[str, dict[str, Any]], rights: dict[str, dict[str, Any]]
) -> None:
    account = made["ServiceAccount"]["metadata"]
    assert pod_of(made)["serviceAccountName"] == account["name"]
    assert pod_of(made)["automountServiceAccountToken"] is True
    for kind in ("Role", "ClusterRole"):
        binding = rights[f"{kind}Binding"]
        assert binding["roleRef"]["kind"] == kind
        assert binding["roleRef"]["name"] == rights[kind]["metadata"]["name"]
        assert binding["subjects"] == [
            {
                "kind": "ServiceAccount",
                "name": account["name"],
                "namespace": account["namespace"],
            }
        ]
    assert rights["RoleBinding"]["metadata"]["namespace"] == rights["Role"]["metadata"]["namespace"]


def asked(method: str, target: str) -> Right:
    """The right that a request takes. Of a path: `/api/v1` or `/apis/GROUP/v1`, and then what."""
    parts = urlsplit(target).path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces":
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:]])
    return group, resource, VERBS[method, len(rest) > 1]


def granted(role: Mapping[str, Any]) -> Iterator[Right]:
    for rule in role["rules"]:
        assert {*rule} == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def test_it_may_do_what_it_asks_for_and_nothing_else(
    rights: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    server = Cluster()
    try:
        for changes in ({"pod": "trainer-0"}, {"selector": "app=trainer", "evict": True}):
            server.add()
            target = KubernetesTarget.model_validate(
                {"namespace": "training", "url": server.url, "token_file": str(token), **changes}
            )
            api = KubernetesApi(target)
            (pod,) = api.pods()
            api.cordoned(pod.node)
            for group, kind in CONTROLLER_RESOURCES:
                api.controller_blocker(Controller(apiVersion=f"{group}/v1", kind=kind, name="it"))
            api.delete(pod)
    finally:
        server.close()
    needed = {asked(method, path) for method, path, _ in server.requests}
    of_nodes = {right for right in needed if right[1] == "nodes"}
    assert {*granted(rights["ClusterRole"])} == of_nodes
    assert {*granted(rights["Role"])} == needed - of_nodes
