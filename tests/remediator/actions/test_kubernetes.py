"""Pods are deleted by uid and recreated by their controller; by a server with the API's rules."""

from __future__ import annotations

import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.exporter.conftest import Authority
from tests.remediator.process_yard import Steps

from trainwarden_exporter.config_file.loader import load
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.actions.base import ActionState
from trainwarden_remediator.actions.kubernetes import RETRY_SECONDS, KubernetesAction
from trainwarden_remediator.actions.kubernetes_api import in_cluster_url
from trainwarden_remediator.actions.kubernetes_objects import parse_pod, parse_pods
from trainwarden_remediator.config.schema import Config
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    NotEligibleError,
    OutcomeUnknownError,
)

TOKEN = "a-service-account-token"
PODS = "/api/v1/namespaces/training/pods"
Object = dict[str, Any]


class Cluster:
    """An API server that holds pods, and a controller that recreates its pods.

    Rules as kubernetes.io/docs/reference has them: 409 for a precondition that is not met, 429 for
    an eviction that a budget forbids, 404 for what is not there, 401 for a wrong token.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pods: dict[str, Object] = {}
        self.owners: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {"node-1": {"spec": {}}}
        self.budget_allows = True
        self.recreates = True
        self.requests: list[tuple[str, str, Object]] = []
        self.instead: tuple[int, bytes] | None = None
        self.hangs_up_on = ""
        self.before_delete: Callable[[], object] = lambda: None
        self._numbers = itertools.count(1)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self._scheme = "http"
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
            self._scheme = "https"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def add(self, name: str = "trainer-0", *, owner: str = "StatefulSet", **status: Any) -> Object:
        """A pod; `owner` is "" for a pod without a controller."""
        references = [{"apiVersion": "apps/v1", "kind": owner, "name": "it", "controller": True}]
        if owner == "Job":
            references[0]["apiVersion"] = "batch/v1"
        self.pods[name] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{next(self._numbers)}",
                "labels": {"app": "trainer"},
                "ownerReferences": references if owner else [],
            },
            "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "containerStatuses": [{"restartCount": 0}], **status},
        }
        self.owners.setdefault(f"{owner.lower()}s/it", {"spec": {"replicas": 1}})
        return self.pods[name]

    def uid(self, name: str = "trainer-0") -> str:
        return str(self.pods[name]["metadata"]["uid"])

    def answer(self, method: str, target: str, body: Object, token: str) -> tuple[int, Object]:
        self.requests.append((method, target, body))
        path = urlsplit(target).path
        if token != f"Bearer {TOKEN}":
            return 401, {"kind": "Status"}
        if path == PODS:
            (wanted,) = parse_qs(urlsplit(target).query)["labelSelector"]
            name, _, value = wanted.partition("=")
            found = [p for p in self.pods.values() if p["metadata"]["labels"].get(name) == value]
            return 200, {"kind": "PodList", "items": found}
        if path.startswith("/api/v1/nodes/"):
            return 200, self.nodes[path.rpartition("/")[2]]
        if path.startswith("/apis/"):
            owner = self.owners.get("/".join(path.split("/")[-2:]))
            return (404, {}) if owner is None else (200, owner)
        name = path.removeprefix(f"{PODS}/").removesuffix("/eviction")
        if method != "GET":
            self.before_delete()
        if name not in self.pods:
            return 404, {"kind": "Status", "reason": "NotFound"}
        if method == "GET":
            return 200, self.pods[name]
        options = body["deleteOptions"] if path.endswith("/eviction") else body
        if options["preconditions"]["uid"] != self.uid(name):
            return 409, {"kind": "Status", "reason": "Conflict"}
        if path.endswith("/eviction") and not self.budget_allows:
            return 429, {"kind": "Status", "reason": "TooManyRequests"}
        self._delete(name)
        return (201 if method == "POST" else 200), {"kind": "Status", "status": "Success"}

    def _delete(self, name: str) -> None:
        gone = self.pods.pop(name)
        references = gone["metadata"]["ownerReferences"]
        if references and self.recreates:
            kind = references[0]["kind"]
            self.add(name if kind == "StatefulSet" else f"{name}-new", owner=kind)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                token = self.headers.get("Authorization", "")
                status, content = cluster.answer(self.command, self.path, body, token)
                data = json.dumps(content).encode()
                if self.command == cluster.hangs_up_on:
                    self.close_connection = True
                    return
                if cluster.instead is not None:
                    status, data = cluster.instead
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_DELETE = do_POST = _answer  # noqa: N815 - as the library calls them

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


class Time:
    """Passes only while it is slept."""

    now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def acting(cluster: Cluster, tmp_path: Path, time: Time) -> Any:
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    def make(**changes: Any) -> KubernetesAction:
        which = {} if "selector" in changes else {"pod": "trainer-0"}
        kubernetes = {
            "namespace": "training",
            "url": cluster.url,
            "token_file": tmp_path / "token",
            **which,
            **changes,
        }
        target = Target.model_validate(
            {"run": "demo", "worker": "trainer", "kubernetes": kubernetes}
        )
        assert target.kubernetes is not None
        return KubernetesAction(target, target.kubernetes, sleep=time.sleep, clock=time)

    return make


def test_a_pod_is_deleted_by_its_uid_and_recreated(cluster: Cluster, acting: Any) -> None:
    cluster.add()
    old = cluster.uid()
    action, steps = acting(grace=7), Steps()
    intended = action.find_instances()
    facts = action.perform("mark", steps, intended)
    assert cluster.uid() != old
    assert facts["started_by"] == "trainwarden"
    assert facts["processes"] == [f"pod trainer-0 {cluster.uid()}, restart 0"]
    assert steps == [("restart", {"manager": "kubernetes", "what": "pod trainer-0", "uid": old})]
    (sent,) = (body for method, _, body in cluster.requests if method == "DELETE")
    assert (sent["preconditions"], sent["gracePeriodSeconds"]) == ({"uid": old}, 7)
    assert action.inspect("mark", intended) is ActionState.STARTED


def test_a_pod_is_found_by_labels_also_when_the_next_is_called_otherwise(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add("trainer-abc", owner="ReplicaSet")
    action = acting(selector="app=trainer")
    facts = action.perform("mark", Steps(), action.find_instances())
    assert list(cluster.pods) == ["trainer-abc-new"]
    assert "trainer-abc-new" in facts["processes"][0]


def test_a_pod_that_has_taken_the_name_meanwhile_is_not_deleted(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add()
    cluster.before_delete = cluster.add
    action = acting()
    with pytest.raises(NotEligibleError, match="the same name now"):
        action.perform("mark", Steps(), action.find_instances())
    assert cluster.uid() == "uid-2"


def test_a_pod_that_was_recreated_since_it_was_looked_at_is_left_alone(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add()
    action = acting()
    intended = action.find_instances()
    cluster.add()
    assert action.perform("mark", Steps(), intended)["started_by"] == "another"
    assert not [one for one in cluster.requests if one[0] == "DELETE"]


def test_a_pod_whose_containers_were_restarted_in_place_is_left_alone(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add()
    action = acting()
    intended = action.find_instances()
    cluster.pods["trainer-0"]["status"]["containerStatuses"][0]["restartCount"] = 1
    assert action.perform("mark", Steps(), intended)["started_by"] == "another"


def test_a_pod_that_is_gone_when_it_is_to_be_deleted_is_no_attempt(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add()
    cluster.before_delete = cluster.pods.clear
    with pytest.raises(NotEligibleError, match="already gone"):
        acting().perform("mark", Steps())


def test_of_several_pods_none_is_touched(cluster: Cluster, acting: Any) -> None:
    cluster.add("a", owner="ReplicaSet")
    cluster.add("b", owner="ReplicaSet")
    with pytest.raises(ActionError, match=r"2 pods match \(a, b\), not one"):
        acting(selector="app=trainer").perform("mark", Steps())
    assert set(cluster.pods) == {"a", "b"}


def test_a_terminating_pod_does_not_hide_the_remaining_pod(cluster: Cluster, acting: Any) -> None:
    cluster.add("a", owner="ReplicaSet")["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    cluster.add("b", owner="ReplicaSet", phase="Failed")
    cluster.add("c", owner="ReplicaSet")
    (identity,) = acting(selector="app=trainer").find_instances()
    assert identity.startswith("pod c ")


STATES: dict[str, Any] = {
    "no controller": lambda c: c.add(owner=""),
    "is being deleted": lambda c: c.add()["metadata"].update(deletionTimestamp="x"),
    "is pending": lambda c: c.add(phase="Pending"),
    "has completed": lambda c: c.add(phase="Succeeded"),
    "has failed": lambda c: c.add(phase="Failed"),
    "kubelet is about to": lambda c: c.add(
        containerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    ),
    "scaled to 0": lambda c: (
        c.add(),
        c.owners.update({"statefulsets/it": {"spec": {"replicas": 0}}}),
    ),
    "it is being deleted": lambda c: (
        c.add(),
        c.owners.update({"statefulsets/it": {"metadata": {"deletionTimestamp": "x"}}}),
    ),
    "StatefulSet it is gone": lambda c: (c.add(), c.owners.clear()),
    "suspended": lambda c: (
        c.add(owner="Job"),
        c.owners.update({"jobs/it": {"spec": {"suspend": True}}}),
    ),
    "is finished": lambda c: (
        c.add(owner="Job"),
        c.owners.update(
            {"jobs/it": {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}}
        ),
    ),
    "node-1 is cordoned": lambda c: (
        c.add(),
        c.nodes.update({"node-1": {"spec": {"unschedulable": True}}}),
    ),
    "not created a pod yet": lambda c: c.pods.clear(),
}  # fmt: skip


@pytest.mark.parametrize(("message", "arrange"), STATES.items(), ids=STATES.keys())
def test_what_an_operator_or_kubernetes_has_in_hand_is_left_alone(
    message: str, arrange: Any, cluster: Cluster, acting: Any
) -> None:
    arrange(cluster)
    with pytest.raises(NotEligibleError, match=message):
        acting().find_instances()
    with pytest.raises(NotEligibleError, match=message):
        acting().perform("mark", Steps())
    assert {method for method, _, _ in cluster.requests} == {"GET"}


def test_its_own_pod_is_never_deleted(
    cluster: Cluster, acting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add()
    monkeypatch.setattr("socket.gethostname", lambda: "trainer-0")
    with pytest.raises(NotEligibleError, match="remediator runs in this pod"):
        acting().find_instances()


def test_a_controller_of_an_unknown_kind_is_believed(cluster: Cluster, acting: Any) -> None:
    cluster.add(owner="PyTorchJob")
    assert acting().find_instances()


# eviction


def test_a_pod_is_evicted_by_its_uid(cluster: Cluster, acting: Any) -> None:
    cluster.add()
    old = cluster.uid()
    acting(evict=True).perform("mark", Steps())
    assert cluster.uid() != old
    (sent,) = (body for method, _, body in cluster.requests if method == "POST")
    assert sent["metadata"] == {"name": "trainer-0", "namespace": "training"}
    assert sent["deleteOptions"]["preconditions"] == {"uid": old}


def test_a_budget_that_forbids_it_is_waited_for(cluster: Cluster, acting: Any, time: Time) -> None:
    cluster.add()
    cluster.budget_allows = False
    action = acting(evict=True)
    with pytest.raises(ActionDeferredError):
        action.perform("mark", Steps(), action.find_instances())
    with pytest.raises(NotEligibleError, match="moments ago"):
        action.find_instances()
    successor = acting(evict=True)
    successor.take_over_from(action)
    with pytest.raises(NotEligibleError, match="moments ago"):
        successor.find_instances()
    time.now += RETRY_SECONDS
    cluster.budget_allows = True
    successor.perform("mark", Steps(), successor.find_instances())
    assert cluster.uid() == "uid-2"


# what the API server may answer


def test_a_delete_without_an_answer_is_not_taken_for_a_failure(
    cluster: Cluster, acting: Any
) -> None:
    cluster.add()
    cluster.hangs_up_on = "DELETE"
    with pytest.raises(OutcomeUnknownError, match="no response"):
        acting().perform("mark", Steps())
    assert len([one for one in cluster.requests if one[0] == "DELETE"]) == 1


def test_an_api_server_that_is_away_is_no_reason_to_act(cluster: Cluster, acting: Any) -> None:
    action = acting()
    cluster.close()
    with pytest.raises(ActionError, match="cannot reach") as caught:
        action.find_instances()
    assert not isinstance(caught.value, OutcomeUnknownError | NotEligibleError)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((403, b"{}"), "not allowed to get the pod: the API server responded with status 403"),
        ((302, b"{}"), "status 302"),
        ((500, b"{}"), "status 500"),
        ((200, b"<html>"), "is not a pod"),
        ((200, b"[]"), "is not a pod"),
        ((200, b'{"metadata": {}}'), "is not a pod"),
        ((200, b" " * 9_000_000), "exceeds 8 MiB"),
    ],
)
def test_an_invalid_answer_is_reported_and_no_action_starts(
    answer: tuple[int, bytes], message: str, cluster: Cluster, acting: Any
) -> None:
    cluster.instead = answer
    with pytest.raises(ActionError, match=message) as caught:
        acting().find_instances()
    assert not isinstance(caught.value, NotEligibleError)


def test_the_token_is_read_again_for_each_request_and_never_shown(
    cluster: Cluster, acting: Any, tmp_path: Path
) -> None:
    cluster.add()
    action = acting()
    (tmp_path / "token").write_text("secret-but-wrong\n")
    with pytest.raises(ActionError, match="status 401") as caught:
        action.find_instances()
    assert "secret" not in str(caught.value)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert action.find_instances()
    (tmp_path / "token").unlink()
    with pytest.raises(ActionError, match="No such file"):
        action.find_instances()


def test_a_pod_that_does_not_come_back_is_waited_for_no_longer_than_allowed(
    cluster: Cluster, acting: Any, time: Time
) -> None:
    cluster.add()
    cluster.recreates = False
    facts = acting(grace=10, start_timeout=50).perform("mark", Steps())
    assert facts["processes"] == []
    assert 60 <= time.now <= 62


def test_an_action_cut_short_is_settled_by_looking(cluster: Cluster, acting: Any) -> None:
    cluster.add()
    action = acting()
    before = action.find_instances()
    assert action.inspect("mark", before) is ActionState.UNTOUCHED
    cluster._delete("trainer-0")
    assert action.inspect("mark", before) is ActionState.STARTED
    assert action.finish("mark", Steps())["started_by"] == "another"


def test_what_the_api_server_says_of_an_ordinary_pod_is_enough() -> None:
    pod = parse_pod(b'{"metadata": {"name": "a", "uid": "u", "more": 1}, "kind": "Pod"}')
    assert (pod.identity, pod.controller, pod.has_ended) == ("pod a u, restart 0", None, False)
    assert parse_pods(b'{"items": []}') == ()


def test_a_list_of_pods_that_goes_on_is_no_choice() -> None:
    with pytest.raises(ActionError, match="more than 0 pods match"):
        parse_pods(b'{"items": [], "metadata": {"continue": "next"}}')


def test_the_environment_names_the_api_server_of_the_cluster() -> None:
    known = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert in_cluster_url(known) == "https://10.0.0.1:6443"
    assert in_cluster_url({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == "https://[fd00::1]:443"
    with pytest.raises(ActionError, match="not running in a pod"):
        in_cluster_url({})


def test_only_a_server_with_a_certificate_of_the_cluster_is_spoken_to(
    acting: Any, tmp_path: Path
) -> None:
    ours, stranger = Authority(tmp_path, "cluster"), Authority(tmp_path, "stranger")
    pair = ours.issue_server("api")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    cluster = Cluster(context)
    cluster.add()
    try:
        assert acting(url=cluster.url, ca_file=ours.cert_file).find_instances()
        with pytest.raises(ActionError, match="certificate verify failed"):
            acting(url=cluster.url, ca_file=stranger.cert_file).find_instances()
        with pytest.raises(ActionError, match="not a certificate"):
            acting(url=cluster.url, ca_file=tmp_path / "absent").find_instances()
    finally:
        cluster.close()


# configuration

CONFIG = """\
insecure: true
targets:
  - run: demo
    worker: trainer
    kubernetes: {content}
