"""Overlapping scrapes, deadlines, hung collectors, reloads of the set of collectors."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
from tests.waiting import until

from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.scrape.collector import Collector, Family, Metric
from trainwarden_exporter.scrape.scraper import Outcome, Scraper, describe, families

APPLES = Metric("apples", "gauge", "Apples seen.")
PEARS = Metric("pears_total", "counter", "Pears seen.", ("colour",))

SOON = 0.05
"""A budget that a hung collector exhausts, in real seconds."""

AMPLE = 5.0
"""A budget that no test should use up."""


class FakeCollector(Collector):
    """Does what its `behaviour` does, and counts how often."""

    name = "fake"
    metrics = (APPLES, PEARS)

    def __init__(self, behaviour: Callable[[], Iterable[Family]]) -> None:
        self.behaviour = behaviour
        self.calls = 0
        self.predecessor: Collector | None = None
        self.threads: set[threading.Thread] = set()

    def collect(self) -> Iterable[Family]:
        self.calls += 1
        self.threads.add(threading.current_thread())
        return self.behaviour()

    def take_over_from(self, predecessor: Collector) -> None:
        self.predecessor = predecessor


class OtherCollector(FakeCollector):
    name = "other"


class Gate:
    """A behaviour that hangs until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> Iterable[Family]:
        self.entered.set()
        assert self.opened.wait(30)
        return [apples(1)]


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def apples(count: float) -> Family:
    family = APPLES.family()
    family.add_metric([], count)
    return family


def raising(error: BaseException) -> Callable[[], Iterable[Family]]:
    def behaviour() -> Iterable[Family]:
        raise error

    return behaviour


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


async def only(scraper: Scraper, budget: float = AMPLE) -> Outcome:
    (outcome,) = await scraper.scrape(budget)
    return outcome


async def ended(scraper: Scraper) -> None:
    """Wait until no collection is under way."""
    for post in scraper._slots.values():
        if post._in_progress is not None:
            await post._in_progress


async def test_what_collectors_see_is_shown_with_how_they_did() -> None:
    scraper = Scraper([FakeCollector(lambda: [apples(3)])])

    shown = families(await scraper.scrape(AMPLE))

    assert [(sample.name, sample.labels) for family in shown for sample in family.samples] == [
        ("apples", {}),
        ("trainwarden_collector_duration_seconds", {"collector": "fake"}),
        # last of all: a page that is sent on in parts must not tell it ahead of what was seen
        ("trainwarden_collector_success", {"collector": "fake"}),
    ]
    assert shown[0].samples[0].value == 3
    assert shown[2].samples[0].value == 1


async def test_a_hung_collector_costs_its_own_samples_and_nothing_else(gate: Gate) -> None:
    hung, well = FakeCollector(gate), OtherCollector(lambda: [apples(2)])
    clock = FakeClock()
    scraper = Scraper([hung, well], clock=clock)

    first = {outcome.collector: outcome for outcome in await scraper.scrape(SOON)}
    assert not first["fake"].success
    assert first["other"].success
    assert first["other"].families[0].samples[0].value == 2

    clock.now += 37
    later = {outcome.collector: outcome for outcome in await scraper.scrape(AMPLE)}
    assert not later["fake"].success
    assert later["fake"].duration == pytest.approx(37)
    assert later["other"].success
    until(lambda: hung.calls)  # a busy host has not begun it yet
    assert hung.calls == 1

    gate.opened.set()
    await ended(scraper)
    hung.behaviour = lambda: [apples(7)]
    recovered = {outcome.collector: outcome for outcome in await scraper.scrape(AMPLE)}
    assert recovered["fake"].families[0].samples[0].value == 7, "the late result was thrown away"
    assert hung.calls == 2
    assert well.calls == 3


