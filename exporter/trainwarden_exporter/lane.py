"""A thread of its own for calls that may block, so that nothing else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NoReturn, TypeVar

from trainwarden_exporter.exceptions import NoThreadError

T = TypeVar("T")


class Lane:
    """Runs calls one after another in one daemon thread.

    A daemon thread, because a call that never returns must not keep the program from ending: the
    interpreter waits for the threads of `concurrent.futures` at exit. The thread is started here
    and kept, because a box that has run out of threads must still be observed. Raises NoThreadError
    where it cannot be had.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        thread = Thread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise NoThreadError(name, error) from error

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` after the calls before it; the future has its result or its exception.

        What would end a program or a generator (SystemExit, StopIteration, …) comes out as
        RuntimeError.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                settle = partial(future.set_result, function())
            except Exception as error:  # noqa: BLE001 - it is the caller's to judge
                settle = partial(future.set_exception, _transportable(error))
            except BaseException as error:  # noqa: BLE001 - the lane outlives whatever it runs
                settle = partial(future.set_exception, RuntimeError(type(error).__name__))
            with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                loop.call_soon_threadsafe(lambda: None if future.done() else settle())

        self._calls.put(run)
        return future

    def close(self) -> None:
        """End the thread after the calls that were made."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it holds the result, which may be large, until the next one comes


def _transportable(error: Exception) -> Exception:
    # A future refuses StopIteration.
    return RuntimeError(type(error).__name__) if isinstance(error, StopIteration) else error


def within(seconds: float, function: Callable[[], T]) -> T:
    """What `function` returns or raises, in a thread of its own that may outlive its usefulness.

    Raises TimeoutError when it takes longer; what it comes to then is nobody's business.
    """
    answers: SimpleQueue[Callable[[], T]] = SimpleQueue()

    def run() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            answers.put(partial(_raise, error))
        else:
            answers.put(lambda: value)

    Thread(target=run, name="within", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    return answer()


def _raise(error: Exception) -> NoReturn:
    raise error
