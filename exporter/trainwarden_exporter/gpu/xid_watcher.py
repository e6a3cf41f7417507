"""Watches XIDs in a thread of its own, because the driver keeps no history of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread
from typing import Protocol

from trainwarden_exporter.gpu.model import GpuKey
from trainwarden_exporter.gpu.nvml_calls import GpuLostError, Handle, NvmlError
from trainwarden_exporter.gpu.xid import XidCounts, describe

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""Maximum duration of one wait for the driver, and thus the delay of `stop`."""

USER_TTL_SECONDS = 300.0
"""Seconds for which a worker still counts as a user of a GPU after it held memory there: an XID
often ends the worker, or blocks the readings of its memory."""

RETRY_SECONDS = 30.0
"""Seconds after which a failed watch is retried."""


class Subscription(Protocol):
    """Source of XIDs; see `nvml_library`."""

    @property
    def lost(self) -> Collection[GpuKey]: ...
    def wait(self, seconds: float) -> tuple[GpuKey, int] | None: ...
    def close(self) -> None: ...


Subscribe = Callable[[Mapping[GpuKey, Handle]], Subscription]
User = tuple[str, ...]
"""Labels of a worker: run, worker, role."""


class XidWatcher:
    """Counts XIDs of the watched GPUs.

    Methods return at once, whatever the driver does: no lock is held during a wait. A thread that
    has ended is replaced at the next `watch`, but not before `RETRY_SECONDS` after a failure;
    `watching` and `last_timestamp` show whether it works.
    """

    def __init__(
        self,
        subscribe: Subscribe,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = XidCounts()
        self.has_gpus = False
        """Whether any GPU was ever watched."""
        self.last_timestamp: float | None = None
        """Last answer of the driver, with or without an XID (Unix seconds)."""
        self._subscribe = subscribe
        self._now = now
        self._clock = clock
        self._last_used: Mapping[tuple[GpuKey, User], float] = {}
        self._gpus: Mapping[GpuKey, Handle] = {}
        self._lost: frozenset[GpuKey] = frozenset()
        self._thread: Thread | None = None
        self._stop = Event()
        self._resubscribe = Event()
        self._waiting = False
        self._failed_at: float | None = None

    @property
    def released(self) -> bool:
        """Whether no thread of this watcher is inside the driver library."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def watching(self) -> bool:
        return self._waiting and not self.released and not self._stop.is_set()

    def watch(self, gpus: Mapping[GpuKey, Handle]) -> None:
        """Watches `gpus`, the current ones, in addition to watched GPUs that are lost."""
        if not gpus:
            return
        self.has_gpus = True
        if not self.released:
            if not gpus.keys() <= self._gpus.keys() or self._lost & gpus.keys():
                self._gpus = {**self._gpus, **gpus}
                self._resubscribe.set()
            return
        if self._failed_at is not None and self._clock() < self._failed_at + RETRY_SECONDS:
            return
        self._gpus, self._stop = dict(gpus), Event()
        self._thread = Thread(target=self._run, args=[self._stop], name="watch XIDs", daemon=True)
        self._thread.start()

    def update_users(self, users: Collection[tuple[GpuKey, User]]) -> None:
        """Records the workers that hold memory on each GPU."""
        now = self._clock()
        recent = {one: at for one, at in self._last_used.items() if now - at <= USER_TTL_SECONDS}
        self._last_used = recent | dict.fromkeys(users, now)

    def users(self, gpu: GpuKey) -> tuple[User, ...]:
        """Returns the current and recent users of `gpu`."""
        now = self._clock()
        return tuple(
            user
            for (where, user), at in self._last_used.items()
            if where == gpu and now - at <= USER_TTL_SECONDS
        )

    def stop(self) -> None:
        """Requests the end, before the driver is shut down; `released` shows completion."""
        self._stop.set()
        self._failed_at = None

    def _run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                self._wait_for_events(stop)
        except Exception as error:
            if stop.is_set():
                return  # expected: the driver is shut down
            if self._failed_at is None:
                trace = None if isinstance(error, NvmlError) else error
                log.warning("XIDs not watched", extra={"error": str(error)}, exc_info=trace)
            self._failed_at = self._clock()

    def _wait_for_events(self, stop: Event) -> None:
        """Counts XIDs until the set of GPUs changes or a GPU is lost, which fails all waits."""
        self._resubscribe.clear()
        subscription = self._subscribe(self._gpus)
        self._lost = frozenset(subscription.lost)
        self._failed_at, self._waiting = None, True
        try:
            while not stop.is_set() and not self._resubscribe.is_set():
                event = subscription.wait(WAIT_SECONDS)
                self.last_timestamp = now = self._now()
                if event is not None:
                    self._count(*event, now)
        except GpuLostError:
            stop.wait(0.1)  # no busy loop if the driver still accepts the lost GPU
        finally:
            self._waiting = False
            subscription.close()

    def _count(self, gpu: GpuKey, code: int, now: float) -> None:
        self.counts.add(gpu, code, now)
        severity, meaning = describe(code)
        fields = {**gpu._asdict(), "xid": code, "severity": severity, "meaning": meaning}
        log.warning("XID", extra=fields)
