"""The life of a long-running program: start, be ready, reload on SIGHUP, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trainwarden_exporter.exceptions import ConfigError, TrainwardenError
from trainwarden_exporter.serving import sdnotify

log = logging.getLogger(__name__)

DRAIN_LIMIT = 20.0
"""Seconds that requests under way have to finish once the program is told to stop."""

Run = Callable[[], Coroutine[Any, Any, None]]


class Server(Protocol):
    """What takes requests from the network."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses as bound."""

    async def start(self) -> None:
        """Listen. Raises ConfigError or OSError when that cannot be."""

    async def close(self) -> None:
        """Stop listening, let requests under way finish; may be called twice."""


@dataclass(slots=True)
class Readiness:
    """Whether the program takes work: not before it has started, and not while it drains."""

    ready: bool = False


class BackgroundEndedError(TrainwardenError):
    """A background task that should run for ever has ended; the program cannot go on without it."""


async def serve(
    server: Server,
    *,
    readiness: Readiness,
    reload: Run,
    background: Mapping[str, Run] | None = None,
    alive: Callable[[], bool] = lambda: True,
    drain_limit: float = DRAIN_LIMIT,
) -> None:
    """Run `server` until SIGTERM or SIGINT, then drain and return; SIGHUP calls `reload`.

    `reload` logs its own ConfigError; it is not the end of the program. Each function in
    `background` is started once the server listens, should never return, and is cancelled after
    the server has closed. A second signal to stop, or `drain_limit` seconds, cuts draining short.
    While `alive` says no, a service manager that asks for beats gets none, and starts it anew.

    Raises what `server.start` raises, BackgroundEndedError when a background task returns, and what
    a background task raises.
    """
    stop, hurry, hang_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_to_stop() -> None:
        (hurry if stop.is_set() else stop).set()

    handlers = {
        signal.SIGTERM: told_to_stop,
        signal.SIGINT: told_to_stop,
        signal.SIGHUP: hang_up.set,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    await server.start()
    tasks = [
        asyncio.create_task(_for_ever(name, run), name=name)
        for name, run in {
            "reload on hang-up": lambda: _reload_on(hang_up, reload),
            "watchdog": lambda: _watchdog(alive),
            **(background or {}),
        }.items()
    ]
    try:
        readiness.ready = True
        sdnotify.notify(sdnotify.READY)
        for host, port in server.addresses:
            log.info("listening", extra={"host": host, "port": port})
        await _first_of(asyncio.create_task(stop.wait(), name="stop"), *tasks)
    finally:
        readiness.ready = False
        sdnotify.notify(sdnotify.STOPPING)
        log.info("stopping")
        try:
            await _drain(server, hurry, drain_limit)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in handlers:
                loop.remove_signal_handler(number)
    log.info("stopped")


async def _first_of(stop: asyncio.Task[bool], *tasks: asyncio.Task[None]) -> None:
    """Wait until told to stop; raise what ended a task before that."""
    try:
        done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    for task in tasks:
        if task in done:
            task.result()


async def _for_ever(name: str, run: Run) -> None:
    await run()
    raise BackgroundEndedError(f"{name} ended")


async def _drain(server: Server, hurry: asyncio.Event, limit: float) -> None:
    closing = asyncio.create_task(server.close(), name="close")
    hurried = asyncio.create_task(hurry.wait(), name="hurry")
    done, _ = await asyncio.wait(
        {closing, hurried}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
    )
    hurried.cancel()
    if closing not in done:
        log.warning("stopping with requests under way")
        closing.cancel()
    await asyncio.gather(closing, hurried, return_exceptions=True)


async def _reload_on(hang_up: asyncio.Event, reload: Run) -> None:
    while True:
        await hang_up.wait()
        hang_up.clear()
        sdnotify.notify(sdnotify.reloading())
        try:
            await reload()
        except ConfigError:
            pass  # `reload` has said so, and the last good configuration stays in force
        except Exception:
            log.exception("reload failed")
        finally:
            sdnotify.notify(sdnotify.READY)


async def _watchdog(alive: Callable[[], bool]) -> None:
    """Beat while the event loop runs: a loop that is stuck misses a beat and is restarted."""
    interval = sdnotify.watchdog_interval()
    if interval is None:
        await asyncio.Event().wait()
        return
    while True:
        if alive():
            sdnotify.notify(sdnotify.WATCHDOG)
        await asyncio.sleep(interval)