async def test_later_scrapes_do_not_wait_for_a_hung_collector(gate: Gate) -> None:
    clock = FakeClock()
    scraper = Scraper([FakeCollector(gate)], clock=clock)
    await scraper.scrape(SOON)
    clock.now += AMPLE

    started = asyncio.get_running_loop().time()
    outcomes = await asyncio.gather(*(scraper.scrape(AMPLE) for _ in range(20)))

    assert asyncio.get_running_loop().time() - started < AMPLE / 2
    assert not any(outcome.success for (outcome,) in outcomes)


async def test_an_impatient_scrape_does_not_spoil_the_collection_for_a_patient_one(
    gate: Gate,
) -> None:
    collector = FakeCollector(gate)
    scraper = Scraper([collector])
    patient = asyncio.create_task(only(scraper))
    impatient = await only(scraper, 0.001)
    gate.opened.set()

    assert not impatient.success
    assert (await patient).success
    assert collector.calls == 1


async def test_scrapes_that_overlap_share_one_collection(gate: Gate) -> None:
    collector = FakeCollector(gate)
    scraper = Scraper([collector])
    scrapes = [asyncio.create_task(only(scraper)) for _ in range(10)]
    await asyncio.to_thread(gate.entered.wait, 30)
    gate.opened.set()

    outcomes = await asyncio.gather(*scrapes)

    assert collector.calls == 1
    assert all(outcome is outcomes[0] for outcome in outcomes)


async def test_a_scrape_that_is_cancelled_leaves_the_collection_to_the_others(gate: Gate) -> None:
    scraper = Scraper([FakeCollector(gate)])
    cancelled = asyncio.create_task(only(scraper))
    other = asyncio.create_task(only(scraper))
    await asyncio.to_thread(gate.entered.wait, 30)
    cancelled.cancel()
    gate.opened.set()

    assert (await other).success
    assert (await only(scraper)).success


async def test_each_scrape_looks_again_in_the_collectors_one_thread() -> None:
    collector, other = FakeCollector(list), OtherCollector(list)
    scraper = Scraper([collector, other])
    for _ in range(3):
        await scraper.scrape(AMPLE)

    assert collector.calls == 3
    assert len(collector.threads) == 1
    assert collector.threads.isdisjoint(other.threads)
    assert all(thread.daemon for thread in collector.threads)


async def test_no_data_is_a_success_without_samples() -> None:
    def nothing_after_all() -> Iterable[Family]:
        yield apples(1)
        raise NoData

    outcome = await only(Scraper([FakeCollector(nothing_after_all)]))

    assert outcome.success
    assert outcome.families == ()


