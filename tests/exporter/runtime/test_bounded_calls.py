"""Calls to a file system that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.waiting import until

from trainwarden_exporter.runtime import bounded_calls as module
from trainwarden_exporter.runtime.bounded_calls import bounded_call


class Mount:
    """Answers once `answers` is set; counts what is asked of it."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []

    def ask(self, what: str) -> Callable[[], str]:
        def answer() -> str:
            self.asked.append(what)
            self.answers.wait()
            return what

        return answer


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)


def test_an_answer_and_an_error_are_passed_on() -> None:
    assert bounded_call("/a", lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        bounded_call("/a", Path("/does/not/exist").stat)


def test_a_mount_that_hangs_occupies_one_thread_for_each_path() -> None:
    mount = Mount()
    for path in ("/x", "/x", "/y", "/x", "/y"):
        with pytest.raises(TimeoutError) as caught:
            bounded_call(path, mount.ask(path))
        assert (caught.value.filename, "not answer" in str(caught.value)) == (path, True)
    assert mount.asked == ["/x", "/y"]
    mount.answers.set()
    until(lambda: not module._running)
    assert bounded_call("/x", mount.ask("/x")) == "/x"


def test_a_hundred_paths_on_it_are_not_waited_for_one_by_one() -> None:
    mount = Mount()
    began = time.monotonic()
    for number in range(100):
        with pytest.raises(TimeoutError):
            bounded_call(f"/{number}", mount.ask(""))
    # a fifth of a second for the first, a twentieth for each of the others
    assert time.monotonic() - began < 100 * module.SECONDS
    mount.answers.set()
    until(lambda: not module._running)


def test_a_second_caller_gets_an_answer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may have looked before what the second must see was written."""
    monkeypatch.setattr(module, "SECONDS", 60.0)
    mount = Mount()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(bounded_call, "/x", mount.ask("first"))
        until(lambda: mount.asked == ["first"])
        second = pool.submit(bounded_call, "/x", mount.ask("second"))
        mount.answers.set()
        assert (first.result(), second.result()) == ("first", "second")
    assert mount.asked == ["first", "second"]


def test_without_a_thread_it_asks_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert bounded_call("/x", lambda: 7) == 7
