"""The messages to the service manager, and the interval at which it expects them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainwarden_exporter.webserver import sdnotify


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket and what NOTIFY_SOCKET would hold for it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@trainwarden-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(60)
        yield listener, name


def test_a_state_is_sent(manager: tuple[socket.socket, str]) -> None:
    listener, name = manager
    assert sdnotify.notify(sdnotify.READY, environment={"NOTIFY_SOCKET": name})
    assert listener.recv(100) == b"READY=1"


def test_the_programs_own_environment_is_used(
    manager: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, name = manager
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    assert sdnotify.notify(sdnotify.STOPPING)
    assert listener.recv(100) == b"STOPPING=1"


def test_a_reload_carries_its_moment() -> None:
    announced, moment = sdnotify.reloading().split("\n")
    assert announced == "RELOADING=1"
    assert moment.startswith("MONOTONIC_USEC=")
    assert int(moment.removeprefix("MONOTONIC_USEC=")) > 0


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": ""},
        {"NOTIFY_SOCKET": "vsock:2:1"},
        {"NOTIFY_SOCKET": "/no/such"},
        {"NOTIFY_SOCKET": "/" + "x" * 300},
    ],
)
def test_it_is_harmless_where_nobody_listens(environment: dict[str, str]) -> None:
    assert not sdnotify.notify(sdnotify.READY, environment=environment)


def test_a_manager_that_does_not_read_does_not_hold_the_program_up(
    manager: tuple[socket.socket, str],
) -> None:
    _, name = manager
    environment = {"NOTIFY_SOCKET": name}
    sent = [sdnotify.notify(sdnotify.WATCHDOG, environment=environment) for _ in range(20_000)]
    assert sent[0]
    assert not sent[-1]


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "?"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_it_beats_at_half_the_limit_if_the_limit_is_its_own(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert sdnotify.watchdog_interval(environment=environment, pid=42) == seconds
