"""Calls off the event loop, in a thread that outlives them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial

import pytest
from tests.waiting import until

from trainwarden_exporter.exceptions import NoThreadError
from trainwarden_exporter.runtime import blocking_thread
from trainwarden_exporter.runtime.blocking_thread import SerialThread, run_with_timeout


def fail(error: BaseException) -> None:
    raise error


async def test_calls_run_one_after_another_in_one_other_thread() -> None:
    thread = SerialThread("test")
    seen: list[int] = []

    def note(number: int) -> threading.Thread:
        seen.append(number)
        return threading.current_thread()

    threads = await asyncio.gather(*(thread.call(partial(note, n)) for n in range(5)))

    assert seen == [0, 1, 2, 3, 4]
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()
    thread.close()


async def test_an_exception_reaches_the_caller() -> None:
    thread = SerialThread("test")
    with pytest.raises(ZeroDivisionError):
        await thread.call(lambda: 1 // 0)
    thread.close()


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(), KeyboardInterrupt()])
async def test_what_would_end_more_than_the_call_becomes_a_runtime_error(
    error: BaseException,
) -> None:
    thread = SerialThread("test")
    with pytest.raises(RuntimeError, match=type(error).__name__):
        await thread.call(lambda: fail(error))
    assert await thread.call(lambda: "still here") == "still here"
    thread.close()


async def test_a_caller_that_gave_up_does_not_disturb_the_lane() -> None:
    thread = SerialThread("test")
    opened = threading.Event()
    abandoned = thread.call(lambda: opened.wait(60))
    abandoned.cancel()
    opened.set()

    assert await thread.call(lambda: "next") == "next"
    thread.close()


def test_a_call_that_hangs_does_not_keep_the_program_from_ending() -> None:
    program = """
import asyncio, threading
from trainwarden_exporter.runtime.blocking_thread import SerialThread, run_with_timeout

async def main():
    thread, entered = SerialThread("hung"), threading.Event()
    thread.call(lambda: (entered.set(), threading.Event().wait()))
    entered.wait()

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=60, check=False, capture_output=True, text=True
    )

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (MemoryError(), "no memory"),
    ],
    ids=["threads", "memory"],
)
def test_a_thread_that_cannot_be_had_is_reported_by_its_name(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: fail(error))
    with pytest.raises(NoThreadError, match=f'^no thread "look": {message}$'):
        SerialThread("look")


def test_within_gives_the_answer_or_the_error() -> None:
    assert run_with_timeout(60, lambda: 7) == 7
    with pytest.raises(KeyError, match="lost"):
        run_with_timeout(60, lambda: fail(KeyError("lost")))


def test_within_does_not_wait_for_what_takes_too_long() -> None:
    released = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        run_with_timeout(0.05, lambda: released.wait(60))
    released.set()


def test_a_kept_thread_answers_where_no_other_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_with_timeout(60, lambda: 7) == 7
    monkeypatch.setattr(blocking_thread, "start_new_thread", lambda *_: fail(MemoryError()))
    until(lambda: blocking_thread._kept)
    assert run_with_timeout(60, lambda: 8) == 8
    monkeypatch.setattr(blocking_thread, "_kept", [])
    with pytest.raises(NoThreadError, match="no memory"):
        run_with_timeout(60, lambda: 9)


def test_a_thread_that_dies_before_it_begins_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that has no memory for its first lines: `Thread.start` waits for it for ever."""
    monkeypatch.setattr(blocking_thread, "start_new_thread", lambda *_: None)
    monkeypatch.setattr(blocking_thread, "_START_SECONDS", 0.05)
    monkeypatch.setattr(blocking_thread, "_kept", [])
    with pytest.raises(NoThreadError, match="no memory"):
        run_with_timeout(60, lambda: 9)


def test_a_thread_over_the_number_kept_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_thread, "_kept", [])
    monkeypatch.setattr(blocking_thread, "_KEPT_THREADS", 0)
    thread = run_with_timeout(60, threading.get_ident)
    until(lambda: thread not in sys._current_frames())
    assert blocking_thread._kept == []
