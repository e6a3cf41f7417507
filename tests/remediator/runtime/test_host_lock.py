from __future__ import annotations

import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Timer

import pytest
from tests.hostile.accounts import STRANGER, needs_root

from trainwarden_remediator.runtime import host_lock
from trainwarden_remediator.runtime.host_lock import host_locks


@contextmanager
def child(run: Callable[[], AbstractContextManager[None]]) -> Iterator[int]:
    """A fork that stays within `run` until the end; yields its pid."""
    read, write = os.pipe()
    if not (pid := os.fork()):
        try:
            with run():
                os.write(write, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1) == b"x"
        yield pid
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def test_a_second_process_is_refused_until_the_first_has_ended(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_lock, "WAIT_SECONDS", 0.01)
    with (
        child(lambda: host_locks(name)) as pid,
        pytest.raises(BlockingIOError, match=f"process {pid} acts"),
        host_locks("another", name),
    ):
        sys.exit("two processes hold one lock")
    with host_locks(name):
        pass


def test_it_is_refused_as_soon_as_the_other_process_has_released_it(name: str) -> None:
    with child(lambda: host_locks(name)) as pid:
        Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
        began = time.monotonic()
        with pytest.raises(BlockingIOError), host_locks(name):
            sys.exit("two processes hold one lock")
        assert time.monotonic() - began < host_lock.WAIT_SECONDS
        with host_locks(name):
            pass


def test_it_is_released_at_its_end_and_after_an_error(name: str) -> None:
    for _ in range(3):
        with pytest.raises(KeyError), host_locks(name, "another"):
            raise KeyError
    with host_locks(name, name):
        pass


@needs_root
@pytest.mark.parametrize("listens", [True, False])
def test_another_account_cannot_prevent_a_lock(
    name: str, monkeypatch: pytest.MonkeyPatch, *, listens: bool
) -> None:
    addresses: list[str] = []

    class Recorded(socket.socket):
        def bind(self, address: str) -> None:  # type: ignore[override]
            addresses.append(address)
            super().bind(address)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Recorded)
        with host_locks(name):
            pass

    @contextmanager
    def squat() -> Iterator[None]:
        os.setgroups([])
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
            held.bind(addresses[0])
            if listens:
                held.listen()
            yield

    with child(squat), host_locks(name):
        pass
