from __future__ import annotations

import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
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


@pytest.fixture
def address(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the lock `name`."""
    addresses: list[str] = []

    class Recorded(socket.socket):
        def bind(self, address: str) -> None:  # type: ignore[override]
            addresses.append(address)
            super().bind(address)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Recorded)
        with host_locks(name):
            pass
    return addresses[0]


def fill_queue(stack: ExitStack, address: str) -> None:
    """Connects to `address` until its queue of connections is full."""
    while True:
        peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        peer.setblocking(False)
        try:
            peer.connect(address)
        except BlockingIOError:
            return


def test_a_full_queue_of_connections_does_not_let_a_second_process_in(
    name: str, address: str
) -> None:
    with child(lambda: host_locks(name)) as pid, ExitStack() as stack:
        fill_queue(stack, address)
        with pytest.raises(BlockingIOError, match=f"process {pid} acts"), host_locks(name):
            sys.exit("two processes hold one lock")
    with host_locks(name):
        pass


def test_odd_names_of_other_sockets_do_not_hide_the_process_that_holds_it(
    name: str, address: str
) -> None:
    """Any account may bind one, and its name may have any bytes."""
    with child(lambda: host_locks(name)) as pid, ExitStack() as stack:
        fill_queue(stack, address)
        odd = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        odd.bind(f"\0{name[:8]}\n0 0 0 odd 0 0 0 @{address[1:]}\n".encode() + b"\xff")
        with pytest.raises(BlockingIOError, match=f"process {pid} acts"), host_locks(name):
            sys.exit("two processes hold one lock")


@contextmanager
def squat(address: str, *, listens: bool = True, full: bool) -> Iterator[None]:
    """Takes the address as another account."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held, ExitStack() as stack:
        held.bind(address)
        if listens:
            held.listen(1)
            if full:
                fill_queue(stack, address)
        yield


@needs_root
@pytest.mark.parametrize(("listens", "full"), [(True, True), (True, False), (False, False)])
def test_another_account_cannot_prevent_a_lock(
    name: str, address: str, *, listens: bool, full: bool
) -> None:
    with child(lambda: squat(address, listens=listens, full=full)), host_locks(name):
        pass


@needs_root
def test_nor_by_a_name_that_looks_like_a_row_about_a_socket_of_root(
    name: str, address: str
) -> None:
    """/proc/net/unix shows names as they are, with their ends of lines."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        own.bind(f"\0{name[:8]}")
        own.listen()
        inode = os.fstat(own.fileno()).st_ino

        @contextmanager
        def forge() -> Iterator[None]:
            row = f"0: 2 0 00010000 1 1 {inode} @{address[1:]}\n"
            with squat(address, full=True), socket.socket(socket.AF_UNIX) as forged:
                forged.bind(f"\0\n{row}".encode())
                yield

        with child(forge), host_locks(name):
            pass
