"""A target that is a pod of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from trainwarden_exporter.units import LocalPath, Seconds
from trainwarden_exporter.yamlfile import MisplacedError
from trainwarden_remediator.means.base import Means
from trainwarden_remediator.means.protection import refuse_protected

LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label (RFC 1123), as names of namespaces are."""

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""A DNS subdomain, as names of pods are."""

SELECTOR = r"^[A-Za-z0-9!][A-Za-z0-9_./=!,() -]*$"

SYSTEM = ("kube-system", "kube-public", "kube-node-lease")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds what its service account is known by."""


def _not_of_the_system(namespace: str) -> str:
    if namespace in SYSTEM:
        raise ValueError(f"{namespace} is protected: it keeps the cluster alive")
    return namespace


def _server(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("not the URL of an API server: write https://host:port")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("write only scheme, host and port; the token goes into token_file")
    return url.rstrip("/")


class KubernetesTarget(Means):
    """A worker that is a pod, which is deleted for its controller to make it anew.

    A pod without a controller would never come back, and is left alone; so is one that is being
    deleted, started or replaced, one on a node that is cordoned, and one whose controller is scaled
    to 0, suspended or done.
    """

    namespace: Annotated[
        str,
        StringConstraints(pattern=LABEL, max_length=63),
        AfterValidator(_not_of_the_system),
    ]
    """Its namespace."""
    pod: (
        Annotated[
            str,
            StringConstraints(pattern=SUBDOMAIN, max_length=253),
            AfterValidator(refuse_protected),
        ]
        | None
    ) = None
    """Its name, where that stays (as in a StatefulSet);"""
    selector: Annotated[str, StringConstraints(pattern=SELECTOR, max_length=1000)] | None = None
    """or labels that select exactly one pod, such as `app=trainer,rank=0`."""
    evict: bool = False
    """Whether it is evicted in place of deleted: then a PodDisruptionBudget may put that off."""
    grace: Annotated[Seconds, Field(le=3600)] = 30
    """Seconds between SIGTERM and SIGKILL."""
    starts_within: Seconds = 300
    """How long it is waited for the pod that takes its place to run; then Kubernetes is left to
    it."""
    url: Annotated[str, AfterValidator(_server)] | None = None
    """The API server; that of the cluster the remediator runs in when not given."""
    token_file: LocalPath = ACCOUNT / "token"
    """A file with the bearer token; read anew for each request, for it is exchanged every hour."""
    ca_file: LocalPath = ACCOUNT / "ca.crt"
    """The certificate that the API server's is signed by."""

    @model_validator(mode="after")
    def _names_one_pod(self) -> Self:
        if (self.pod is None) == (self.selector is None):
            given = "both are" if self.pod is not None else "neither is"
            raise MisplacedError(f"{given} given: name the pod, or select it by labels", "selector")
        return self

    def doubts(self) -> Iterable[str]:
        if not self.token_file.is_file():
            yield f"kubernetes.token_file: no such file: {self.token_file}"

    @property
    def told(self) -> str:
        return f"pod {self.namespace}/{self.pod or self.selector}"
