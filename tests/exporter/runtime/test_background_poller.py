from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.runtime.background_poller import BackgroundPoller, BackgroundPollers

NEVER = 3600.0


class Looks:
    """An observation that waits until the test sets its result."""

    def __init__(self) -> None:
        self.answers: SimpleQueue[Callable[[], int]] = SimpleQueue()
        self.begun = 0

    def __call__(self) -> int:
        self.begun += 1
        return self.answers.get()()

    def find(self, value: int) -> None:
        self.answers.put(lambda: value)

    def fail(self, error: BaseException) -> None:
        def answer() -> int:
            raise error

        self.answers.put(answer)


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def test_the_first_look_is_waited_for() -> None:
    poller = BackgroundPoller("thing", lambda: 7, interval=NEVER, now=lambda: 100.0)
    seen = poller.result()
    assert seen is not None
    assert (seen.value, seen.timestamp) == (7, 100.0)
    poller.close()


def test_a_look_that_hangs_costs_its_first_visitor_the_patience_and_later_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = Looks()
    poller = BackgroundPoller("thing", looks, interval=NEVER)
    assert poller.result(timeout=0.05) is None
    waits: list[float | None] = []
    monkeypatch.setattr(poller._first_poll_ended, "wait", waits.append)
    for _ in range(100):
        assert poller.result(timeout=0.05) is None
    assert waits == [0.0] * 100
    assert looks.begun == 1
    looks.find(1)
    poller.close()


def test_what_was_seen_stays_while_the_next_look_hangs() -> None:
    looks = Looks()
    looks.find(1)
    poller = BackgroundPoller("thing", looks, interval=0)
    assert poller.result() is not None
    assert eventually(lambda: looks.begun == 2)
    seen = poller.result()
    assert seen is not None
    assert seen.value == 1
    poller.close()
    looks.find(2)


def test_a_failure_is_kept_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks()
    poller = BackgroundPoller("thing", looks, interval=0)
    with caplog.at_level(logging.INFO):
        looks.fail(OSError("gone"))
        looks.fail(OSError("gone"))
        assert poller.result() is None
        assert eventually(lambda: looks.begun == 3)
        assert str(poller.failure) == "gone"
        looks.find(3)
        assert eventually(lambda: poller.failure is None)
        seen = poller.result()
    assert seen is not None
    assert seen.value == 3
    assert [record.message for record in caplog.records] == ["watch failed", "watch recovered"]
    poller.close()
    looks.find(0)


def test_not_even_an_exit_ends_the_thread() -> None:
    looks = Looks()
    poller = BackgroundPoller("thing", looks, interval=0)
    looks.fail(SystemExit("from a library"))
    looks.find(5)
    assert eventually(lambda: (seen := poller.result()) is not None and seen.value == 5)
    poller.close()
    looks.find(0)


def test_a_closed_watch_looks_no_more() -> None:
    poller = BackgroundPoller("closing", lambda: 1, interval=0)
    poller.result()
    poller.close()
    name = "watch closing"
    assert eventually(lambda: name not in {thread.name for thread in threading.enumerate()})


def test_watches_begin_together() -> None:
    slow, quick = Looks(), Looks()
    quick.find(1)
    pollers = BackgroundPollers(
        {
            "slow": BackgroundPoller("slow", slow, interval=NEVER),
            "quick": BackgroundPoller("quick", quick, interval=NEVER),
        }
    )
    name, first = next(iter(pollers))
    assert (name, first.result(timeout=0.05)) == ("slow", None)
    assert eventually(lambda: pollers._pollers["quick"].last_result is not None)
    pollers.close()
    slow.find(1)


def test_a_watch_outlives_a_reload_while_its_subject_does() -> None:
    kept, dropped, unused = Looks(), Looks(), Looks()
    kept.find(1)
    dropped.find(2)
    before = BackgroundPollers(
        {
            "a": BackgroundPoller("a", kept, interval=NEVER),
            "b": BackgroundPoller("b", dropped, interval=NEVER),
        }
    )
    for _, poller in before:
        poller.result()
    after = BackgroundPollers({"a": BackgroundPoller("a", unused, interval=NEVER)})
    after.take_over_from(before)
    found = {subject: poller.result() for subject, poller in after}
    assert set(found) == {"a"}
    assert (kept.begun, unused.begun) == (1, 0)
    after.close()


def test_who_only_wants_to_know_starts_nothing() -> None:
    looks = Looks()
    looks.find(1)
    pollers = BackgroundPollers(
        {"a": BackgroundPoller("a", looks, interval=NEVER, now=lambda: 7.0)}
    )
    assert list(pollers.last_results()) == []
    assert looks.begun == 0
    for _, poller in pollers:
        poller.result()
    assert [(subject, seen.value) for subject, seen in pollers.last_results()] == [("a", 1)]
    pollers.close()


def test_how_long_nothing_could_be_seen_is_known_from_the_start() -> None:
    clock = iter((100.0, 105.0, 110.0, 115.0))
    looks = Looks()
    poller = BackgroundPoller("thing", looks, interval=0, now=lambda: next(clock))
    looks.fail(OSError("closed"))
    assert poller.result() is None
    assert poller.last_known_at == 100
    assert eventually(lambda: looks.begun == 2)
    looks.find(1)
    assert eventually(lambda: poller.last_result is not None)
    assert poller.last_known_at == 110
    poller.close()
    looks.find(1)


def test_a_box_without_threads_left_is_watched_as_soon_as_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = BackgroundPoller("thing", lambda: 1, interval=NEVER)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            poller.result()
    assert poller.result() is not None
    poller.close()


def test_watches_may_begin_before_anybody_asks() -> None:
    pollers = BackgroundPollers(
        {name: BackgroundPoller(name, lambda: 1, interval=NEVER) for name in ("a", "b")}
    )
    pollers.start(lambda name: name == "b")
    assert [poller._thread is not None for poller in pollers._pollers.values()] == [False, True]
    pollers.close()


def test_a_poller_without_success_ends_at_the_reload() -> None:
    before = BackgroundPollers({"a": BackgroundPoller("a", lambda: 1, interval=NEVER)})
    vain = BackgroundPoller("a", lambda: 2, interval=NEVER)
    after = BackgroundPollers({"a": vain})
    before.start()
    after.start()
    after.take_over_from(before)
    thread = vain._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    assert [poller.result() for _, poller in after] == [poller.result() for _, poller in before]
    after.close()


def test_a_failure_of_our_own_kind_is_reported_without_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = Looks()
    looks.fail(CollectError("hidden"))
    poller = BackgroundPoller("thing", looks, interval=NEVER)
    assert poller.result() is None
    (record,) = caplog.records
    assert (record.message, record.exc_info) == ("watch failed", None)
    poller.close()
