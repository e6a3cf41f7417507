"""Runs all collectors concurrently, each in its own thread with its own deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.runtime.blocking_thread import SerialThread
from trainwarden_exporter.scrape.collector import Collector, Family, Metric, build_families
from trainwarden_exporter.scrape.validation import validated

log = logging.getLogger(__name__)

Clock = Callable[[], float]

SUCCESS = Metric(
    "trainwarden_collector_success",
    "gauge",
    "Whether the collector succeeded (also when it has nothing to report).",
    ("collector",),
)
DURATION = Metric(
    "trainwarden_collector_duration_seconds",
    "gauge",
    "Duration of the last collection; for a collector that has not finished, time since its start.",
    ("collector",),
)
METRICS = (SUCCESS, DURATION)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Result of one collector in one scrape. `families` is empty if there is an `error`.

    `artifacts` are those of the collector. Compares by identity: two collections may yield the same
    numbers at different times.
    """

    collector: str
    duration: float
    families: tuple[Family, ...] = ()
    error: BaseException | None = None
    artifacts: tuple[object, ...] = ()

    @property
    def success(self) -> bool:
        return self.error is None


class Scraper:
    """Scrapes a set of collectors.

    Overlapping scrapes share running collections. A scrape waits for a collection until its age
    reaches the budget of that scrape, so a hanging collector costs only the scrape that started it
    its budget; later scrapes report it as failed at once. A collection never starts before the
    previous one has ended; late results are discarded.
    """

    def __init__(self, collectors: Iterable[Collector], *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._slots = {collector.name: _CollectorSlot(collector, clock) for collector in collectors}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._slots)

    def replace_collectors(self, collectors: Iterable[Collector]) -> None:
        """Replaces the collectors from the next collection on.

        A collector with a predecessor of the same name takes over its state, in their common thread
        and thus after a running collection of the predecessor. No predecessor is skipped, even if
        it was never scraped, because it may have received data.
        """
        slots = {}
        for collector in collectors:
            slot = self._slots.pop(collector.name, None)
            if slot is None:
                slot = _CollectorSlot(collector, self._clock)
            elif collector is not slot.collector:
                slot.replace_collector(collector)
            slots[collector.name] = slot
        for retired in self._slots.values():
            retired.close()
        self._slots = slots

    async def scrape(
        self, budget: float, names: Collection[str] | None = None
    ) -> tuple[Outcome, ...]:
        """Collects from all collectors, or those in `names`, within `budget` seconds.

        Never raises for a failed collector: its `Outcome` contains the error.
        """
        slots = [slot for name, slot in self._slots.items() if names is None or name in names]
        return tuple(await asyncio.gather(*(slot.collect(budget) for slot in slots)))


def families(outcomes: Iterable[Outcome]) -> list[Family]:
    """Returns all collected families, followed by the status of the collectors.

    The order matters: rules count observations by successes. If a page is forwarded in parts
    (remote write), a success that precedes its samples would mean that nothing was observed.
    """
    outcomes = tuple(outcomes)
    status = [
        *((DURATION, (outcome.collector,), outcome.duration) for outcome in outcomes),
        *((SUCCESS, (outcome.collector,), outcome.success) for outcome in outcomes),
    ]
    collected = (family for outcome in outcomes for family in outcome.families)
    return [*collected, *build_families((DURATION, SUCCESS), status)]


class _CollectorSlot:
    """Slot of one collector name: current collector, thread and running collection."""

    def __init__(self, collector: Collector, clock: Clock) -> None:
        self.collector = collector
        self._active = collector  # accessed only by the collector's thread
        self._pending_successors: deque[Collector] = deque()
        self._clock = clock
        self._thread = SerialThread(f"collect {collector.name}")
        self._in_progress: asyncio.Future[Outcome] | None = None
        self._started_at = 0.0
        self._healthy = True

    async def collect(self, budget: float) -> Outcome:
        if self._in_progress is None:
            self._started_at = self._clock()
            self._in_progress = self._thread.call(lambda: self._collect(self.collector))
            self._in_progress.add_done_callback(self._on_done)
        answer, began = self._in_progress, self._started_at
        timeout = max(0.0, began + budget - self._clock())
        done, _ = await asyncio.wait([answer], timeout=timeout)
        if done:
            outcome = answer.result()
        else:
            timeout_error = CollectError(f"no answer within {budget:.3g} s; not started again")
            outcome = Outcome(self.collector.name, self._clock() - began, error=timeout_error)
        self._log_change(outcome)
        return outcome

    def replace_collector(self, collector: Collector) -> None:
        """Makes `collector` the current collector."""
        if self._pending_successors:  # keep an unscraped predecessor: it may have received data
            superseded = self.collector
            self._thread.call(lambda: self._take_over(superseded))
        self.collector = collector
        self._pending_successors.append(collector)

    def close(self) -> None:
        self._thread.close()

    def _take_over(self, collector: Collector) -> None:
        """Takes over state in order up to `collector`; runs in the collector's thread."""
        while self._active is not collector:
            predecessor, self._active = self._active, self._pending_successors.popleft()
            self._active.take_over_from(predecessor)

    def _collect(self, collector: Collector) -> Outcome:
        began = self._clock()
        found: tuple[Family, ...] = ()
        artifacts: tuple[object, ...] = ()
        failure: BaseException | None = None
        try:
            self._take_over(collector)
            found = validated(collector.collect(), collector.metrics)
            artifacts = collector.artifacts
        except NoData as nothing:
            log.debug("no data", extra={"collector": collector.name, "reason": str(nothing)})
        except BaseException as error:  # noqa: BLE001 - one collector never fails the others
            failure = error
        return Outcome(collector.name, self._clock() - began, found, failure, artifacts)

    def _on_done(self, _: asyncio.Future[Outcome]) -> None:
        self._in_progress = None

    def _log_change(self, outcome: Outcome) -> None:
        """Logs changes between success and failure, once each."""
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
    """Returns `error` in one line, preceded by its type unless it is one of our own."""
    if isinstance(error, CollectError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
