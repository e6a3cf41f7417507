"""A program starts, is ready, reloads on SIGHUP, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.webserver.service import BackgroundEndedError, Readiness, Run, serve


class FakeServer:
    """Starts at once, and closes when it is allowed to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started = asyncio.Event()
        self.closing = asyncio.Event()
        self.may_close = asyncio.Event()
        self.may_close.set()
        self.closed = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return (("127.0.0.1", 1),)

    async def start(self) -> None:
        if self.error:
            raise self.error
        self.started.set()

    async def close(self) -> None:
        self.closing.set()
        await self.may_close.wait()
        self.closed = True


class Reloads:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0
        self.seen = asyncio.Event()

    async def __call__(self) -> None:
        self.count += 1
        self.seen.set()
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def reported(manager: socket.socket) -> list[str]:
    states = []
    while True:
        try:
            states.append(manager.recv(200).decode().split("\n")[0])
        except BlockingIOError:
            return states


@asynccontextmanager
async def serving(
    server: FakeServer,
    *,
    reload: Reloads | None = None,
    readiness: Readiness | None = None,
    background: dict[str, Run] | None = None,
    drain_limit: float = 30,
    alive: Callable[[], bool] = lambda: True,
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(
        serve(
            server,
            readiness=readiness or Readiness(),
            reload=reload or Reloads(),
            background=background,
            drain_limit=drain_limit,
            alive=alive,
        )
    )
    await server.started.wait()
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait([task], timeout=60)
        assert task.done()


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_is_ready_until_it_is_asked_to_stop_and_then_drains(
    number: signal.Signals, manager: socket.socket
) -> None:
    server, readiness = FakeServer(), Readiness()
    server.may_close.clear()
    assert not readiness.ready
    async with serving(server, readiness=readiness) as task:
        assert readiness.ready
        assert reported(manager) == ["READY=1"]

        send(number)
        await server.closing.wait()
        assert not readiness.ready
        assert not task.done()
        assert reported(manager) == ["STOPPING=1"]

        server.may_close.set()
        await task
    assert server.closed


async def test_a_second_signal_cuts_draining_short() -> None:
    server = FakeServer()
    server.may_close.clear()
    async with serving(server) as task:
        send(signal.SIGTERM)
        await server.closing.wait()
        send(signal.SIGINT)
        await task
    assert not server.closed


async def test_draining_has_an_end() -> None:
    server = FakeServer()
    server.may_close.clear()
    async with serving(server, drain_limit=0.01) as task:
        send(signal.SIGTERM)
        await task
    assert not server.closed


async def test_sighup_reloads_and_notifies_the_service_manager(manager: socket.socket) -> None:
    reloads = Reloads()
    async with serving(FakeServer(), reload=reloads) as task:
        reported(manager)
        send(signal.SIGHUP)
        await reloads.seen.wait()
        await asyncio.sleep(0)
        assert reported(manager) == ["RELOADING=1", "READY=1"]
        assert not task.done()
    assert reloads.count == 1


@pytest.mark.parametrize(
    "error", [ConfigError(Problem(Path("x"), 1, "", "bad")), RuntimeError("a fault")]
)
async def test_a_reload_that_fails_does_not_end_the_program(error: Exception) -> None:
    reloads = Reloads(error)
    async with serving(FakeServer(), reload=reloads) as task:
        for _ in range(2):
            reloads.seen.clear()
            send(signal.SIGHUP)
            await reloads.seen.wait()
        assert not task.done()
    assert reloads.count == 2


@pytest.mark.parametrize(
    "error", [OSError("address in use"), ConfigError(Problem(Path("x"), 1, "", "bad"))]
)
async def test_a_server_that_cannot_start_is_the_callers_to_explain(error: Exception) -> None:
    with pytest.raises(type(error)):
        await serve(FakeServer(error), readiness=Readiness(), reload=Reloads())


async def test_background_tasks_run_until_the_server_has_closed() -> None:
    server, ended = FakeServer(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(server.closed)

    async with serving(server, background={"work": work}):
        pass
    assert ended == [True]


async def test_a_background_task_that_returns_stops_the_program() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    server, readiness = FakeServer(), Readiness()
    with pytest.raises(BackgroundEndedError, match="work ended"):
        await serve(server, readiness=readiness, reload=Reloads(), background={"work": work})
    assert server.closed
    assert not readiness.ready


async def test_a_background_task_that_fails_stops_the_program_with_its_error() -> None:
    async def work() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        await serve(
            FakeServer(), readiness=Readiness(), reload=Reloads(), background={"work": work}
        )


async def test_a_watchdog_is_not_fed_while_the_work_stands_still(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    asked = 0

    def alive() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    async with serving(FakeServer(), alive=alive):
        states: list[str] = []
        while "WATCHDOG=1" not in states:
            await asyncio.sleep(0.001)
            states += reported(manager)
            assert asked > 3 or "WATCHDOG=1" not in states


async def test_the_watchdog_is_fed(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    async with serving(FakeServer()):
        states: list[str] = []
        while states.count("WATCHDOG=1") < 3:
            await asyncio.sleep(0.001)
            states += reported(manager)
