"""Waits for XIDs in a thread of its own, because the driver keeps no history to be asked for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread
from typing import Protocol

from trainwarden_exporter.gpu.nvmlerrors import GpuLostError, NvmlError
from trainwarden_exporter.gpu.nvmlquestions import Handle
from trainwarden_exporter.gpu.reading import GpuKey
from trainwarden_exporter.gpu.xid import XidCounts, describe

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.5
"""How long the driver is waited for at once, and so how long `stop` takes to be heard."""

USED_SECONDS = 300.0
"""Seconds for which a GPU is a worker's that had memory there: an XID often ends the worker, or
hangs what tells of its memory."""

PAUSE_SECONDS = 30.0
"""Time after which watching is tried again where it has failed."""


class Subscription(Protocol):
    """Where XIDs come from; see `nvml.Subscription`."""

    @property
    def lost(self) -> Collection[GpuKey]: ...
    def wait(self, seconds: float) -> tuple[GpuKey, int] | None: ...
    def close(self) -> None: ...


Subscribe = Callable[[Mapping[GpuKey, Handle]], Subscription]
User = tuple[str, ...]
"""The labels of a worker: run, worker, role."""


class XidWatch:
    """Counts the XIDs of the GPUs that it is told to watch.

    Its methods return at once, whatever the driver does: nothing is locked while that is waited
    for. A thread that has ended, for whatever reason, is replaced at the next `watch`, but not
    sooner than `PAUSE_SECONDS` after a failure; `watching` and `last_timestamp` say what it is
    worth.
    """

    def __init__(
        self,
        subscribe: Subscribe,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = XidCounts()
        self.wanted = False
        """Whether there has ever been a GPU to watch."""
        self.last_timestamp: float | None = None
        """When the driver last said that there is an XID, or none (unix seconds)."""
        self._subscribe = subscribe
        self._now = now
        self._clock = clock
        self._used: Mapping[tuple[GpuKey, User], float] = {}
        self._gpus: Mapping[GpuKey, Handle] = {}
        self._lost: frozenset[GpuKey] = frozenset()
        self._thread: Thread | None = None
        self._stop = Event()
        self._renew = Event()
        self._waiting = False
        self._failed_at: float | None = None

    @property
    def released(self) -> bool:
        """Whether nobody of this watch is inside the driver."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def watching(self) -> bool:
        """Whether XIDs are being waited for."""
        return self._waiting and not self.released and not self._stop.is_set()

    def watch(self, gpus: Mapping[GpuKey, Handle]) -> None:
        """Watch `gpus`, which the driver has now, besides those that were watched and are lost."""
        if not gpus:
            return
        self.wanted = True
        if not self.released:
            if not gpus.keys() <= self._gpus.keys() or self._lost & gpus.keys():
                self._gpus = {**self._gpus, **gpus}
                self._renew.set()
            return
        if self._failed_at is not None and self._clock() < self._failed_at + PAUSE_SECONDS:
            return
        self._gpus, self._stop = dict(gpus), Event()
        self._thread = Thread(target=self._run, args=[self._stop], name="watch XIDs", daemon=True)
        self._thread.start()

    def note_users(self, users: Collection[tuple[GpuKey, User]]) -> None:
        """Remember who has memory on which GPU now."""
        now = self._clock()
        recent = {one: at for one, at in self._used.items() if now - at <= USED_SECONDS}
        self._used = recent | dict.fromkeys(users, now)

    def users(self, gpu: GpuKey) -> tuple[User, ...]:
        """Who has, or had of late, memory on `gpu`."""
        now = self._clock()
        return tuple(
            user
            for (where, user), at in self._used.items()
            if where == gpu and now - at <= USED_SECONDS
        )

    def stop(self) -> None:
        """Ask it to end, because the driver is to be let go of; `released` tells when it has."""
        self._stop.set()
        self._failed_at = None

    def _run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                self._follow(stop)
        except Exception as error:
            if stop.is_set():
                return  # the driver has gone, and so has the wish to watch it
            if self._failed_at is None:
                expected = isinstance(error, NvmlError)
                log.warning(
                    "XIDs not watched",
                    extra={"error": str(error)},
                    exc_info=None if expected else error,
                )
            self._failed_at = self._clock()

    def _follow(self, stop: Event) -> None:
        """Wait until other GPUs are wanted, or one is lost, which spoils the waiting for all."""
        self._renew.clear()
        subscription = self._subscribe(self._gpus)
        self._lost = frozenset(subscription.lost)
        self._failed_at, self._waiting = None, True
        try:
            while not stop.is_set() and not self._renew.is_set():
                event = subscription.wait(WAIT_SECONDS)
                self.last_timestamp = now = self._now()
                if event is not None:
                    self._count(*event, now)
        except GpuLostError:
            stop.wait(0.1)  # not to spin, should the driver still let it be subscribed to
        finally:
            self._waiting = False
            subscription.close()

    def _count(self, gpu: GpuKey, code: int, now: float) -> None:
        self.counts.add(gpu, code, now)
        severity, meaning = describe(code)
        log.warning(
            "XID",
            extra={**gpu._asdict(), "xid": code, "severity": severity, "meaning": meaning},
        )