"""


def configured(folder: Path, content: Object) -> Target:
    (folder / "remediator.yml").write_text(CONFIG.format(content=json.dumps(content)))
    (target,) = load(folder / "remediator.yml", Config).targets
    return target


def test_a_pod_is_configured(tmp_path: Path) -> None:
    target = configured(tmp_path, {"namespace": "training", "selector": "app=trainer,rank=0"})
    assert target.restart_method.summary == "pod training/app=trainer,rank=0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"namespace": "training"}, "neither is set"),
        ({"namespace": "training", "pod": "a", "selector": "b=c"}, "both are set"),
        ({"namespace": "training", "selector": ""}, "should match"),
        ({"namespace": "training", "selector": "app=x&watch=true"}, "should match"),
        ({"namespace": "training", "pod": "../secrets/x"}, "should match"),
        ({"namespace": "kube-system", "pod": "a"}, "the cluster depends on it"),
        ({"namespace": "training", "pod": "prometheus"}, "is protected"),
        ({"namespace": "training", "pod": "a", "url": "https://me:pw@host"}, "only scheme, host"),
        ({"namespace": "training", "pod": "a", "url": "host:6443"}, "not the URL"),
    ],
)
def test_a_target_that_names_no_one_pod_is_refused(
    content: Object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(tmp_path, content)
