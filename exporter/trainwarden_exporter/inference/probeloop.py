"""All probes of all servers: one thread, one event loop, one task for each server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock, Thread

from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.target import Sighting, Target

log = logging.getLogger(__name__)

FIRST_LOOK = 1.0
"""Seconds for which whoever asks first waits for the first rounds."""

GAP = 0.01
"""Seconds from one server's first round to the next one's, so that not all are asked at once."""

_TURN = 5.0
_OVERDUE = 30.0


class ProbeLoop:
    """Runs a prober for each target, in a daemon thread of its own.

    A thread for each of hundreds of servers would cost more than all they do, which is to wait. Its
    methods may be called from any thread and return at once, but for `seen`.
    """

    def __init__(self, build: Callable[[Target], Prober]) -> None:
        """`build` makes the prober of a target; it is called in the loop's thread."""
        self._build = build
        self._wanted: tuple[Target, ...] = ()
        self._probers: dict[Target, Prober] = {}
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._unbuilt: set[Target] = set()
        self._starting = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._closing = False
        self._thread: Thread | None = None
        self._started = self._turned = 0.0

    @property
    def alive(self) -> bool:
        """Whether it probes: the thread runs, and its loop turns."""
        turns = time.monotonic() - self._turned < _OVERDUE
        return self._thread is not None and self._thread.is_alive() and turns

    def set(self, targets: Iterable[Target]) -> None:
        """Watch these from now on. One that is watched already goes on with all that is known."""
        self._wanted = tuple(dict.fromkeys(targets))
        self._wake()

    def start(self) -> None:
        """Begin; does nothing where that has happened."""
        with self._starting:
            if self._thread is None:
                self._started = self._turned = time.monotonic()
                self._thread = Thread(target=self._run, name="inference probes", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Probe no more; what is under way is cancelled. Returns when the thread has ended."""
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(5)

    def seen(self, *, patience: float = FIRST_LOOK) -> Mapping[Target, Sighting | None]:
        """What was last seen of each target; None of one that has not been looked at yet.

        First rounds are waited for until the loop is `patience` seconds old.
        """
        self.start()
        while True:
            probers = self._probers
            found = {
                target: probers[target].sighting if target in probers else None
                for target in self._wanted
            }
            if None not in found.values() or time.monotonic() > self._started + patience:
                return found
            time.sleep(GAP)

    def _wake(self) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._changed.set)
            except RuntimeError:  # closed in this very moment
                return

    def _run(self) -> None:
        try:
            asyncio.run(self._supervise())
        except BaseException:
            log.exception("inference servers are not probed any more")
            raise

    async def _supervise(self) -> None:
        """Keep one task for each wanted target, whatever becomes of it."""
        self._loop = asyncio.get_running_loop()
        try:
            while not self._closing:
                self._turned = time.monotonic()
                self._changed.clear()
                self._reconcile()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _TURN)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _reconcile(self) -> None:
        wanted = self._wanted
        for target in [target for target in self._tasks if target not in wanted]:
            self._tasks.pop(target).cancel()
        probers = {target: one for target, one in self._probers.items() if target in wanted}
        fresh = [target for target in wanted if target not in self._tasks]
        for index, target in enumerate(fresh):
            prober = probers.get(target) or self._built(target)
            if prober is None:
                continue
            probers[target] = prober
            delay = index * min(GAP, target.config.interval / (2 * len(fresh)))
            task = asyncio.create_task(prober.run(delay), name=f"probe {target.server}")
            task.add_done_callback(self._ended)
            self._tasks[target] = task
        self._probers = probers

    def _built(self, target: Target) -> Prober | None:
        """The prober of `target`; None where there can be none, which is said once."""
        try:
            return self._build(target)
        except Exception:
            if target not in self._unbuilt:
                log.exception("server cannot be probed", extra={"server": target.server})
                self._unbuilt.add(target)
            return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._closing:
            return
        log.error("a probe ended, and is begun again", exc_info=task.exception())
        self._tasks = {target: one for target, one in self._tasks.items() if one is not task}
        self._changed.set()