@pytest.mark.parametrize(
    "error",
    [
        CollectError("no way in"),
        OSError("broken"),
        MemoryError(),
        RecursionError(),
        StopIteration(),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_collector_raises_is_its_own_failure(error: BaseException) -> None:
    collector = FakeCollector(raising(error))
    scraper = Scraper([collector, OtherCollector(lambda: [apples(1)])])

    failed, well = await scraper.scrape(AMPLE)
    assert not failed.success
    assert well.success

    collector.behaviour = lambda: [apples(1)]
    assert (await scraper.scrape(AMPLE))[0].success


async def test_what_a_failed_collector_had_already_seen_is_not_shown() -> None:
    def half() -> Iterable[Family]:
        yield apples(1)
        raise CollectError("lost")

    outcome = await only(Scraper([FakeCollector(half)]))

    assert outcome.families == ()
    assert describe(outcome.error or Exception()) == "lost"


async def test_a_collector_that_breaks_its_contract_has_failed() -> None:
    undeclared = Metric("plums", "gauge", "Plums.").family()

    outcome = await only(Scraper([FakeCollector(lambda: [apples(1), undeclared])]))

    assert not outcome.success
    assert "plums" in str(outcome.error)


async def test_a_change_of_state_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trainwarden_exporter")
    collector = FakeCollector(raising(CollectError("no way in")))
    scraper = Scraper([collector])

    for _ in range(3):
        await scraper.scrape(AMPLE)
    collector.behaviour = lambda: [apples(1)]
    for _ in range(3):
        await scraper.scrape(AMPLE)

    assert [
        (record.message, vars(record)["collector"], vars(record).get("error"))
        for record in caplog.records
    ] == [
        ("collector failed", "fake", "no way in"),
        ("collector recovered", "fake", None),
    ]
    assert not caplog.records[0].exc_info


async def test_an_unforeseen_error_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await Scraper([FakeCollector(raising(KeyError("pid")))]).scrape(AMPLE)

    (record,) = caplog.records
    assert vars(record)["error"] == "KeyError: 'pid'"
    assert record.exc_info


async def test_a_collector_that_hangs_is_logged_once(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    scraper = Scraper([FakeCollector(gate)], clock=clock)
    await scraper.scrape(SOON)
    clock.now += 100
    await scraper.scrape(SOON)

    (record,) = caplog.records
    assert "no answer within 0.05 s" in vars(record)["error"]


async def test_only_the_collectors_asked_for_are_run() -> None:
    left_out, asked = FakeCollector(list), OtherCollector(list)
    scraper = Scraper([left_out, asked])

    assert [outcome.collector for outcome in await scraper.scrape(AMPLE, {"other"})] == ["other"]
    assert left_out.calls == 0
    assert scraper.names == ("fake", "other")


async def test_no_collectors_make_an_empty_scrape() -> None:
    assert await Scraper([]).scrape(AMPLE) == ()


async def test_a_successor_adopts_its_predecessor_once_and_in_its_thread() -> None:
    predecessor, successor = FakeCollector(list), FakeCollector(lambda: [apples(9)])
    scraper = Scraper([predecessor])
    await scraper.scrape(AMPLE)
    scraper.replace_collectors([successor])

    assert (await only(scraper)).families[0].samples[0].value == 9
    assert successor.predecessor is predecessor
    successor.predecessor = None
    await scraper.scrape(AMPLE)
    assert successor.predecessor is None
    assert predecessor.calls == 1
    assert successor.threads == predecessor.threads


async def test_a_successor_waits_for_a_predecessor_that_hangs(gate: Gate) -> None:
    predecessor, successor = FakeCollector(gate), FakeCollector(lambda: [apples(9)])
    clock = FakeClock()
    scraper = Scraper([predecessor], clock=clock)
    await scraper.scrape(SOON)
    clock.now += 100
    between = FakeCollector(list)
    scraper.replace_collectors([between])
    scraper.replace_collectors([successor])

    assert not (await only(scraper)).success
    assert successor.calls == 0
    gate.opened.set()
    await ended(scraper)
    assert (await only(scraper)).success
    assert (between.predecessor, successor.predecessor) == (predecessor, between)
    assert between.calls == 0


async def test_a_successor_that_cannot_adopt_fails_one_scrape_and_then_works() -> None:
    class Forgetful(FakeCollector):
        def take_over_from(self, predecessor: Collector) -> None:
            raise ValueError(f"cannot remember {predecessor.name}")

    scraper = Scraper([FakeCollector(list)])
    scraper.replace_collectors([Forgetful(lambda: [apples(1)])])

    assert not (await only(scraper)).success
    assert (await only(scraper)).success


async def test_a_collector_that_is_gone_after_a_reload_is_not_run_and_its_thread_ends() -> None:
    gone, kept = FakeCollector(list), OtherCollector(list)
    scraper = Scraper([gone, kept])
    await scraper.scrape(AMPLE)
    scraper.replace_collectors([kept])

    assert [outcome.collector for outcome in await scraper.scrape(AMPLE)] == ["other"]
    for thread in gone.threads:
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def test_errors_are_described_in_one_line() -> None:
    assert describe(CollectError("no way in")) == "no way in"
    assert describe(OSError(2, "No such file")) == "FileNotFoundError: [Errno 2] No such file"
    assert describe(MemoryError()) == "MemoryError"
