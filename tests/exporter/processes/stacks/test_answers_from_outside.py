"""Real processes that wait for an answer in ways that only the kernel shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.exporter.processes.stacks.test_waits_of_c_code import members, run, seen

from trainwarden_exporter.processes.listening_ports import read_listeners
from trainwarden_exporter.processes.unix_sockets import parse_unix_sockets

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

__all__ = ["run"]

SLOW = """
import select, socket, sys
server, local = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
local.bind(sys.argv[1]); local.listen(); taken = []
print(server.getsockname()[1], flush=True)
while True: taken += [one.accept() for one in select.select([server, local], [], [])[0]]
"""
"""A healthy program that has not answered yet."""

SETUP = """
import ctypes, http.client, multiprocessing, os, queue, select, socket, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
port, path = int(sys.argv[1]), sys.argv[2]
fork, libc = multiprocessing.get_context("fork"), ctypes.CDLL(None)
asks = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}; read line <&3"]
held = threading.Lock(); held.acquire()
def connect(): return socket.create_connection(("127.0.0.1", port))
def local(): one = socket.socket(socket.AF_UNIX); one.connect(path); return one
def in_thread(wait, *given):
    with ThreadPoolExecutor(1) as pool: pool.submit(wait, *given).result()
def in_child(wait, *given):
    if os.fork() == 0: wait(*given)
    os.wait()
print(flush=True)
"""


@pytest.mark.parametrize(
    ("waits", "processes"),
    [
        ("subprocess.run(asks)", 2),
        ("fork.Pool(1).map(subprocess.run, [asks])", 3),
        ("in_child(local().recv, 1)", 2),
        ("in_child(select.select, [connect()], [], [])", 2),
        ("in_child(socket.create_server(('127.0.0.1', 0)).accept)", 2),
        ("Connection(local().detach()).recv()", 1),
        ("in_thread(select.select, [connect()], [], [])", 1),
        ("p, c = select.poll(), connect(); p.register(c, select.POLLIN); in_thread(p.poll)", 1),
        ("in_thread(local().recv, 1)", 1),
        ("in_thread(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).recv, 1)", 1),
        ("in_thread(os.read, libc.inotify_init(), 9)", 1),
        ("os.mkfifo(path + 'fifo'); in_thread(os.open, path + 'fifo', os.O_RDONLY)", 1),
        ("in_thread(os.waitpid, os.posix_spawn('/bin/bash', asks, os.environ), 0)", 2),
        (
            ("c = connect(); os.dup2(c.fileno(), 0); thread = ctypes.c_void_p(); "
            "libc.pthread_create(ctypes.byref(thread), None, libc.getchar, None); "
            "queue.Queue().get()"),
            1,
        ),
    ],
    ids=[
        "program", "pool of programs", "local server", "server in select", "accept", "connection",
        "thread in select", "thread in poll", "thread at a local server", "datagram", "inotify",
        "thread at a gate", "thread waits for a program", "thread of C",
    ],
)  # fmt: skip
def test_a_program_outside_the_run_may_answer(
    start: Start, run: Start, tmp_path: Path, waits: str, processes: int
) -> None:
    """Each of these was restarted after two minutes while its answer was on the way."""
    server = start(SLOW, path := str(tmp_path / "socket"))
    port = _port(server.pid)
    found = seen(members(run(SETUP + waits, port, path), processes), 6)

    assert found.movement == "unknown"
    assert "waits for" in found.chain


@pytest.mark.parametrize(
    ("waits", "processes"),
    [
        ("poll = select.poll(); poll.register(os.pipe()[0]); in_thread(poll.poll)", 1),
        ("in_thread(os.read, os.pipe()[0], 1)", 1),
        ("in_thread(select.select, [os.pipe()[0]], [], [])", 1),
        ("one, other = fork.Pipe(); in_child(held.acquire); one.recv()", 2),
        (
            "one, other = fork.Pipe()\nif os.fork() == 0: other.recv()\none.recv()",
            2,
        ),
        ("queue.Queue().get()", 1),
    ],
    ids=["poll", "pipe", "select", "child", "both ends", "queue"],
)
def test_a_wait_for_the_run_itself_proves_a_hang(
    start: Start, run: Start, tmp_path: Path, waits: str, processes: int
) -> None:
    server = start(SLOW, path := str(tmp_path / "socket"))
    found = seen(members(run(SETUP + waits, _port(server.pid), path), processes), 6)

    assert found.movement == "stuck"


def _port(pid: int) -> str:
    return str(read_listeners([pid])[pid][0].port)


def test_names_of_sockets_separate_no_lines() -> None:
    """Any account may bind one, and its name may have any bytes."""
    text = "Num RefCount\n0: 2 0 0 1 1 77 @a\u2028b\x0bc\n0: 2 0 0 1 1 78 @a\nshort\n"
    assert [one.inode for one in parse_unix_sockets(text)] == ["77", "78"]
