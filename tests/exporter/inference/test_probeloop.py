"""The loop in its thread, with real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fake_serving import end_all_others, stop_listening
from trainwarden_exporter.inference.asking import HttpAsker
from trainwarden_exporter.inference.config import ServerConfig
from trainwarden_exporter.inference.engines import build_engine
from trainwarden_exporter.inference.probeloop import ProbeLoop
from trainwarden_exporter.inference.prober import Prober
from trainwarden_exporter.inference.target import Target
from trainwarden_exporter.inference.verdict import Limits, Reason

INTERVAL = 1.0
LIMITS = Limits(deep=False)
WaitUntil = Callable[[Callable[[], bool]], None]


@contextmanager
def healthy_server() -> Iterator[str]:
    """A server in a thread that says 200 to everything; its URL."""
    ready = threading.Event()
    found: list[int] = []
    loop = asyncio.new_event_loop()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
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
    ready.wait(5)
    try:
        yield f"http://127.0.0.1:{found[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


@contextmanager
def hanging_server() -> Iterator[str]:
    """A server of which only the kernel accepts connections; its URL."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(1024)
        yield f"http://127.0.0.1:{one.getsockname()[1]}"


def target(name: str, url: str | None, **settings: object) -> Target:
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
    return Target("run", name, "tgi", url, config)


def build(target: Target) -> Prober:
    engine = build_engine(target.engine, target.config, target.url or "")
    return Prober(target, engine, HttpAsker(target.config.timeout), limits=LIMITS)


@pytest.fixture
def probes() -> Iterator[ProbeLoop]:
    loop = ProbeLoop(build)
    yield loop
    loop.close()


def reason(probes: ProbeLoop, one: Target) -> Reason | None:
    sighting = probes.seen(patience=0)[one]
    return sighting.reason if sighting else None


def test_the_first_look_already_shows_something(probes: ProbeLoop) -> None:
    with healthy_server() as url:
        one = target("a", url)
        probes.set([one])
        sighting = probes.seen()[one]
    assert sighting is not None
    assert sighting.reason is Reason.OK


def test_a_hanging_first_look_is_waited_for_once_and_not_longer_than_a_second(
    probes: ProbeLoop,
) -> None:
    with hanging_server() as url:
        one = target("a", url, timeout=30)
        probes.set([one])
        began = time.monotonic()
        assert probes.seen(patience=0.2) == {one: None}
        assert time.monotonic() - began < 1
        began = time.monotonic()
        probes.seen(patience=0.2)
        assert time.monotonic() - began < 0.1


def test_a_server_that_is_nowhere_is_refused_without_being_asked(probes: ProbeLoop) -> None:
    one = target("a", None)
    probes.set([one])
    sighting = probes.seen()[one]
    assert sighting is not None
    assert sighting.detail == "its worker does not run, or opens no port"


def test_targets_come_and_go_and_one_that_stays_keeps_what_is_known(probes: ProbeLoop) -> None:
    with healthy_server() as url:
        one, other = target("a", url), target("b", url)
        probes.set([one])
        first = probes.seen()[one]
        probes.set([target("a", url), other])
        time.sleep(0.3)
        found = probes.seen()
        assert first is not None
        assert found[one] is not None
        assert found[one].timestamp == first.timestamp, "no round was added"  # type: ignore[union-attr]
        assert found[other] is not None
        probes.set([])
        assert probes.seen() == {}


def test_the_thread_ends_when_it_is_closed_and_takes_what_is_under_way_with_it() -> None:
    with hanging_server() as url:
        probes = ProbeLoop(build)
        probes.set([target("a", url, timeout=60)])
        probes.seen(patience=0.1)
        files = open_files()
        assert probes.alive
        probes.close()
        assert not probes.alive
        assert open_files() < files


def test_a_prober_that_cannot_be_built_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    def build_or_not(one: Target) -> Prober:
        if one.server == "bad":
            raise ValueError("no such thing")
        return build(one)

    probes = ProbeLoop(build_or_not)
    with healthy_server() as url:
        good, bad = target("good", url), target("bad", url)
        probes.set([bad, good])
        probes.seen(patience=0.1)
        wait_until(lambda: reason(probes, good) is Reason.OK)
        assert probes.alive
        assert reason(probes, bad) is None
    probes.close()
    assert "server cannot be probed" in caplog.text


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def connections_to(*urls: str) -> int:
    """How many this process has open, of those that it began."""
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


def held(probes: ProbeLoop, *urls: str) -> tuple[int, int]:
    """Connections to these and tasks, counted in the loop's own thread, where none changes."""

    async def count() -> tuple[int, int]:
        return connections_to(*urls), len(asyncio.all_tasks()) - 1  # without this one

    assert probes._loop is not None
    return asyncio.run_coroutine_threadsafe(count(), probes._loop).result(30)


def test_two_hundred_servers_of_which_fifty_hang_are_asked_in_time_and_leave_nothing_behind(
    probes: ProbeLoop,
) -> None:
    with healthy_server() as url, hanging_server() as hanging:
        files = open_files()
        good = [target(f"good-{number}", url, timeout=10) for number in range(150)]
        bad = [target(f"bad-{number}", hanging) for number in range(50)]
        probes.set([*good, *bad])
        probes.start()
        gaps: dict[Target, list[float]] = {one: [] for one in good}
        last: dict[Target, float] = {}
        rounds, most_open, most_tasks, deadline = 0, 0, 0, time.monotonic() + 60
        while rounds < 1000 and time.monotonic() < deadline:
            began = time.monotonic()
            found = probes.seen(patience=0)
            assert time.monotonic() - began < 0.5, "a scrape waits for nobody"
            rounds = sum(sighting.probes for sighting in found.values() if sighting)
            for one in good:
                sighting = found[one]
                if sighting is not None and sighting.timestamp != last.get(one):
                    if one in last:
                        gaps[one].append(sighting.timestamp - last[one])
                    last[one] = sighting.timestamp
            if probes._loop is not None:
                most_open, most_tasks = map(
                    max, (most_open, most_tasks), held(probes, url, hanging)
                )
            time.sleep(0.1)
        assert rounds >= 1000
        assert all(reason(probes, one) is Reason.OK for one in good)
        assert all(reason(probes, one) is Reason.TIMEOUT for one in bad)
        longest = max(gap for row in gaps.values() for gap in row)
        assert longest < 5 * INTERVAL, "one that hangs for each three would delay all by more"
        assert 0 < most_open <= 200, "one for each"
        assert most_tasks <= 2 * 200, "a round for each, and in it a connection being made"
        probes.set([])
        time.sleep(0.5)
        assert tasks_of(probes) <= 2
        assert open_files() <= files + 3, "the loop's own"
