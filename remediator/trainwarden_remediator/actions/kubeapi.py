"""Asks the API server of Kubernetes, one short request at a time."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from trainwarden_remediator.actions.podstate import (
    PLURALS,
    Controller,
    Pod,
    parse_pod,
    parse_pods,
    stopped,
)
from trainwarden_remediator.exceptions import (
    ActionError,
    AmbiguousError,
    LeftAloneError,
    NotNowError,
    SecretError,
)
from trainwarden_remediator.means.kubernetes import KubernetesTarget
from trainwarden_remediator.secretfile import read_secret

ANSWER_SECONDS = 10.0
LARGEST_ANSWER = 8 << 20
MOST_PODS = 20
"""More than a selector that is to find one may ever find."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def content(self) -> Mapping[str, Any]:
        """The object in it. Raises ActionError."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ActionError("the API server answered with something else than an object")
        return found


class KubeApi:
    """The API server, with the rights of the account whose token is in the file.

    All methods block, and raise ActionError.
    """

    def __init__(self, target: KubernetesTarget) -> None:
        self._target = target

    def pods(self) -> tuple[Pod, ...]:
        """Those that the target may be: the one of its name, or all that its labels select."""
        if self._target.pod is not None:
            answer = self._ask("GET", self._pod(self._target.pod))
            if answer.status == http.client.NOT_FOUND:
                return ()
            return (parse_pod(self._good(answer, "look at the pod")),)
        query = urlencode({"labelSelector": self._target.selector, "limit": MOST_PODS})
        answer = self._ask("GET", f"{self._pod('')}?{query}")
        return parse_pods(self._good(answer, "list the pods"))

    def cordoned(self, node: str) -> bool:
        """Whether no pod is to be put on that node."""
        answer = self._ask("GET", f"/api/v1/nodes/{quote(node, safe='')}")
        self._good(answer, "look at the node")
        return bool((answer.content.get("spec") or {}).get("unschedulable"))

    def stopped(self, controller: Controller) -> str:
        """Why it would not make a pod anew, or nothing; of kinds that are not known, nothing."""
        plural = PLURALS.get((controller.group, controller.kind))
        if plural is None:
            return ""
        place = f"/apis/{controller.group}/v1/namespaces/{self._target.namespace}/{plural}"
        answer = self._ask("GET", f"{place}/{quote(controller.name, safe='')}")
        if answer.status == http.client.NOT_FOUND:
            return f"its {controller.kind} {controller.name} is gone"
        self._good(answer, f"look at the {controller.kind}")
        return stopped(controller, answer.content)

    def delete(self, pod: Pod) -> None:
        """Delete exactly this pod, and never one that has taken its name.

        Raises LeftAloneError, NotNowError where it may not be now, and AmbiguousError where no
        answer came.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
            "gracePeriodSeconds": round(self._target.grace),
        }
        if self._target.evict:
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": self._target.namespace},
                "deleteOptions": options,
            }
            answer = self._ask("POST", f"{self._pod(pod.name)}/eviction", eviction)
        else:
            answer = self._ask("DELETE", self._pod(pod.name), options)
        match answer.status:
            case http.client.NOT_FOUND:
                raise LeftAloneError("it is gone already")
            case http.client.CONFLICT:
                raise LeftAloneError("another pod has taken its name")
            case http.client.TOO_MANY_REQUESTS:
                raise NotNowError("Kubernetes does not allow it now")
            case status if status >= http.client.INTERNAL_SERVER_ERROR:
                raise AmbiguousError(f"the API server answered {status} when told to delete it")
        self._good(answer, "delete the pod")

    def _pod(self, name: str) -> str:
        place = f"/api/v1/namespaces/{self._target.namespace}/pods"
        return f"{place}/{quote(name, safe='')}" if name else place

    def _good(self, answer: Answer, doing: str) -> bytes:
        if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise ActionError(f"may not {doing}: the API server answered {answer.status}")
        if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
            raise ActionError(f"cannot {doing}: the API server answered {answer.status}")
        return answer.body

    def _ask(
        self,
        method: Literal["GET", "POST", "DELETE"],
        place: str,
        content: Mapping[str, object] | None = None,
    ) -> Answer:
        try:
            headers = {"Authorization": f"Bearer {read_secret(self._target.token_file)}"}
        except SecretError as error:
            raise ActionError(str(error)) from error
        headers |= {"Accept": "application/json", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        connection = self._connection()
        try:
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                raise ActionError(f"cannot reach the API server: {_sentence(error)}") from error
            try:
                connection.request(method, place, body, headers)
                with connection.getresponse() as answer:
                    data = answer.read(LARGEST_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                kind = ActionError if method == "GET" else AmbiguousError
                raise kind(f"no answer from the API server: {_sentence(error)}") from error
        finally:
            connection.close()
        if len(data) > LARGEST_ANSWER:
            raise ActionError("the API server answered with more than 8 MiB")
        return Answer(answer.status, data)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._target.url or server_of_this_cluster())
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        try:
            context = ssl.create_default_context(cafile=self._target.ca_file)
        except OSError as error:
            raise ActionError(f"{self._target.ca_file}: no certificate: {error}") from error
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=context)


def server_of_this_cluster(environment: Mapping[str, str] = os.environ) -> str:
    """The API server as every pod is told of it. Raises ActionError outside of a cluster."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ActionError("this is no pod of a cluster: name the API server by `url`")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
