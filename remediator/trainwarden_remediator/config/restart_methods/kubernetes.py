"""Restart method `kubernetes`: a Kubernetes pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.config_file.loader import LocatedError
from trainwarden_exporter.config_file.types import LocalPath, Seconds
from trainwarden_remediator.config.restart_methods.base import RestartMethod, refuse_protected

LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label (RFC 1123), the form of namespace names."""

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""A DNS subdomain (RFC 1123), the form of pod names."""

SELECTOR = r"^[A-Za-z0-9!][A-Za-z0-9_./=!,() -]*$"

SYSTEM = ("kube-system", "kube-public", "kube-node-lease")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory with the credentials of a pod's service account."""


def _refuse_system_namespace(namespace: str) -> str:
    if namespace in SYSTEM:
        raise ValueError(f"{namespace} is protected: the cluster depends on it")
    return namespace


def _server(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("not the URL of an API server: write https://host:port")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("write only scheme, host and port; the token goes into token_file")
    return url.rstrip("/")


class KubernetesTarget(RestartMethod):
    """A worker that runs in a pod; the pod is deleted and its controller creates a new one.

    The remediator does not act on a pod without a controller, which would never come back, on a pod
    that is being deleted, started or replaced, on a pod of a cordoned node, or if the controller is
    scaled to 0, suspended or finished.
    """

    renamed_keys: ClassVar[Mapping[str, str]] = {"starts_within": "start_timeout"}

    namespace: Annotated[
        str,
        StringConstraints(pattern=LABEL, max_length=63),
        AfterValidator(_refuse_system_namespace),
    ]
    """The namespace of the pod."""
    pod: (
        Annotated[
            str,
            StringConstraints(pattern=SUBDOMAIN, max_length=253),
            AfterValidator(refuse_protected),
        ]
        | None
    ) = None
    """The name of the pod, if it is stable (as in a StatefulSet)."""
    selector: Annotated[str, StringConstraints(pattern=SELECTOR, max_length=1000)] | None = None
    """A label selector that matches exactly one pod, such as `app=trainer,rank=0`, instead of a
    name."""
    evict: bool = False
    """Whether to evict the pod instead of deleting it: a PodDisruptionBudget can then delay it."""
    grace: Annotated[Seconds, Field(le=3600)] = 30
    """Seconds between SIGTERM and SIGKILL."""
    start_timeout: Seconds = 300
    """How long to wait for the replacement pod to run; then the action ends without it."""
    url: Annotated[str, AfterValidator(_server)] | None = None
    """The URL of the API server; default: that of the cluster in which the remediator runs."""
    token_file: LocalPath = ACCOUNT / "token"
    """The file with the bearer token; read again for each request, because tokens rotate hourly."""
    ca_file: LocalPath = ACCOUNT / "ca.crt"
    """The PEM file of the CA certificates that verify the API server."""

    @model_validator(mode="after")
    def _names_one_pod(self) -> Self:
        if (self.pod is None) == (self.selector is None):
            given = "both are" if self.pod is not None else "neither is"
            raise LocatedError(f"{given} set: set either pod or selector", "selector")
        return self

    def warnings(self) -> Iterable[str]:
        if not self.token_file.is_file():
            yield f"kubernetes.token_file: no such file: {self.token_file}"

    @property
    def summary(self) -> str:
        return f"pod {self.namespace}/{self.pod or self.selector}"
