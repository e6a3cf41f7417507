"""The scrape: runs all collectors at once, each in its own thread and under its own deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from trainwarden_exporter.collector import Collector, Family, Metric
from trainwarden_exporter.conformance import conforming
from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.lane import Lane

log = logging.getLogger(__name__)

Clock = Callable[[], float]

SUCCESS = Metric(
    "trainwarden_collector_success",
    "gauge",
    "Whether the collector could observe, or found healthily nothing to observe.",
    ("collector",),
)
DURATION = Metric(
    "trainwarden_collector_duration_seconds",
    "gauge",
    "Seconds the collector took; of one that has not answered, the seconds since it began.",
    ("collector",),
)
METRICS = (SUCCESS, DURATION)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What one collector made of one scrape. `families` is empty when there is an `error`.

    `notes` are those of the collector; see there. Each equals itself alone: two collections may
    come to the same numbers at different times.
    """

    collector: str
    duration: float
    families: tuple[Family, ...] = ()
    error: BaseException | None = None
    notes: tuple[object, ...] = ()

    @property
    def success(self) -> bool:
        return self.error is None


class Scraper:
    """Scrapes a set of collectors.

    Scrapes that overlap share what is under way. A collection is waited for until its age is the
    budget of the scrape that waits, so one that hangs costs the scrape that began it its budget and
    later ones nothing: they report it failed at once. It is never begun a second time before it has
    ended, and a result that comes when nobody waits is thrown away.
    """

    def __init__(self, collectors: Iterable[Collector], *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._posts = {collector.name: _Post(collector, clock) for collector in collectors}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the collectors."""
        return tuple(self._posts)

    def adopt(self, collectors: Iterable[Collector]) -> None:
        """Put new collectors in charge from the next collection on.

        One that has a predecessor of the same name adopts it, in the thread of both and so not
        before the predecessor has come back from a collection under way. None is passed over, also
        where nobody has scraped it: it may have been told something.
        """
        posts = {}
        for collector in collectors:
            post = self._posts.pop(collector.name, None)
            if post is None:
                post = _Post(collector, self._clock)
            elif collector is not post.collector:
                post.succeed(collector)
            posts[collector.name] = post
        for retired in self._posts.values():
            retired.close()
        self._posts = posts

    async def scrape(
        self, budget: float, names: Collection[str] | None = None
    ) -> tuple[Outcome, ...]:
        """Collect from all collectors, or those in `names`, within `budget` seconds.

        Never raises for a collector: its `Outcome` says that it failed.
        """
        posts = [post for name, post in self._posts.items() if names is None or name in names]
        return tuple(await asyncio.gather(*(post.collect(budget) for post in posts)))


def families(outcomes: Iterable[Outcome]) -> list[Family]:
    """All that was collected, and then how each collector did.

    The rules count what was seen by the successes there were. Where a page is sent on in parts
    (remote write), a success that comes ahead of what it stands for would say that nothing was
    seen.
    """
    success, duration = SUCCESS.family(), DURATION.family()
    collected = list[Family]()
    for outcome in outcomes:
        success.add_metric([outcome.collector], outcome.success)
        duration.add_metric([outcome.collector], outcome.duration)
        collected += outcome.families
    return [*collected, duration, success]


class _Post:
    """One collector's place: who is in charge, its thread, and the collection under way."""

    def __init__(self, collector: Collector, clock: Clock) -> None:
        self.collector = collector
        self._acting = collector  # touched by the lane's thread only
        self._successors: deque[Collector] = deque()
        self._clock = clock
        self._lane = Lane(f"collect {collector.name}")
        self._under_way: asyncio.Future[Outcome] | None = None
        self._began = 0.0
        self._healthy = True

    async def collect(self, budget: float) -> Outcome:
        if self._under_way is None:
            self._began = self._clock()
            self._under_way = self._lane.call(lambda: self._look(self.collector))
            self._under_way.add_done_callback(self._ended)
        answer, began = self._under_way, self._began
        patience = max(0.0, began + budget - self._clock())
        done, _ = await asyncio.wait([answer], timeout=patience)
        if done:
            outcome = answer.result()
        else:
            overdue = CollectError(f"no answer within {budget:.3g} s, and not started again")
            outcome = Outcome(self.collector.name, self._clock() - began, error=overdue)
        self._tell(outcome)
        return outcome

    def succeed(self, collector: Collector) -> None:
        """Put `collector` in charge."""
        if self._successors:  # nobody has scraped the one that goes; it may know something
            passed_over = self.collector
            self._lane.call(lambda: self._take_over(passed_over))
        self.collector = collector
        self._successors.append(collector)

    def close(self) -> None:
        self._lane.close()

    def _take_over(self, collector: Collector) -> None:
        """Adopt, one after the other, until `collector` is in charge; in the lane's thread."""
        while self._acting is not collector:
            predecessor, self._acting = self._acting, self._successors.popleft()
            self._acting.adopt(predecessor)

    def _look(self, collector: Collector) -> Outcome:
        """Collect; in the lane's thread."""
        began = self._clock()
        found: tuple[Family, ...] = ()
        notes: tuple[object, ...] = ()
        failure: BaseException | None = None
        try:
            self._take_over(collector)
            found = conforming(collector.collect(), collector.metrics)
            notes = collector.notes
        except NoData as nothing:
            log.debug("no data", extra={"collector": collector.name, "reason": str(nothing)})
        except BaseException as error:  # noqa: BLE001 - one collector never fails the others
            failure = error
        return Outcome(collector.name, self._clock() - began, found, failure, notes)

    def _ended(self, _: asyncio.Future[Outcome]) -> None:
        self._under_way = None

    def _tell(self, outcome: Outcome) -> None:
        """Log a change of state, once."""
        if outcome.success == self._healthy:
            return
        self._healthy = outcome.success
        if outcome.error is None:
            log.info("collector recovered", extra={"collector": outcome.collector})
            return
        expected = isinstance(outcome.error, CollectError)
        log.warning(
            "collector failed",
            extra={"collector": outcome.collector, "error": describe(outcome.error)},
            exc_info=None if expected else outcome.error,
        )


def describe(error: BaseException) -> str:
    """`error` in one line: its sentence, preceded by its type unless it is one of our own."""
    if isinstance(error, CollectError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
