"""The probe loop in its thread, with real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fake_serving import end_all_others, stop_listening
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.health_model import HealthLimits, HealthReason
from trainwarden_exporter.inference.http_client import HttpClient
from trainwarden_exporter.inference.probe_loop import ProbeLoop
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.target import ServerTarget

INTERVAL = 1.0
LIMITS = HealthLimits(probes_completions=False)
WaitUntil = Callable[[Callable[[], bool]], None]


@contextmanager
def healthy_server() -> Iterator[str]:
    """Runs a server that always returns 200 in a thread; yields its URL."""
    ready = threading.Event()
    found: list[int] = []
    loop = asyncio.new_event_loop()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # CPython 3.11 logs an error for each handler that ends as cancelled.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        finally:
            writer.transport.abort()

    async def serve() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=512)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        await stop_listening(server)
        await end_all_others()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(60)
    try:
        yield f"http://127.0.0.1:{found[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


@contextmanager
def hanging_server() -> Iterator[str]:
    """Yields the URL of a server where only the kernel accepts connections."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(1024)
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


def target(name: str, url: str | None, **settings: object) -> ServerTarget:
    config = ServerConfig.model_validate(
        {
            "name": name,
            "engine": "tgi",
            "url": url,
            "worker": "w",
            "interval": INTERVAL,
            "timeout": 0.5,
            **settings,
        }
    )
    return ServerTarget("run", name, "tgi", url, config)


def build(target: ServerTarget) -> Prober:
    engine = build_engine(target.engine, target.config, target.url or "")
    return Prober(target, engine, HttpClient(target.config.timeout), limits=LIMITS)


@pytest.fixture
def probes() -> Iterator[ProbeLoop]:
    loop = ProbeLoop(build)
    yield loop
    loop.close()


def reason(probes: ProbeLoop, one: ServerTarget) -> HealthReason | None:
    health = probes.latest(wait_seconds=0)[one]
    return health.reason if health else None


def test_the_first_call_returns_the_first_round(probes: ProbeLoop) -> None:
    with healthy_server() as url:
        one = target("a", url)
        probes.set_targets([one])
        health = probes.latest()[one]
    assert health is not None
    assert health.reason is HealthReason.OK


def test_a_hanging_first_round_is_waited_for_once_and_briefly(
    probes: ProbeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hanging_server() as url:
        one = target("a", url, timeout=120)
        probes.set_targets([one])
        assert probes.latest(wait_seconds=0.2) == {one: None}
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        assert probes.latest(wait_seconds=0.2) == {one: None}
        assert slept == []


def test_a_server_without_an_address_is_refused_without_a_request(probes: ProbeLoop) -> None:
    one = target("a", None)
    probes.set_targets([one])
    health = probes.latest()[one]
    assert health is not None
    assert health.detail == "its worker is not running or has no open port"


def test_targets_come_and_go_and_a_remaining_target_keeps_its_state(
    probes: ProbeLoop, wait_until: WaitUntil
) -> None:
    with healthy_server() as url:
        one, other = target("a", url, interval=3600), target("b", url)
        probes.set_targets([one])
        wait_until(lambda: reason(probes, one) is not None)
        first = probes.latest()[one]
        probes.set_targets([target("a", url, interval=3600), other])
        wait_until(lambda: reason(probes, other) is not None)
        found = probes.latest()
        assert first is not None
        assert found[one] is not None
        assert found[one].timestamp == first.timestamp, "no round was added"  # type: ignore[union-attr]
        assert found[other] is not None
        probes.set_targets([])
        assert probes.latest() == {}


def test_the_thread_and_its_requests_end_on_close(
    wait_until: WaitUntil,
) -> None:
    with hanging_server() as url:
        probes = ProbeLoop(build)
        probes.set_targets([target("a", url, timeout=120)])
        probes.start()
        wait_until(lambda: connections_to(url) == 1)
        files = open_files()
        assert probes.is_alive
        probes.close()
        assert not probes.is_alive
        assert open_files() < files


def test_a_prober_that_cannot_be_built_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    def build_or_not(one: ServerTarget) -> Prober:
        if one.server == "bad":
            raise ValueError("no such thing")
        return build(one)

    probes = ProbeLoop(build_or_not)
    with healthy_server() as url:
        good, bad = target("good", url), target("bad", url)
        probes.set_targets([bad, good])
        probes.latest(wait_seconds=0.1)
        wait_until(lambda: reason(probes, good) is HealthReason.OK)
        assert probes.is_alive
        assert reason(probes, bad) is None
    probes.close()
    assert "cannot probe inference server" in caplog.text


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def connections_to(*urls: str) -> int:
    """Returns the number of open client connections of this process."""
    ports = {int(url.rpartition(":")[2]) for url in urls}
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, or not connected
            if entry.is_socket():
                with socket.socket(fileno=os.dup(int(entry.name))) as one:
                    count += one.family == socket.AF_INET and one.getpeername()[1] in ports
    return count


def tasks_of(probes: ProbeLoop) -> int:
    loop = probes._loop
    return 0 if loop is None else len(asyncio.all_tasks(loop))


def held(probes: ProbeLoop, *urls: str) -> Counter[str]:
    """Returns the numbers of connections to `urls` and of tasks by kind, counted in the loop."""

    async def count() -> Counter[str]:
        kinds = {Prober.run.__qualname__: "rounds", Prober._complete.__qualname__: "completions"}
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        names = [getattr(task.get_coro(), "__qualname__", "") for task in tasks]
        found = Counter(kinds.get(name, "other tasks") for name in names)
        return found + Counter(connections=connections_to(*urls))

    assert probes._loop is not None
    return asyncio.run_coroutine_threadsafe(count(), probes._loop).result(60)


def test_two_hundred_servers_with_fifty_hung_are_probed_in_time_without_leaks(
    probes: ProbeLoop, wait_until: WaitUntil
) -> None:
    with healthy_server() as url, hanging_server() as hanging:
        files = open_files()
        good = [target(f"good-{number}", url, timeout=120) for number in range(150)]
        bad = [target(f"bad-{number}", hanging) for number in range(25)]
        stuck = [target(f"stuck-{number}", hanging, timeout=120) for number in range(25)]
        probes.set_targets([*good, *bad, *stuck])
        probes.start()
        most = Counter[str]()

        def are_asked() -> bool:
            nonlocal most
            if probes._loop is None:
                return False
            most |= held(probes, url, hanging)
            found = probes.latest(wait_seconds=0)
            rounds = [health.probes if (health := found[one]) else 0 for one in good]
            return min(rounds) >= 5 and all(found[one] for one in bad)

        wait_until(are_asked)
        assert all(reason(probes, one) is HealthReason.OK for one in good)
        assert all(reason(probes, one) is HealthReason.TIMEOUT for one in bad)
        assert {reason(probes, one) for one in stuck} == {None}, "all the while they hung"
        # After five rounds, a leak of one for each round would hold 1,000.
        assert most["rounds"] == 200
        assert 0 < most["completions"] <= 200
        assert 0 < most["connections"] <= 2 * 200, "a liveness and a completion for each"
        assert most["other tasks"] <= 2 * 200, "connections being made, and the loop itself"
        probes.set_targets([])
        wait_until(lambda: tasks_of(probes) <= 2)
        wait_until(lambda: open_files() <= files + 3)  # the loop's own
