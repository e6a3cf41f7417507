"""Runs blocking calls in a thread of their own."""

from __future__ import annotations

import asyncio
import os
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NoReturn, TypeVar

from trainwarden_exporter.exceptions import NoThreadError

T = TypeVar("T")


class SerialThread:
    """Runs calls one after another in one daemon thread.

    A daemon thread, because a call that never returns must not prevent the exit of the program: the
    interpreter waits for threads of `concurrent.futures`. The thread starts immediately and is
    kept, because a host that is out of threads must still be observed. Raises NoThreadError if it
    cannot be started.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        try:
            Thread(target=self._run, name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            raise NoThreadError(name, error) from error

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Runs `function` after earlier calls; the future receives its result or exception.

        Exceptions that would end a program or a generator (SystemExit, StopIteration, …) become
        RuntimeError.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                settle = partial(future.set_result, function())
            except Exception as error:  # noqa: BLE001 - passed to the caller
                settle = partial(future.set_exception, _future_exception(error))
            except BaseException as error:  # noqa: BLE001 - the thread survives any call
                settle = partial(future.set_exception, RuntimeError(type(error).__name__))
            with suppress(RuntimeError):  # the loop has closed: no caller waits any more
                loop.call_soon_threadsafe(lambda: None if future.done() else settle())

        self._calls.put(run)
        return future

    def close(self) -> None:
        """Ends the thread after the queued calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # otherwise it would hold a possibly large result until the next call


def _future_exception(error: Exception) -> Exception:
    # a future rejects StopIteration
    return RuntimeError(type(error).__name__) if isinstance(error, StopIteration) else error


_Calls = SimpleQueue[Callable[[], Callable[[], None]] | None]
"""Each call returns what hands over its result."""

_kept: list[_Calls] = []
"""The queues of the threads that wait for a call of `run_with_timeout`."""
os.register_at_fork(after_in_child=_kept.clear)

_KEPT_THREADS = 8
_START_SECONDS = 5.0


def run_with_timeout(seconds: float, function: Callable[[], T]) -> T:
    """Returns the result of `function`, run in a daemon thread that may outlive the call.

    Raises TimeoutError after `seconds`; a later result is discarded. Raises NoThreadError. A thread
    is kept for later calls: a host without memory for another one must still be observed.
    """
    answers: SimpleQueue[Callable[[], T]] = SimpleQueue()

    def run() -> Callable[[], None]:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised again in the caller
            return partial(answers.put, partial(_raise, error))
        return partial(answers.put, lambda: value)

    try:
        calls = _kept.pop()
    except IndexError:
        calls = _start_caller()
    calls.put(run)
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    return answer()


def _start_caller() -> _Calls:
    """Returns the queue of a new thread.

    `Thread.start` would wait for ever if the new thread has no memory for its first lines.
    """
    calls: _Calls = SimpleQueue()
    started: SimpleQueue[None] = SimpleQueue()
    try:
        start_new_thread(_serve_calls, (calls, started))
        started.get(timeout=_START_SECONDS)
    except (RuntimeError, MemoryError) as error:
        raise NoThreadError("run with timeout", error) from error
    except Empty:
        calls.put(None)  # should it begin after all
        raise NoThreadError("run with timeout", MemoryError()) from None
    return calls


def _serve_calls(calls: _Calls, started: SimpleQueue[None]) -> None:
    started.put(None)
    is_kept = True
    while is_kept and (call := calls.get()) is not None:
        hand_over = call()
        # before it hands over: the next call of the same caller takes this thread
        if is_kept := len(_kept) < _KEPT_THREADS:
            _kept.append(calls)
        hand_over()
        del call, hand_over  # they hold the result


def _raise(error: Exception) -> NoReturn:
    raise error
