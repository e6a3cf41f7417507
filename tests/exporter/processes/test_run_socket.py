"""A socket of a run whose account answers without end, or not at all."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from trainwarden_exporter.processes.run_socket import MAX_ANSWER, ask_run

Answer = Callable[[socket.socket, threading.Event], None]


def silent(_: socket.socket, over: threading.Event) -> None:
    over.wait()


def drops(connection: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.05):
        connection.sendall(b" ")


def endless(connection: socket.socket, _: threading.Event) -> None:
    while True:
        connection.sendall(b" " * 65536)


def too_long(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b" " * MAX_ANSWER + b"{}\n")


def deep(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b"[" * 100_000 + b"\n")


def in_parts(connection: socket.socket, over: threading.Event) -> None:
    for part in (b'{"ok"', b": true}", b"\n{}"):
        connection.sendall(part)
        over.wait(0.05)


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A socket at which the function of the parameter answers."""
    answer: Answer = request.param
    found, over = tmp_path / "run.sock", threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(tmp_path, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{folder}/run.sock")
    os.close(folder)
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(4096)
            answer(connection, over)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield found
    over.set()
    listener.close()
    thread.join(60)


@pytest.mark.parametrize("path", [silent, drops], indirect=True)
def test_an_answer_that_does_not_end_is_not_awaited(path: Path) -> None:
    asked = threading.Event()
    problem: list[BaseException] = []

    def ask() -> None:
        try:
            ask_run(path, owner=os.geteuid(), timeout=0.5, command="status")
        except OSError as error:
            problem.append(error)
        asked.set()

    threading.Thread(target=ask, daemon=True).start()
    assert asked.wait(60)
    assert isinstance(problem[0], TimeoutError)


@pytest.mark.parametrize("path", [endless, too_long, deep], indirect=True)
def test_an_answer_that_is_too_long_or_too_deep_is_malformed(path: Path) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        ask_run(path, owner=os.geteuid(), timeout=60, command="status")


@pytest.mark.parametrize("path", [in_parts], indirect=True)
def test_an_answer_in_parts_is_read(path: Path) -> None:
    assert ask_run(path, owner=os.geteuid(), timeout=60, command="status") == {"ok": True}
