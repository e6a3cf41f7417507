"""Looks at things in the background, where a scrape cannot wait: folders, logs, servers."""

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

FIRST_LOOK = 1.0
"""Seconds for which whoever asks first waits, so that the first scrape already shows something."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """What a look found, and when it began (unix seconds)."""

    value: T
    timestamp: float


class Watch(Generic[T]):
    """Calls `look` every `interval` seconds in a daemon thread of its own, one call at a time.

    A look may block for as long as it likes: only this watch waits for it. What it raises is kept
    as `failure`, logged once per change, and it is called again; so the thread ends by `close`
    alone. `look` belongs to the thread and may keep state; what it returns is shared, and so must
    not be changed afterwards.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], T],
        *,
        interval: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._look = look
        self._interval = interval
        self._now = now
        self._seen: Seen[T] | None = None
        self._failure: BaseException | None = None
        self._looked = Event()
        self._close = Event()
        self._starting = Lock()
        self._thread: Thread | None = None
        self._started = 0.0
        self._began = 0.0

    @property
    def last(self) -> Seen[T] | None:
        """What the last good look found; None when there was none. Neither starts nor waits."""
        return self._seen

    @property
    def known(self) -> float:
        """When the last good look began; until there is one, when the watch was started.

        In Unix seconds: how old that is tells whether it can see, also where it never could.
        """
        return self._began if self._seen is None else self._seen.timestamp

    @property
    def failure(self) -> BaseException | None:
        """What the last look that ended raised, or None."""
        return self._failure

    def seen(self, *, patience: float = FIRST_LOOK) -> Seen[T] | None:
        """What the last good look found; None when there was none yet.

        Starts the watch where that has not happened; raises RuntimeError where it cannot be. The
        first look is waited for until the watch is `patience` seconds old, so that one which hangs
        costs that once.
        """
        self.start()
        self._looked.wait(max(0.0, self._started + patience - time.monotonic()))
        return self._seen

    def start(self) -> None:
        """Begin to look; does nothing where that has happened."""
        with self._starting:
            if self._thread is None:
                thread = Thread(target=self._run, name=f"watch {self.name}", daemon=True)
                self._started, self._began = time.monotonic(), self._now()
                thread.start()  # raises where the box has no thread left, and is tried again
                self._thread = thread

    def close(self) -> None:
        """Look no more. Returns at once; a look under way ends when it ends."""
        self._close.set()

    def _run(self) -> None:
        while not self._close.is_set():
            began = self._now()
            failure: BaseException | None = None
            try:
                value = self._look()
            except BaseException as error:  # noqa: BLE001 - a watch that died would freeze silently
                failure = error
            else:
                self._seen = Seen(value, began)
            self._tell(failure)
            self._failure = failure
            self._looked.set()
            self._close.wait(self._interval)

    def _tell(self, failure: BaseException | None) -> None:
        if str(failure) == str(self._failure):
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


class Watches(Generic[K, T]):
    """One `Watch` for each of a set of subjects, which outlives a reload while its subject does.

    A subject is whatever tells a watch from others, best the frozen configuration of it: where that
    is equal after a reload, the watch goes on with all that it knows.
    """

    def __init__(self, watches: Mapping[K, Watch[T]]) -> None:
        self._watches = dict(watches)

    def adopt(self, predecessor: Self) -> None:
        """Go on with the watches of `predecessor` that are wanted still, and close the others."""
        for subject, watch in predecessor._watches.items():
            if subject in self._watches:
                self._watches[subject].close()
                self._watches[subject] = watch
            else:
                watch.close()

    def start(self, which: Callable[[K], bool] = lambda _: True) -> None:
        """Begin to look, before anybody asks; at `which` subjects, all when not given."""
        for subject, watch in self._watches.items():
            if which(subject):
                watch.start()

    def close(self) -> None:
        """Look no more."""
        for watch in self._watches.values():
            watch.close()

    def last(self) -> Iterator[tuple[K, Seen[T]]]:
        """What was seen last at each subject at which anything was; for who is not its owner.

        Neither starts a watch nor waits: after a reload, what there is here may not be what will
        be watched, but closed in favour of that of the predecessor.
        """
        for subject, watch in self._watches.items():
            if (seen := watch.last) is not None:
                yield subject, seen

    def __len__(self) -> int:
        return len(self._watches)

    def __iter__(self) -> Iterator[tuple[K, Watch[T]]]:
        # All begin before the first is waited for.
        self.start()
        return iter(self._watches.items())
