"""A minimal client of the Kubernetes API, one short request at a time."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

from trainwarden_remediator.actions.kubernetes_objects import (
    CONTROLLER_RESOURCES,
    Controller,
    Pod,
    controller_blocker,
    parse_pod,
    parse_pods,
)
from trainwarden_remediator.config.restart_methods.kubernetes import KubernetesTarget
from trainwarden_remediator.credentials.outgoing import read_secret
from trainwarden_remediator.exceptions import (
    ActionDeferredError,
    ActionError,
    NotEligibleError,
    OutcomeUnknownError,
    SecretError,
)

ANSWER_SECONDS = 10.0

MAX_RESPONSE_BYTES = 8 << 20

MAX_PODS = 20
"""The maximum number of pods to list for a selector that should match one."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    status: int
    body: bytes

    @property
    def content(self) -> Mapping[str, Any]:
        """The JSON object in the body. Raises ActionError."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ActionError("the response of the API server is not an object")
        return found


class KubernetesApi:
    """Client of the API server with the token of the configured file.

    All methods block and raise ActionError.
    """

    def __init__(self, target: KubernetesTarget) -> None:
        self._target = target

    def pods(self) -> tuple[Pod, ...]:
        """Returns the pod of the configured name, or all pods that the selector matches."""
        if self._target.pod is not None:
            response = self._request("GET", self._pod(self._target.pod))
            if response.status == http.client.NOT_FOUND:
                return ()
            return (parse_pod(self._require_success(response, "get the pod")),)
        query = urlencode({"labelSelector": self._target.selector, "limit": MAX_PODS})
        response = self._request("GET", f"{self._pod('')}?{query}")
        return parse_pods(self._require_success(response, "list the pods"))

    def cordoned(self, node: str) -> bool:
        """Whether a node is cordoned (unschedulable)."""
        response = self._request("GET", f"/api/v1/nodes/{quote(node, safe='')}")
        self._require_success(response, "get the node")
        return bool((response.content.get("spec") or {}).get("unschedulable"))

    def controller_blocker(self, controller: Controller) -> str:
        """Returns why a controller would not recreate a pod, or "" (also for unknown kinds)."""
        plural = CONTROLLER_RESOURCES.get((controller.group, controller.kind))
        if plural is None:
            return ""
        path = f"/apis/{controller.group}/v1/namespaces/{self._target.namespace}/{plural}"
        response = self._request("GET", f"{path}/{quote(controller.name, safe='')}")
        if response.status == http.client.NOT_FOUND:
            return f"its {controller.kind} {controller.name} is gone"
        self._require_success(response, f"get the {controller.kind}")
        return controller_blocker(controller, response.content)

    def delete(self, pod: Pod) -> None:
        """Deletes exactly this pod, never another pod of the same name.

        Raises NotEligibleError if the pod is gone, ActionDeferredError if Kubernetes refuses for
        now, and OutcomeUnknownError without a response.
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
            response = self._request("POST", f"{self._pod(pod.name)}/eviction", eviction)
        else:
            response = self._request("DELETE", self._pod(pod.name), options)
        match response.status:
            case http.client.NOT_FOUND:
                raise NotEligibleError("the pod is already gone")
            case http.client.CONFLICT:
                raise NotEligibleError("another pod has the same name now")
            case http.client.TOO_MANY_REQUESTS:
                raise ActionDeferredError("Kubernetes refuses the deletion for now")
            case status if status >= http.client.INTERNAL_SERVER_ERROR:
                message = f"the API server responded with status {status} to the deletion"
                raise OutcomeUnknownError(message)
        self._require_success(response, "delete the pod")

    def _pod(self, name: str) -> str:
        path = f"/api/v1/namespaces/{self._target.namespace}/pods"
        return f"{path}/{quote(name, safe='')}" if name else path

    def _require_success(self, response: ApiResponse, operation: str) -> bytes:
        status = response.status
        if http.client.OK <= status < http.client.MULTIPLE_CHOICES:
            return response.body
        denied = status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN)
        failed = f"not allowed to {operation}" if denied else f"cannot {operation}"
        raise ActionError(f"{failed}: the API server responded with status {status}")

    def _request(
        self,
        method: Literal["GET", "POST", "DELETE"],
        path: str,
        content: Mapping[str, object] | None = None,
    ) -> ApiResponse:
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
                raise ActionError(f"cannot reach the API server: {_error_text(error)}") from error
            try:
                connection.request(method, path, body, headers)
                with connection.getresponse() as response:
                    data = response.read(MAX_RESPONSE_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                kind = ActionError if method == "GET" else OutcomeUnknownError
                raise kind(f"no response from the API server: {_error_text(error)}") from error
        finally:
            connection.close()
        if len(data) > MAX_RESPONSE_BYTES:
            raise ActionError("the response of the API server exceeds 8 MiB")
        return ApiResponse(response.status, data)

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._target.url or in_cluster_url())
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        try:
            context = ssl.create_default_context(cafile=self._target.ca_file)
        except OSError as error:
            raise ActionError(f"{self._target.ca_file}: not a certificate: {error}") from error
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=context)


def in_cluster_url(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the API server's URL from a pod's environment. Raises ActionError without one."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ActionError("not running in a pod: set `url` to the API server")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
