"""Polls in the background what a scrape cannot wait for: folders, logs, servers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import Generic, Self, TypeVar

from trainwarden_exporter.exceptions import CollectError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

FIRST_POLL_SECONDS = 1.0
"""Seconds for which the first caller waits, so that the first scrape already has data."""


@dataclass(frozen=True, slots=True)
class TimedResult(Generic[T]):
    """Result of a poll, and its start time (Unix seconds)."""

    value: T
    timestamp: float


class BackgroundPoller(Generic[T]):
    """Calls `poll` every `interval` seconds in a daemon thread of its own, one call at a time.

    A poll may block: only this poller waits for it. Its exception is kept as `failure`, logged once
    per change, and polling continues; only `close` ends the thread. `poll` belongs to the thread
    and may keep state; its results are shared and must not be changed afterwards.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], T],
        *,
        interval: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._poll = poll
        self._interval = interval
        self._now = now
        self.last_result: TimedResult[T] | None = None
        """The last successful result."""
        self.failure: BaseException | None = None
        """The exception of the last completed poll."""
        self._first_poll_ended = Event()
        self._closing = Event()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._started_clock = 0.0
        self._started_at = 0.0

    @property
    def last_known_at(self) -> float:
        """Returns the start of the last successful poll; until then, the start of the poller.

        In Unix seconds; its age shows whether polling works, even if it never succeeded.
        """
        return self._started_at if self.last_result is None else self.last_result.timestamp

    def result(self, *, timeout: float = FIRST_POLL_SECONDS) -> TimedResult[T] | None:
        """Returns the last successful result, or None.

        Starts the poller if necessary; raises RuntimeError if that fails. Waits for the first poll
        until the poller is `timeout` seconds old, so that a hanging poll costs that time only once.
        """
        self.start()
        self._first_poll_ended.wait(max(0.0, self._started_clock + timeout - time.monotonic()))
        return self.last_result

    def start(self) -> None:
        """Starts polling; idempotent."""
        with self._starting:
            if self._thread is None:
                thread = Thread(target=self._run, name=f"watch {self.name}", daemon=True)
                self._started_clock, self._started_at = time.monotonic(), self._now()
                thread.start()  # raises if the host is out of threads; tried again
                self._thread = thread

    def close(self) -> None:
        """Stops polling. Returns at once; a running poll ends later."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            began = self._now()
            failure: BaseException | None = None
            try:
                value = self._poll()
            except BaseException as error:  # noqa: BLE001 - a dead poller would freeze silently
                failure = error
            else:
                self.last_result = TimedResult(value, began)
            self._log_change(failure)
            self.failure = failure
            self._first_poll_ended.set()
            self._closing.wait(self._interval)

    def _log_change(self, failure: BaseException | None) -> None:
        if str(failure) == str(self.failure):
            return
        if failure is None:
            log.info("watch recovered", extra={"watch": self.name})
            return
        foreseen = isinstance(failure, OSError | CollectError)
        log.warning(
            "watch failed",
            extra={"watch": self.name, "error": f"{type(failure).__name__}: {failure}"},
            exc_info=None if foreseen else failure,
        )


class BackgroundPollers(Generic[K, T]):
    """One `BackgroundPoller` per subject, which survives a reload while its subject does.

    A subject identifies a poller, usually by its frozen configuration: if that is equal after a
    reload, the poller continues with its state.
    """

    def __init__(self, pollers: Mapping[K, BackgroundPoller[T]]) -> None:
        self._pollers = dict(pollers)

    def take_over_from(self, predecessor: Self) -> None:
        """Continues with the needed pollers of `predecessor`, and closes the others."""
        for subject, poller in predecessor._pollers.items():
            if subject in self._pollers:
                self._pollers[subject].close()
                self._pollers[subject] = poller
            else:
                poller.close()

    def all(self) -> Iterator[tuple[K, BackgroundPoller[T]]]:
        """Yields each subject with its poller, without starting it."""
        return iter(self._pollers.items())

    def start(self, which: Callable[[K], bool] = lambda _: True) -> None:
        """Starts polling early, for the subjects in `which`."""
        for subject, poller in self._pollers.items():
            if which(subject):
                poller.start()

    def close(self) -> None:
        for poller in self._pollers.values():
            poller.close()

    def last_results(self) -> Iterator[tuple[K, TimedResult[T]]]:
        """Yields the last result of each subject that has one; for callers other than the owner.

        Neither starts a poller nor waits: after a reload, a poller here may be closed in favour of
        that of the predecessor.
        """
        for subject, poller in self._pollers.items():
            if (seen := poller.last_result) is not None:
                yield subject, seen

    def __len__(self) -> int:
        return len(self._pollers)

    def __iter__(self) -> Iterator[tuple[K, BackgroundPoller[T]]]:
        # start all before waiting for the first
        self.start()
        return iter(self._pollers.items())
