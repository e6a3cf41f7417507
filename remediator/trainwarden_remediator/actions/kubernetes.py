"""Restarts a worker in a pod: deletes the pod, for its controller to create a new one."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress

from trainwarden_remediator.actions.base import RecordStep
from trainwarden_remediator.actions.kubernetes_api import KubernetesApi
from trainwarden_remediator.actions.kubernetes_objects import Pod, pod_blocker
from trainwarden_remediator.actions.manager_target import ManagedAction, ManagedInstance
from trainwarden_remediator.config.restart_methods.kubernetes import KubernetesTarget
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ActionDeferredError, ActionError

POLL_SECONDS = 1.0
"""Time between two checks for the replacement pod."""

RETRY_SECONDS = 30.0
"""Minimum time before a retry after Kubernetes has refused a deletion."""

NO_POD = "no pod"
"""The identity of a worker without a pod."""


class KubernetesAction(ManagedAction[KubernetesTarget]):
    """Restarts exactly one pod, identified by its UID."""

    restarts_atomically = True

    def __init__(
        self,
        target: Target,
        kubernetes: KubernetesTarget,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(target, kubernetes, sleep=sleep, clock=clock)
        self._api = KubernetesApi(kubernetes)

    def read_instance(self) -> ManagedInstance:
        pod = self._pod()
        if pod is None:
            blocker = "its controller has not created a pod yet"
            return ManagedInstance(NO_POD, running=False, blocker=blocker)
        return ManagedInstance(pod.identity, running=not pod.has_ended, blocker=self._blocker(pod))

    def restart(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        pod = self._pod()
        if pod is None or pod.identity != instance.identity:
            raise ActionError(f"the pod has changed: {pod.identity if pod else NO_POD}")
        record_step("restart", manager="kubernetes", what=f"pod {pod.name}", uid=pod.uid)
        try:
            self._api.delete(pod)
        except ActionDeferredError:
            self._not_before = self._clock() + RETRY_SECONDS
            raise
        self._wait_for_replacement(pod)

    def start(self, instance: ManagedInstance, token: str, record_step: RecordStep) -> None:
        raise ActionError("only its controller can create a pod")

    def _blocker(self, pod: Pod) -> str:
        if self._is_deferred:
            return "Kubernetes refused the deletion moments ago"
        if pod.name == socket.gethostname():
            return "the remediator runs in this pod"
        if (blocker := pod_blocker(pod)) or pod.controller is None:
            return blocker
        if blocker := self._api.controller_blocker(pod.controller):
            return blocker
        if pod.node and self._api.cordoned(pod.node):
            return f"its node {pod.node} is cordoned"
        return ""

    def _pod(self) -> Pod | None:
        """Returns the pod, or None; a pod that is deleted or has ended only if there is no other.

        Raises ActionError if several pods match.
        """
        pods = self._api.pods()
        staying = [pod for pod in pods if not pod.deleting and not pod.has_ended]
        found = staying or [pod for pod in pods if pod.deleting] or list(pods)
        if len(staying) > 1:
            names = ", ".join(sorted(pod.name for pod in found)[:5])
            raise ActionError(f"{len(found)} pods match ({names}), not one")
        return found[0] if found else None

    def _wait_for_replacement(self, gone: Pod) -> None:
        """Waits for the replacement pod to run; a timeout is not an error."""
        deadline = self._clock() + self._method.grace + self._method.start_timeout
        while self._clock() < deadline:
            with suppress(ActionError):  # temporarily two pods, or no response
                pod = self._pod()
                if pod is not None and pod.uid != gone.uid and pod.phase == "Running":
                    return
            self._sleep(POLL_SECONDS)
