from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.watching import Watch, Watches

NEVER = 3600.0


class Looks:
    """A look that waits until it is told what to find."""

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
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def test_the_first_look_is_waited_for() -> None:
    watch = Watch("thing", lambda: 7, interval=NEVER, now=lambda: 100.0)
    seen = watch.seen()
    assert seen is not None
    assert (seen.value, seen.timestamp) == (7, 100.0)
    watch.close()


def test_a_look_that_hangs_costs_its_first_visitor_the_patience_and_later_ones_nothing() -> None:
    looks = Looks()
    watch = Watch("thing", looks, interval=NEVER)
    assert watch.seen(patience=0.05) is None
    began = time.monotonic()
    for _ in range(100):
        assert watch.seen(patience=0.05) is None
    assert time.monotonic() - began < 1
    assert looks.begun == 1
    looks.find(1)
    watch.close()


def test_what_was_seen_stays_while_the_next_look_hangs() -> None:
    looks = Looks()
    looks.find(1)
    watch = Watch("thing", looks, interval=0)
    assert watch.seen() is not None
    assert eventually(lambda: looks.begun == 2)
    seen = watch.seen()
    assert seen is not None
    assert seen.value == 1
    watch.close()
    looks.find(2)


def test_a_failure_is_kept_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks()
    watch = Watch("thing", looks, interval=0)
    with caplog.at_level(logging.INFO):
        looks.fail(OSError("gone"))
        looks.fail(OSError("gone"))
        assert watch.seen() is None
        assert eventually(lambda: looks.begun == 3)
        assert str(watch.failure) == "gone"
        looks.find(3)
        assert eventually(lambda: watch.failure is None)
        seen = watch.seen()
    assert seen is not None
    assert seen.value == 3
    assert [record.message for record in caplog.records] == ["watch failed", "watch recovered"]
    watch.close()
    looks.find(0)


def test_not_even_an_exit_ends_the_thread() -> None:
    looks = Looks()
    watch = Watch("thing", looks, interval=0)
    looks.fail(SystemExit("from a library"))
    looks.find(5)
    assert eventually(lambda: (seen := watch.seen()) is not None and seen.value == 5)
    watch.close()
    looks.find(0)


def test_a_closed_watch_looks_no_more() -> None:
    watch = Watch("closing", lambda: 1, interval=0)
    watch.seen()
    watch.close()
    name = "watch closing"
    assert eventually(lambda: name not in {thread.name for thread in threading.enumerate()})


def test_watches_begin_together() -> None:
    slow, quick = Looks(), Looks()
    quick.find(1)
    watches = Watches(
        {
            "slow": Watch("slow", slow, interval=NEVER),
            "quick": Watch("quick", quick, interval=NEVER),
        }
    )
    began = time.monotonic()
    values = {name: watch.seen(patience=0.2) for name, watch in watches}
    assert time.monotonic() - began < 2
    assert values["slow"] is None
    assert values["quick"] is not None
    watches.close()
    slow.find(1)


def test_a_watch_outlives_a_reload_while_its_subject_does() -> None:
    kept, dropped, unused = Looks(), Looks(), Looks()
    kept.find(1)
    dropped.find(2)
    before = Watches(
        {"a": Watch("a", kept, interval=NEVER), "b": Watch("b", dropped, interval=NEVER)}
    )
    for _, watch in before:
        watch.seen()
    after = Watches({"a": Watch("a", unused, interval=NEVER)})
    after.adopt(before)
    found = {subject: watch.seen() for subject, watch in after}
    assert set(found) == {"a"}
    assert (kept.begun, unused.begun) == (1, 0)
    after.close()


def test_who_only_wants_to_know_starts_nothing() -> None:
    looks = Looks()
    looks.find(1)
    watches = Watches({"a": Watch("a", looks, interval=NEVER, now=lambda: 7.0)})
    assert list(watches.last()) == []
    assert looks.begun == 0
    for _, watch in watches:
        watch.seen()
    assert [(subject, seen.value) for subject, seen in watches.last()] == [("a", 1)]
    watches.close()


def test_how_long_nothing_could_be_seen_is_known_from_the_start() -> None:
    clock = iter((100.0, 105.0, 110.0, 115.0))
    looks = Looks()
    watch = Watch("thing", looks, interval=0, now=lambda: next(clock))
    looks.fail(OSError("closed"))
    assert watch.seen() is None
    assert watch.known == 100
    assert eventually(lambda: looks.begun == 2)
    looks.find(1)
    assert eventually(lambda: watch.last is not None)
    assert watch.known == 110
    watch.close()
    looks.find(1)


def test_a_box_without_threads_left_is_watched_as_soon_as_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch("thing", lambda: 1, interval=NEVER)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            watch.seen()
    assert watch.seen() is not None
    watch.close()


def test_watches_may_begin_before_anybody_asks() -> None:
    watches = Watches({name: Watch(name, lambda: 1, interval=NEVER) for name in ("a", "b")})
    watches.start(lambda name: name == "b")
    assert [watch._thread is not None for watch in watches._watches.values()] == [False, True]
    watches.close()


def test_a_watch_that_began_in_vain_ends_at_the_reload() -> None:
    before = Watches({"a": Watch("a", lambda: 1, interval=NEVER)})
    vain = Watch("a", lambda: 2, interval=NEVER)
    after = Watches({"a": vain})
    before.start()
    after.start()
    after.adopt(before)
    thread = vain._thread
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive()
    assert [watch.seen() for _, watch in after] == [watch.seen() for _, watch in before]
    after.close()


def test_a_failure_of_our_own_kind_is_told_without_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = Looks()
    looks.fail(CollectError("hidden"))
    watch = Watch("thing", looks, interval=NEVER)
    assert watch.seen() is None
    (record,) = caplog.records
    assert (record.message, record.exc_info) == ("watch failed", None)
    watch.close()
