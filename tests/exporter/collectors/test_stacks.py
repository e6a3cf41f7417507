"""The collector with real processes that hang, and its verdict."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.waiting import until

from trainwarden_exporter.collectors.stacks import (
    CHAIN,
    MOVED_SECONDS,
    MOVEMENT,
    PROCESSES,
    STALE_SECONDS,
    Seen,
    StackReport,
    StacksCollector,
    last_seen,
    report_samples,
)
from trainwarden_exporter.exceptions import NoData
from trainwarden_exporter.processes.config import RunWorkers
from trainwarden_exporter.processes.matching import Matcher, WorkerKey
from trainwarden_exporter.processes.procfs import Identity
from trainwarden_exporter.processes.stacks.model import (
    Activity,
    Diagnosis,
    Finding,
    Member,
    Movement,
)
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

MARK = f"stacks-trainer-{os.getpid()}-"  # of this process: suites run side by side
RUN = RunWorkers.model_validate(
    {
        "name": "night",
        "workers": [{"name": "trainer", "role": "trainer", "match": {"command": MARK}}],
    }
)
KEY = WorkerKey("night", "trainer")
WAITS = "import queue\nprint(flush=True)\nqueue.Queue().get()"


class Silence:
    """The last sign of progress, as the tracker would report it."""

    def __init__(self) -> None:
        self.since: float | None = None

    def __call__(self, run: str) -> float | None:
        return self.since


@contextmanager
def collecting(silence: Silence, interval: float = 0.05) -> Iterator[StacksCollector]:
    matcher = Matcher({KEY: RUN.workers[0].match})
    collector = StacksCollector([RUN], trees=matcher.find, silence=silence, interval=interval)
    try:
        yield collector
    finally:
        collector._pollers.close()


def samples(collector: StacksCollector) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("trainwarden_stack_"), *sample.labels.values()): sample.value
        for family in validated(collector.collect(), collector.metrics)
        for sample in family.samples
    }


def test_in_health_no_stack_is_read(start: Start) -> None:
    start(WAITS, MARK)
    with collecting(Silence()) as collector:
        collector.collect()
        time.sleep(0.3)  # several intervals
        assert samples(collector) == {
            ("samples_total", "night", "read"): 0,
            ("samples_total", "night", "not_python"): 0,
            ("samples_total", "night", "failed"): 0,
        }


def test_a_silent_run_that_waits_is_stuck(start: Start) -> None:
    start(WAITS, MARK)
    silence = Silence()
    silence.since = 5.0
    with collecting(silence) as collector:
        until(lambda: samples(collector).get(("movement", "night", "stuck")))
        found = samples(collector)

        assert found["processes", "night", "trainer", "queue"] == 1
        assert found["samples_total", "night", "read"] == 3
        assert abs(found["stuck_since_timestamp_seconds", "night"] - time.time()) < 60
        assert found["suspect", "night", "trainer", "", "queue"] == 1
        assert any(name[0] == "chain_info" for name in found)


def test_one_round_restarts_no_run(start: Start) -> None:
    start(WAITS, MARK)
    silence = Silence()
    silence.since = time.time()
    with collecting(silence) as collector:
        until(lambda: samples(collector).get(("movement", "night", "stuck")))

        assert collector.movement("night", silence.since) == "unknown"


def test_a_silence_from_before_the_watch_is_undecided_for_as_long_as_a_movement_counts() -> None:
    """The exporter before may have seen it move; without a stack that can be read it ends too."""
    silence, now = Silence(), [5000.0]
    silence.since = 5000 - STALE_SECONDS - 1
    collector = StacksCollector([RUN], trees=dict, silence=silence, now=lambda: now[0])
    new = StackReport("night", 5000, silence.since, Diagnosis(Movement.UNKNOWN))
    stuck = replace(new, diagnosis=Diagnosis(Movement.STUCK))
    proved = replace(new, diagnosis=Diagnosis(Movement.STUCK, confirmed=True))

    def shows(report: StackReport | None) -> tuple[Movement, set[str]]:
        collector._watched["night"].report = report and replace(report, at=now[0])
        reports = (one for one in [collector._current("night")] if one)
        collector.artifacts = tuple(reports)
        shown = {
            labels[-1]
            for metric, labels, value in collector._all_samples()
            if metric is MOVEMENT and value
        }
        return collector.movement("night", silence.since), shown

    while now[0] < 5000 + MOVED_SECONDS:
        assert shows(None) == ("moving", {"undecided"})
        assert shows(new) == ("moving", {"undecided"})
        assert shows(stuck) == ("moving", {"stuck"})
        assert shows(proved) == ("stuck", {"stuck"})
        now[0] += 30
    assert shows(None) == ("unknown", set())
    assert shows(new) == ("unknown", {"unknown"})
    assert shows(stuck) == ("unknown", {"stuck"})
    silence.since = now[0] - STALE_SECONDS
    assert shows(None) == ("unknown", set())


def test_a_silence_that_a_suspended_exporter_did_not_see_is_undecided() -> None:
    """Its host may have been suspended with it, and the run may evaluate, as before a start."""
    silence, now = Silence(), [5000.0]
    silence.since = 4000.0
    collector = StacksCollector([RUN], trees=dict, silence=silence, now=lambda: now[0])

    def watch(until: float) -> Movement:
        while True:
            found = collector.movement("night", silence.since)
            if now[0] >= until:
                return found
            now[0] += STALE_SECONDS - 1

    assert watch(5000 + MOVED_SECONDS) is Movement.UNKNOWN
    watched = collector._watched["night"]
    moved = StackReport("night", now[0], silence.since, Diagnosis(Movement.MOVING))
    watched.report = replace(moved, moved_at=now[0])
    assert watch(now[0]) is Movement.MOVING
    now[0] += MOVED_SECONDS + 1
    assert watch(began := now[0]) is Movement.MOVING
    assert watch(began + MOVED_SECONDS - STALE_SECONDS) is Movement.MOVING
    assert watch(began + MOVED_SECONDS) is Movement.UNKNOWN
    silence.since = now[0] - 1
    now[0] += 2 * STALE_SECONDS
    assert watch(now[0]) is Movement.MOVING  # also where it began just before
    silence.since = now[0]
    assert watch(now[0]) is Movement.UNKNOWN


def test_a_reload_takes_nothing_from_the_proof_of_a_hang(start: Start) -> None:
    """Each run of the host that starts or ends is one. The next sample waits for its interval."""
    start(WAITS, MARK)
    silence = Silence()
    silence.since = 5.0
    with collecting(silence) as before, collecting(silence, interval=3600.0) as after:
        until(lambda: samples(before).get(("movement", "night", "stuck")))
        after.take_over_from(before)
        for _, poller in before._pollers.all():
            assert poller._thread is not None
            poller._thread.join(60)
        known = before._watched["night"].report
        found = samples(after)
        time.sleep(0.3)  # its poller has begun

        assert after._watched["night"].report is known
        assert found["movement", "night", "stuck"] == 1
        assert found["samples_total", "night", "read"] == 3


def test_of_a_run_with_other_workers_only_the_counts_go_on(start: Start) -> None:
    start(WAITS, MARK)
    silence = Silence()
    silence.since = 5.0
    other = RUN.model_copy(update={"user": "nobody"})
    matcher = Matcher({KEY: RUN.workers[0].match})
    with collecting(silence) as before:
        until(lambda: samples(before).get(("movement", "night", "stuck")))
        after = StacksCollector([other], trees=matcher.find, silence=silence)
        after.take_over_from(before)

        assert after._watched["night"].report is None
        assert after._watched["night"].samples["read"] >= 3


def test_progress_ends_what_was_known(start: Start) -> None:
    start(WAITS, MARK)
    silence = Silence()
    silence.since = 5.0
    with collecting(silence) as collector:
        until(lambda: samples(collector).get(("movement", "night", "stuck")))
        silence.since = None

        assert {name[0] for name in samples(collector)} == {"samples_total"}
        assert collector.movement("night", None) == "unknown"


def test_a_run_that_computes_moves(start: Start) -> None:
    start("print(flush=True)\nwhile True: sum(range(9))", MARK)
    silence = Silence()
    silence.since = 5.0
    with collecting(silence, interval=0.5) as collector:
        until(lambda: collector.collect() and collector.movement("night", 5.0) == "moving")

        assert collector.movement("night", 6.0) == "unknown"


PROMPT = "print(flush=True)\ninput()"


def test_a_wait_for_an_operator_and_a_movement_outlast_late_looks(start: Start) -> None:
    """On a loaded host a look may take longer than a report is valid."""
    start(PROMPT, MARK)
    silence, late = Silence(), [0.0]
    silence.since = time.time()
    matcher = Matcher({KEY: RUN.workers[0].match})
    collector = StacksCollector(
        [RUN], trees=matcher.find, silence=silence, interval=0.05, now=lambda: time.time() + late[0]
    )
    try:
        collector.collect()
        watched = collector._watched["night"]
        until(lambda: watched.report)
    finally:
        collector._pollers.close()
    assert watched.report is not None
    prompt = ("processes", "night", "trainer", "prompt")

    def wait(seconds: float) -> None:
        end = late[0] + seconds
        while late[0] < end:  # scrapes go on
            late[0] = min(end, late[0] + STALE_SECONDS / 2)
            samples(collector)

    seen = {("trainer", Identity(7, 1)): Seen(Activity.PROMPT, watched.report.at)}
    watched.report = replace(watched.report, seen=seen)
    assert samples(collector)[prompt] == 1
    wait(STALE_SECONDS + 1)
    assert samples(collector)[prompt] == 1
    assert samples(collector)["movement", "night", "unknown"] == 1
    watched.report = replace(watched.report, seen={}, moved_at=time.time() + STALE_SECONDS)
    assert samples(collector)["movement", "night", "moving"] == 1
    wait(MOVED_SECONDS + STALE_SECONDS)
    assert ("movement", "night", "moving") not in samples(collector)
    silence.since = 6.0
    assert {name[0] for name in samples(collector)} == {"samples_total"}


@pytest.mark.parametrize(
    ("seen", "at_prompt"),
    [
        ({"trainer": Activity.PROMPT}, {"trainer"}),
        ({"trainer": Activity.UNKNOWN}, {"trainer"}),
        ({}, {"trainer"}),
        ({"trainer": Activity.QUEUE}, set()),
        ({"trainer": Activity.QUEUE, "rollout": Activity.PROMPT}, {"rollout"}),
        ({"trainer": Activity.LOCK, "rollout": Activity.UNKNOWN}, set()),
    ],
)
def test_only_what_is_seen_ends_a_wait_for_an_operator(
    seen: dict[str, Activity], at_prompt: set[str]
) -> None:
    before = {("trainer", Identity(1, 1)): Seen(Activity.PROMPT, 0)}
    findings = tuple(
        Finding(Member(WorkerKey("night", worker), "", Identity(1, 1), 0), activity)
        for worker, activity in seen.items()
    )
    diagnosis = Diagnosis(Movement.UNKNOWN, findings)
    after = last_seen(diagnosis, before, 2 * MOVED_SECONDS).items()
    assert {worker for (worker, _), one in after if one.activity is Activity.PROMPT} == at_prompt


def test_a_stack_that_could_not_be_read_ends_no_sleep() -> None:
    """A sample fails now and then, and three in a row must be read."""

    def looked(before: StackReport, at: float, activity: Activity) -> StackReport:
        one = Finding(Member(KEY, "trainer", Identity(7, 1), 1, is_trainer=True), activity)
        seen = Diagnosis(Movement.UNKNOWN, (one,))
        return replace(before, at=at, diagnosis=seen, seen=last_seen(seen, before.seen, at))

    def doing(report: StackReport) -> str:
        samples = report_samples(report, report.at)
        (found,) = (labels[-1] for metric, labels, _ in samples if metric is PROCESSES)
        return found

    new = StackReport("night", 0, 5.0, Diagnosis(Movement.UNKNOWN))
    assert doing(looked(new, 10, Activity.UNKNOWN)) == "unknown"
    asleep = looked(new, 10, Activity.SLEEP)
    unread = looked(looked(asleep, 15, Activity.UNKNOWN), 20, Activity.UNKNOWN)
    assert doing(unread) == "sleep"
    assert doing(looked(unread, 10 + MOVED_SECONDS, Activity.UNKNOWN)) == "unknown"
    assert doing(looked(looked(unread, 25, Activity.QUEUE), 30, Activity.UNKNOWN)) == "unknown"


@pytest.mark.parametrize(
    ("seen", "doing"),
    [
        ({1: Activity.UNKNOWN, 2: Activity.COLLECTIVE}, {1: "prompt", 2: "collective"}),
        ({2: Activity.COLLECTIVE}, {2: "collective"}),
        ({2: Activity.UNKNOWN}, {2: "unknown"}),
    ],
)
def test_a_process_at_a_prompt_is_there_until_it_is_seen_elsewhere_or_ends(
    seen: dict[int, Activity], doing: dict[int, str]
) -> None:
    """Whatever the other ranks of its worker do: they wait for it."""
    before = {("trainer", Identity(1, 1)): Seen(Activity.PROMPT, 0)}
    findings = tuple(
        Finding(Member(KEY, "trainer", Identity(pid, 1), 0, is_trainer=True), activity)
        for pid, activity in seen.items()
    )
    after = last_seen(Diagnosis(Movement.UNKNOWN, findings), before, 10).items()
    assert {one.pid: known.activity for (_, one), known in after} == doing


def test_a_late_look_ends_no_sleep() -> None:
    silence, late = Silence(), [100 + STALE_SECONDS]
    silence.since = 5.0
    seen = {("trainer", Identity(7, 1)): Seen(Activity.SLEEP, 90)}
    asleep = StackReport("night", 90, 5.0, Diagnosis(Movement.UNKNOWN), seen=seen)
    collector = StacksCollector([RUN], trees=dict, silence=silence, now=lambda: late[0])
    collector._watched["night"].report = asleep
    current = collector._current("night")
    assert current is not None
    assert (PROCESSES, ("night", "trainer", "sleep"), 1) in report_samples(current, late[0])
    late[0] = 90 + MOVED_SECONDS
    assert collector._current("night") is None


def test_what_moved_in_the_round_before_moves() -> None:
    """Between two rounds the stacks of one are too few."""
    unknown = StackReport("night", 90, 5.0, Diagnosis(Movement.UNKNOWN), moved_at=60)
    assert unknown.movement(100) == "moving"
    assert unknown.movement(60 + MOVED_SECONDS) == "unknown"
    assert replace(unknown, diagnosis=Diagnosis(Movement.STUCK)).movement(100) == "stuck"


def test_without_runs_it_has_no_data() -> None:
    with pytest.raises(NoData):
        StacksCollector([], trees=dict, silence=Silence()).collect()


def test_what_looks_like_a_secret_is_redacted_in_the_chain() -> None:
    chain = "process 7 of trainer waits for a queue at hf_abcdefghijklmnop.py:18"
    report = StackReport("night", 0, 0, Diagnosis(Movement.STUCK, chain=chain))
    (labels,) = (labels for metric, labels, _ in report_samples(report, 0) if metric is CHAIN)
    assert labels == ("night", "process 7 of trainer waits for a queue at [redacted].py:18")


def test_the_samples_of_a_report_are_declared(start: Start) -> None:
    start(WAITS, MARK)
    silence = Silence()
    silence.since = 5.0
    with collecting(silence) as collector:
        until(lambda: samples(collector).get(("movement", "night", "stuck")))
        (report,) = collector.artifacts

        assert {metric for metric, _, _ in report_samples(report, 0)} <= set(collector.metrics)  # type: ignore[arg-type]
