"""Deletes a worker's pod, for its controller to make it anew."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from trainwarden_remediator.actions.base import Action, Announce
from trainwarden_remediator.actions.kubeapi import KubeApi
from trainwarden_remediator.actions.managed import Kept, ManagedAction
from trainwarden_remediator.actions.podstate import Pod, left_alone
from trainwarden_remediator.exceptions import ActionError, NotNowError
from trainwarden_remediator.means.kubernetes import KubernetesTarget
from trainwarden_remediator.targets import Target

LOOK_SECONDS = 1.0
"""How often it is looked whether another has taken its place."""

AGAIN_SECONDS = 30.0
"""After Kubernetes has not allowed it, it is asked again no sooner than this."""

NOTHING = "no pod"
"""What the worker is told by while there is no pod of it."""


class KubernetesAction(ManagedAction):
    """Acts on exactly one pod, by its uid."""

    in_one = True

    def __init__(
        self,
        target: Target,
        kubernetes: KubernetesTarget,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, sleep=sleep)
        self._kubernetes = kubernetes
        self._api = KubeApi(kubernetes)
        self._clock = clock
        self._not_before: float | None = None

    def look(self) -> Kept:
        pod = self._pod()
        if pod is None:
            return Kept(NOTHING, running=False, hands_off="its controller has not made one yet")
        return Kept(pod.identity, running=not pod.over, hands_off=self._hands_off(pod))

    def restart(self, kept: Kept, mark: str, announce: Announce) -> None:
        pod = self._pod()
        if pod is None or pod.identity != kept.identity:
            raise ActionError(f"it has changed meanwhile: {pod.identity if pod else NOTHING}")
        announce("restart", manager="kubernetes", what=f"pod {pod.name}", uid=pod.uid)
        try:
            self._api.delete(pod)
        except NotNowError:
            self._not_before = self._clock() + AGAIN_SECONDS
            raise
        self._await_another(pod)

    def start(self, kept: Kept, mark: str, announce: Announce) -> None:
        raise ActionError("only its controller makes a pod")

    def adopt(self, predecessor: Action) -> None:
        if isinstance(predecessor, KubernetesAction):
            self._not_before = predecessor._not_before  # noqa: SLF001 - one of its own kind

    def _hands_off(self, pod: Pod) -> str:
        if self._not_before is not None and self._clock() < self._not_before:
            return "Kubernetes has not allowed it a moment ago"
        if pod.name == socket.gethostname():
            return "it is the remediator's own"
        if (why := left_alone(pod)) or pod.controller is None:
            return why
        if why := self._api.stopped(pod.controller):
            return why
        if pod.node and self._api.cordoned(pod.node):
            return f"its node {pod.node} is cordoned"
        return ""

    def _pod(self) -> Pod | None:
        """The one pod; of those that are on their way out only where there is no other."""
        pods = self._api.pods()
        staying = [pod for pod in pods if not pod.deleting and not pod.over]
        found = staying or [pod for pod in pods if pod.deleting] or list(pods)
        if len(staying) > 1:
            names = ", ".join(sorted(pod.name for pod in found)[:5])
            raise ActionError(f"{len(found)} pods are selected ({names}), not one")
        return found[0] if found else None

    def _await_another(self, gone: Pod) -> None:
        """Wait for the pod that takes its place to run; that it does is Kubernetes' own concern."""
        deadline = self._clock() + self._kubernetes.grace + self._kubernetes.starts_within
        while self._clock() < deadline:
            with suppress(ActionError):  # two at once, for a moment, or no answer
                pod = self._pod()
                if pod is not None and pod.uid != gone.uid and pod.phase == "Running":
                    return
            self._sleep(LOOK_SECONDS)
