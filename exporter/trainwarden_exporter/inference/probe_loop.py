"""Runs the probes of all servers: one thread, one event loop, one task per server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock, Thread

from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget

log = logging.getLogger(__name__)

FIRST_ROUND_SECONDS = 1.0
"""Seconds for which the first caller waits for the first rounds."""

START_GAP_SECONDS = 0.01
"""Seconds between the first rounds of two servers, so that not all are probed at once."""

_RECONCILE_SECONDS = 5.0
_STALLED_SECONDS = 30.0


class ProbeLoop:
    """Runs a prober for each target in one daemon thread.

    With hundreds of servers, a thread for each would cost more than the probes, which mostly wait.
    All methods are thread-safe and return at once, except `latest`.
    """

    def __init__(self, build: Callable[[ServerTarget], Prober]) -> None:
        """`build` creates the prober of a target; it is called in the loop's thread."""
        self._build = build
        self._targets: tuple[ServerTarget, ...] = ()
        self._probers: dict[ServerTarget, Prober] = {}
        self._tasks: dict[ServerTarget, asyncio.Task[None]] = {}
        self._failed_targets: set[ServerTarget] = set()
        self._starting = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._closing = False
        self._thread: Thread | None = None
        self._started = self._last_turn = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether the thread and its loop are running."""
        is_turning = time.monotonic() - self._last_turn < _STALLED_SECONDS
        return self._thread is not None and self._thread.is_alive() and is_turning

    def set_targets(self, targets: Iterable[ServerTarget]) -> None:
        """Sets the targets. Targets that are already probed keep their state."""
        self._targets = tuple(dict.fromkeys(targets))
        self._wake()

    def start(self) -> None:
        """Starts the thread; idempotent."""
        with self._starting:
            if self._thread is None:
                self._started = self._last_turn = time.monotonic()
                self._thread = Thread(target=self._run, name="inference probes", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stops all probes and cancels running ones. Returns when the thread has ended."""
        self._closing = True
        self._wake()
        if self._thread is not None:
            self._thread.join(5)

    def latest(
        self, *, wait_seconds: float = FIRST_ROUND_SECONDS
    ) -> Mapping[ServerTarget, ServerHealth | None]:
        """Returns the last health of each target; None before its first probe.

        Waits for the first rounds until the loop is `wait_seconds` old.
        """
        self.start()
        while True:
            probers = self._probers
            found = {
                target: probers[target].health if target in probers else None
                for target in self._targets
            }
            if None not in found.values() or time.monotonic() > self._started + wait_seconds:
                return found
            time.sleep(START_GAP_SECONDS)

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._changed.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._supervise())
        except BaseException:
            log.exception("inference probes stopped")
            raise

    async def _supervise(self) -> None:
        """Keeps one task per target running, and replaces failed ones."""
        self._loop = asyncio.get_running_loop()
        try:
            while not self._closing:
                self._last_turn = time.monotonic()
                self._changed.clear()
                self._reconcile()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), _RECONCILE_SECONDS)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _reconcile(self) -> None:
        wanted = self._targets
        for target in [target for target in self._tasks if target not in wanted]:
            self._tasks.pop(target).cancel()
        probers = {target: one for target, one in self._probers.items() if target in wanted}
        fresh = [target for target in wanted if target not in self._tasks]
        for index, target in enumerate(fresh):
            prober = probers.get(target) or self._build_prober(target)
            if prober is None:
                continue
            probers[target] = prober
            delay = index * min(START_GAP_SECONDS, target.config.interval / (2 * len(fresh)))
            task = asyncio.create_task(prober.run(delay), name=f"probe {target.server}")
            task.add_done_callback(self._on_task_done)
            self._tasks[target] = task
        self._probers = probers

    def _build_prober(self, target: ServerTarget) -> Prober | None:
        """Returns the prober of `target`; None if it cannot be built, which is logged once."""
        try:
            return self._build(target)
        except Exception:
            if target not in self._failed_targets:
                log.exception("cannot probe inference server", extra={"server": target.server})
                self._failed_targets.add(target)
            return None

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._closing:
            return
        log.error("inference probe ended; starting it again", exc_info=task.exception())
        self._tasks = {target: one for target, one in self._tasks.items() if one is not task}
        self._changed.set()
