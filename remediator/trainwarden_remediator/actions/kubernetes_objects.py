"""Pods and their controllers as the API server shows them, and whether they may be acted upon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AliasPath, BaseModel, Field, ValidationError

from trainwarden_remediator.exceptions import ActionError


class Controller(BaseModel):
    """The controller that recreates a deleted pod."""

    api_version: str = Field(alias="apiVersion")
    kind: str
    name: str
    manages: bool = Field(False, alias="controller")

    @property
    def group(self) -> str:
        """Returns the API group, such as `apps`."""
        return self.api_version.partition("/")[0]


class ContainerStatus(BaseModel):
    """A container of a pod. `waiting_reason`: why it does not run, or ""."""

    restarts: int = Field(0, alias="restartCount")
    waiting_reason: str = Field("", validation_alias=AliasPath("state", "waiting", "reason"))


class Pod(BaseModel):
    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    uid: str = Field(validation_alias=AliasPath("metadata", "uid"))
    deleted_at: str | None = Field(
        None, validation_alias=AliasPath("metadata", "deletionTimestamp")
    )
    owners: list[Controller] = Field([], validation_alias=AliasPath("metadata", "ownerReferences"))
    node: str = Field("", validation_alias=AliasPath("spec", "nodeName"))
    phase: str = Field("", validation_alias=AliasPath("status", "phase"))
    containers: list[ContainerStatus] = Field(
        [], validation_alias=AliasPath("status", "containerStatuses")
    )

    @property
    def identity(self) -> str:
        """Identifies this run of the pod, with the in-place restarts of its containers."""
        restarts = sum(container.restarts for container in self.containers)
        return f"pod {self.name} {self.uid}, restart {restarts}"

    @property
    def controller(self) -> Controller | None:
        return next((owner for owner in self.owners if owner.manages), None)

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None

    @property
    def has_ended(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")


class _PodList(BaseModel):
    items: list[Pod]
    metadata: dict[str, Any] = {}


def parse_pod(body: bytes) -> Pod:
    """Parses a Pod response. Raises ActionError."""
    try:
        return Pod.model_validate_json(body)
    except ValidationError as error:
        raise ActionError("the response of the API server is not a pod") from error


def parse_pods(body: bytes) -> tuple[Pod, ...]:
    """Parses a PodList response. Raises ActionError."""
    try:
        found = _PodList.model_validate_json(body)
    except ValidationError as error:
        raise ActionError("the response of the API server is not a list of pods") from error
    if found.metadata.get("continue"):
        raise ActionError(f"more than {len(found.items)} pods match, not one")
    return tuple(found.items)


def pod_blocker(pod: Pod) -> str:
    """Returns why a pod must not be deleted now, or ""."""
    if pod.controller is None:
        return "it has no controller that would recreate it"
    if pod.deleting:
        return "it is being deleted"
    if pod.phase == "Succeeded":
        return "it has completed"
    if pod.phase == "Failed":
        return "it has failed; its controller handles that"
    if pod.phase == "Pending":
        return "it is pending"
    if any(one.waiting_reason == "CrashLoopBackOff" for one in pod.containers):
        return "the kubelet is about to start it again"
    return ""


CONTROLLER_RESOURCES: Mapping[tuple[str, str], str] = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
}
"""API resources of the controllers that an operator can scale down or suspend."""


def controller_blocker(controller: Controller, content: Mapping[str, Any]) -> str:
    """Returns why a controller (`content`: its API object) would not recreate a pod, or ""."""
    spec, status = content.get("spec") or {}, content.get("status") or {}
    metadata = content.get("metadata") or {}
    name = f"its {controller.kind} {controller.name}"
    if metadata.get("deletionTimestamp"):
        return f"{name} is being deleted"
    if controller.kind == "Job":
        if spec.get("suspend"):
            return f"{name} is suspended"
        met = {one.get("type") for one in status.get("conditions") or () if _is_true(one)}
        return f"{name} is finished" if met & {"Complete", "Failed"} else ""
    return f"{name} is scaled to 0" if spec.get("replicas") == 0 else ""


def _is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"
