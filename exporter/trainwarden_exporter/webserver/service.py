"""Runs a program that serves requests: start, readiness, reload on SIGHUP, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trainwarden_exporter.exceptions import ConfigError, Problem, TrainwardenError
from trainwarden_exporter.webserver import sdnotify

log = logging.getLogger(__name__)


DRAIN_LIMIT = 20.0
"""Seconds for running requests to finish after a termination signal."""


Run = Callable[[], Coroutine[Any, Any, None]]


class Server(Protocol):
    """A server that accepts requests from the network."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each listening socket."""

    async def start(self) -> None:
        """Starts to listen. Raises ConfigError or OSError if it cannot."""

    async def close(self) -> None:
        """Stops listening and waits for requests in progress; may be called again."""


class WebConfigFile(Protocol):
    """Reloads the web configuration file; implemented by `WebServer`."""

    @property
    def last_reload_successful(self) -> bool | None:
        """None without a file."""

    async def reload(self) -> None:
        """Raises ConfigError."""


@dataclass(slots=True)
class Readiness:
    """Whether the program accepts work: from the end of its start until it drains."""

    ready: bool = False


class BackgroundEndedError(TrainwardenError):
    """A background task ended, which the program cannot work without."""


async def serve(
    server: Server,
    *,
    readiness: Readiness,
    reload: Run,
    background: Mapping[str, Run] | None = None,
    alive: Callable[[], bool] = lambda: True,
    drain_limit: float = DRAIN_LIMIT,
) -> None:
    """Runs `server` until SIGTERM or SIGINT, then drains and returns; SIGHUP calls `reload`.

    `reload` logs its ConfigError, and the program continues. Each function in `background` is
    started once the server listens, never returns, and is cancelled after the server has closed. A
    second signal to stop, or `drain_limit` seconds, ends draining. While `alive()` is false, the
    watchdog of the service manager is not notified, and restarts the program.

    Raises the errors of `server.start` and of background tasks, and BackgroundEndedError if a
    background task returns.
    """
    stop, second_stop, hangup = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_stop_signal() -> None:
        (second_stop if stop.is_set() else stop).set()

    handlers = {
        signal.SIGTERM: on_stop_signal,
        signal.SIGINT: on_stop_signal,
        signal.SIGHUP: hangup.set,
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    await server.start()
    tasks = [
        asyncio.create_task(_run_forever(name, run), name=name)
        for name, run in {
            "reload on hang-up": lambda: _reload_on_hangup(hangup, reload),
            "watchdog": lambda: _watchdog(alive),
            **(background or {}),
        }.items()
    ]
    try:
        readiness.ready = True
        sdnotify.notify(sdnotify.READY)
        for host, port in server.addresses:
            log.info("listening", extra={"host": host, "port": port})
        await _wait_for_stop(asyncio.create_task(stop.wait(), name="stop"), *tasks)
    finally:
        readiness.ready = False
        sdnotify.notify(sdnotify.STOPPING)
        log.info("stopping")
        try:
            await _drain(server, second_stop, drain_limit)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in handlers:
                loop.remove_signal_handler(number)
    log.info("stopped")


async def _wait_for_stop(stop: asyncio.Task[bool], *tasks: asyncio.Task[None]) -> None:
    """Waits for a termination signal. Raises the error of a task that ends before."""
    try:
        done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
    for task in tasks:
        if task in done:
            task.result()


async def _run_forever(name: str, run: Run) -> None:
    await run()
    raise BackgroundEndedError(f"{name} ended")


async def _drain(server: Server, second_stop: asyncio.Event, limit: float) -> None:
    closing = asyncio.create_task(server.close(), name="close")
    hurried = asyncio.create_task(second_stop.wait(), name="hurry")
    done, _ = await asyncio.wait(
        {closing, hurried}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
    )
    hurried.cancel()
    if closing not in done:
        log.warning("stopping with requests in progress")
        closing.cancel()
    await asyncio.gather(closing, hurried, return_exceptions=True)


async def _reload_on_hangup(hangup: asyncio.Event, reload: Run) -> None:
    while True:
        await hangup.wait()
        hangup.clear()
        sdnotify.notify(sdnotify.reloading())
        try:
            await reload()
        except ConfigError:
            pass  # logged by `reload`; the last valid configuration stays in force
        except Exception:
            log.exception("reload failed")
        finally:
            sdnotify.notify(sdnotify.READY)


async def _watchdog(alive: Callable[[], bool]) -> None:
    """Notifies the watchdog of the service manager while the event loop runs and `alive()`."""
    interval = sdnotify.watchdog_interval()
    if interval is None:
        await asyncio.Event().wait()
        return
    while True:
        if alive():
            sdnotify.notify(sdnotify.WATCHDOG)
        await asyncio.sleep(interval)


Step = Callable[[], Awaitable[None]]
"""Loads one file. Raises ConfigError if it is invalid; the last valid one stays in force."""


class Reloader:
    """Reloads the configuration, then the files of `add_step`; one reload at a time.

    The start counts as the first success, because a program only starts with a valid configuration.
    """

    def __init__(self, configuration: Step, *, now: Callable[[], float] = time.time) -> None:
        self._configuration = configuration
        self._steps: list[Step] = []
        self._lock = asyncio.Lock()
        self._now = now
        self.problems: tuple[Problem, ...] = ()
        """The problems of the configuration at the last reload; empty if it succeeded."""
        self.success_timestamp = now()
        """Unix time of the last successful reload of the configuration."""

    @property
    def successful(self) -> bool:
        """Whether the last reload of the configuration succeeded."""
        return not self.problems

    def add_step(self, step: Step) -> None:
        """Adds a step to each reload, after the configuration, whether that is valid or not.

        Its result does not count in `successful`.
        """
        self._steps.append(step)

    async def reload(self) -> None:
        """Reloads everything. Raises ConfigError with all problems, which are also logged."""
        async with self._lock:
            self.problems = await _run_step(self._configuration)
            if self.successful:
                self.success_timestamp = self._now()
            problems = self.problems
            for step in self._steps:
                problems += await _run_step(step)
        for problem in problems:
            log.error("reload failed", extra={"problem": str(problem)})
        if problems:
            raise ConfigError(*problems)
        log.info("reloaded")


async def _run_step(step: Step) -> tuple[Problem, ...]:
    try:
        await step()
    except ConfigError as error:
        return error.problems
    return ()
