"""What a pod is by what the API server says of it. Pure.

Source: kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from trainwarden_remediator.exceptions import ActionError


class _Owner(BaseModel):
    apiVersion: str  # noqa: N815 - Kubernetes' spelling
    kind: str
    name: str
    controller: bool = False


class _Metadata(BaseModel):
    name: str
    uid: str
    deletionTimestamp: str | None = None  # noqa: N815 - Kubernetes' spelling
    ownerReferences: list[_Owner] = []  # noqa: N815 - Kubernetes' spelling


class _Waiting(BaseModel):
    reason: str = ""


class _ContainerState(BaseModel):
    waiting: _Waiting | None = None


class _ContainerStatus(BaseModel):
    restartCount: int = 0  # noqa: N815 - Kubernetes' spelling
    state: _ContainerState = _ContainerState()


class _Status(BaseModel):
    phase: str = ""
    containerStatuses: list[_ContainerStatus] = []  # noqa: N815 - Kubernetes' spelling


class _Spec(BaseModel):
    nodeName: str = ""  # noqa: N815 - Kubernetes' spelling


class _Pod(BaseModel):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _PodList(BaseModel):
    items: list[_Pod]
    metadata: dict[str, Any] = {}


_POD = TypeAdapter(_Pod)
_PODS = TypeAdapter(_PodList)


@dataclass(frozen=True, slots=True)
class Controller:
    """Who makes a pod anew when it is gone."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `restarts` are those of its containers, in place."""

    name: str
    uid: str
    phase: str
    node: str
    restarts: int
    deleting: bool
    crash_loop: bool
    controller: Controller | None

    @property
    def identity(self) -> str:
        """What tells this run of it from every other."""
        return f"pod {self.name} {self.uid}, restart {self.restarts}"

    @property
    def over(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")


def parse_pod(body: bytes) -> Pod:
    """The pod in an answer. Raises ActionError."""
    try:
        return _as_pod(_POD.validate_json(body))
    except ValidationError as error:
        raise ActionError("the API server answered with something else than a pod") from error


def parse_pods(body: bytes) -> tuple[Pod, ...]:
    """The pods in an answer. Raises ActionError."""
    try:
        found = _PODS.validate_json(body)
    except ValidationError as error:
        raise ActionError("the API server answered with something else than pods") from error
    if found.metadata.get("continue"):
        raise ActionError(f"more than {len(found.items)} pods are selected, not one")
    return tuple(map(_as_pod, found.items))


def _as_pod(pod: _Pod) -> Pod:
    containers = pod.status.containerStatuses
    owner = next((one for one in pod.metadata.ownerReferences if one.controller), None)
    waiting = [one.state.waiting.reason for one in containers if one.state.waiting]
    return Pod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.nodeName,
        restarts=sum(one.restartCount for one in containers),
        deleting=pod.metadata.deletionTimestamp is not None,
        crash_loop="CrashLoopBackOff" in waiting,
        controller=None
        if owner is None
        else Controller(owner.apiVersion.partition("/")[0], owner.kind, owner.name),
    )


def left_alone(pod: Pod) -> str:
    """Why a pod must not be deleted as it stands, or nothing."""
    if pod.controller is None:
        return "it has no controller: nobody would make it anew"
    if pod.deleting:
        return "it is being deleted"
    if pod.phase == "Succeeded":
        return "it has completed"
    if pod.phase == "Failed":
        return "it has failed, which is for its controller to answer"
    if pod.phase == "Pending":
        return "it waits to be started"
    if pod.crash_loop:
        return "the kubelet is about to start it again"
    return ""


PLURALS: Mapping[tuple[str, str], str] = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
}
"""Controllers that a person may have told to stop, by group and kind."""


def stopped(controller: Controller, content: Mapping[str, Any]) -> str:
    """Why a controller, as the API server shows it, would not make a pod anew, or nothing."""
    spec, status = content.get("spec") or {}, content.get("status") or {}
    metadata = content.get("metadata") or {}
    told = f"its {controller.kind} {controller.name}"
    if metadata.get("deletionTimestamp"):
        return f"{told} is being deleted"
    if controller.kind == "Job":
        if spec.get("suspend"):
            return f"{told} is suspended"
        over = {one.get("type") for one in status.get("conditions") or () if _is_true(one)}
        return f"{told} is over" if over & {"Complete", "Failed"} else ""
    return f"{told} is scaled to 0" if spec.get("replicas") == 0 else ""


def _is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"
