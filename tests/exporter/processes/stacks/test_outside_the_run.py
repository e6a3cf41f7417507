"""Real processes whose wait a process outside of the run may end, or a timer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.exporter.processes.stacks.test_waits_of_c_code import members, seen

from trainwarden_exporter.processes.listening_ports import read_listeners

if TYPE_CHECKING:
    from tests.exporter.conftest import Start

READY = "import os, subprocess, sys\nprint(flush=True)\n"


def test_a_feed_outside_the_run_may_write_into_its_pipe(start: Start) -> None:
    """This test has the other end of the standard input."""
    (one,) = members(start(f"{READY}sys.stdin.read()"))
    found = seen([one])

    assert found.movement == "unknown"
    assert found.chain.endswith(f"waits for a pipe of process {os.getpid()} at <string>:3")


def test_so_it_may_for_a_child_that_is_no_python(start: Start) -> None:
    """The run reads what its own `cat` passes on."""
    found = members(start(f"{READY}subprocess.run('cat')"), 2)

    assert found[1].parent_pid == found[0].identity.pid
    assert seen(found).movement == "unknown"


def test_a_reader_outside_the_run_may_read_on(start: Start) -> None:
    (one,) = members(start(f"{READY}while True: os.write(1, bytes(4096))"))

    assert seen([one]).movement == "unknown"


@pytest.mark.parametrize("flags", ["O_RDWR", "O_RDONLY"])
def test_any_program_may_open_a_pipe_that_has_a_name(
    start: Start, tmp_path: Path, flags: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    opened = f"os.open({str(tmp_path / 'fifo')!r}, os.{flags})"
    found = seen(members(start(f"{READY}os.read({opened}, 1)")))

    assert found.movement == "unknown"
    assert "waits for a pipe of " in found.chain


def test_the_other_end_may_be_in_a_process_that_cannot_be_read(start: Start) -> None:
    """As in one of another account; here it is on its way through a socket."""
    sends = "import os, socket\nr, w = os.pipe(); a, b = socket.socketpair()\n"
    sends += "socket.send_fds(a, [b'x'], [w]); os.close(w)\nprint(flush=True)\nos.read(r, 1)"
    (one,) = members(start(sends))

    found = seen([one])
    assert found.movement == "unknown"
    assert "waits for a pipe of a process that is not known" in found.chain


def test_a_writer_inside_the_run_is_judged_by_what_it_does(start: Start) -> None:
    found = members(start(f"{READY}os.read(os.pipe()[0], 1)"))

    assert seen(found).movement == "stuck"


LISTENS = (
    "import asyncio, os, socket, threading, time\ns = socket.create_server(('127.0.0.1', 0))\n"
)
FOR_EVER = "time.sleep(10**6)"
THREAD = f"threading.Thread(target=lambda: {FOR_EVER}).start()\n"
EVENTS = "\nasync def serve():\n  await asyncio.sleep(SECONDS)\nasyncio.run(serve())"


@pytest.mark.parametrize(
    ("serves", "movement"),
    [
        (FOR_EVER, "stuck"),
        (EVENTS.replace("SECONDS", "1000"), "unknown"),
        ("asyncio.new_event_loop().run_forever()", "unknown"),
        ("time.sleep(1000)", "unknown"),
        ("c = s.accept()[0]; c.recv(1000); os.read(os.pipe()[0], 1)", "unknown"),
        (f"threading.Thread(target=time.sleep, args=[1000]).start(); {FOR_EVER}", "unknown"),
        (f"{THREAD}{FOR_EVER}", "stuck"),
    ],
    ids=["asleep", "timer", "event loop", "sleep", "read", "thread", "threads"],
)
def test_a_server_outside_the_run_proves_a_hang_only_if_nothing_can_wake_it(
    start: Start, serves: str, movement: str
) -> None:
    server = start(f"{LISTENS}print(flush=True)\n{serves}")
    port = read_listeners([server.pid])[server.pid][0].port
    asks = f"urllib.request.urlopen('http://127.0.0.1:{port}/').read()"
    found = seen(members(start(f"import urllib.request\nprint(flush=True)\n{asks}")), 6)

    assert "waits for server 127.0.0.1" in found.chain
    assert found.movement == movement


@pytest.mark.parametrize(
    ("serves", "movement"), [(FOR_EVER, "stuck"), ("time.sleep(1000)", "unknown")]
)
def test_so_it_is_of_the_other_end_of_a_queue(start: Start, serves: str, movement: str) -> None:
    listens = "import time\nfrom multiprocessing.connection import Listener\n"
    listens += "s = Listener(('127.0.0.1', 0))\nprint(flush=True)\nc = s.accept()\n"
    server = start(f"{listens}{serves}")
    port = read_listeners([server.pid])[server.pid][0].port
    client = f"Client(('127.0.0.1', {port}))\nprint(flush=True)\nc.recv()"
    found = seen(members(start(f"from multiprocessing.connection import Client\nc = {client}")), 6)

    assert "waits for a queue of 127.0.0.1" in found.chain
    assert found.movement == movement


@pytest.mark.parametrize(
    ("holds", "movement"),
    [(FOR_EVER, "stuck"), ("while True: time.sleep(20)", "unknown"), ("stops", "stuck")],
)
def test_a_lock_of_a_process_outside_the_run_may_be_released(
    start: Start, tmp_path: Path, holds: str, movement: str
) -> None:
    opens = f"import fcntl, time\nf = open({str(tmp_path / 'lock')!r}, 'w')\n"
    lock = "fcntl.flock(f, fcntl.LOCK_EX)\n"
    stops = holds == "stops"
    holder = start(f"{opens}{lock}print(flush=True)\n{'time.sleep(1000)' if stops else holds}")
    waits = members(start(f"{opens}print(flush=True)\n{lock}"))
    if stops:
        holder.send_signal(signal.SIGSTOP)

    found = seen(waits, 6)
    assert f"held by process {holder.pid}" in found.chain
    assert found.movement == movement


def test_a_lock_that_is_polled_may_be_anybodys(start: Start, tmp_path: Path) -> None:
    """As one of filelock, which tries it every 50 ms."""
    package = tmp_path / "filelock"
    package.mkdir()
    (package / "__init__.py").write_text("import time\ndef acquire():\n  time.sleep(1000)\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport filelock\nprint(flush=True)\n"
    )
    found = seen(members(start(f"{code}filelock.acquire()")))

    assert found.movement == "unknown"
    assert "held by a process that is not known" in found.chain


QUEUE = "import queue, signal, sys\nq = queue.Queue()\n"
HANDLER = "signal.signal(signal.SIGALRM, lambda *_: q.put(1))\n"
C = "import ctypes\nc = ctypes.CDLL(None)\n"
TIMER = "c.timer_create(0, None, ctypes.byref(ctypes.c_void_p()))\n"


@pytest.mark.parametrize(
    ("sets", "movement"),
    [
        ("", "stuck"),
        (f"{HANDLER}signal.alarm(1000)\n", "unknown"),
        (f"{HANDLER}signal.setitimer(signal.ITIMER_REAL, 1000)\n", "unknown"),
        (f"{C}{TIMER}", "unknown"),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit())\n", "stuck"),
    ],
    ids=["none", "alarm", "setitimer", "timer_create", "another signal"],
)
def test_a_timer_of_the_process_may_end_any_wait_of_it(
    start: Start, sets: str, movement: str
) -> None:
    found = seen(members(start(f"{QUEUE}{sets}print(flush=True)\nq.get()")))

    assert "waits for a queue" in found.chain
    assert found.movement == movement


TIMER_FILE = (
    "t = c.timerfd_create(1, 0)\nc.timerfd_settime(t, 0, (ctypes.c_long * 4)(0, 0, 9999), None)\n"
)
STOPPED_TERMINAL = """import os, pty, termios
_, t = pty.openpty()
termios.tcflow(t, termios.TCOOFF)
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (f"{C}import os\n{TIMER_FILE}print(flush=True)\nos.read(t, 8)", "waits for a timer"),
        (
            f"{STOPPED_TERMINAL}print(flush=True)\nos.write(t, bytes(99999))",
            "waits for its terminal to take output, which Ctrl-Q lets go on after Ctrl-S",
        ),
    ],
    ids=["a timer", "Ctrl-S"],
)
def test_a_wait_for_a_device_has_a_name_and_proves_nothing(
    start: Start, code: str, words: str
) -> None:
    found = seen(members(start(code)))

    assert found.chain.endswith(words)
    assert found.movement == "unknown"


SIGWAIT = """import threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
def waits():
    signal.sigwait([signal.SIGUSR2])
    q.put(1)
"""


@pytest.mark.parametrize(
    ("handles", "movement"),
    [
        ("signal.signal(signal.SIGUSR1, lambda *_: q.put(1))\n", "unknown"),
        ("signal.signal(signal.SIGRTMIN + 3, lambda *_: q.put(1))\n", "unknown"),
        (f"{SIGWAIT}threading.Thread(target=waits).start()\n", "unknown"),
        ("signal.signal(signal.SIGCHLD, lambda *_: None)\n", "stuck"),  # as torch for its loaders
        ("import faulthandler, readline\nfaulthandler.enable()\n", "stuck"),
        ("import asyncio\nasyncio.run(asyncio.sleep(0))\n", "stuck"),
    ],
    ids=[
        "SIGUSR1",
        "a real-time signal",
        "sigwait",
        "SIGCHLD",
        "faults",
        "asyncio",
    ],
)
def test_any_process_may_fill_the_queue_of_a_handler(
    start: Start, handles: str, movement: str
) -> None:
    found = seen(members(start(f"{QUEUE}{handles}print(flush=True)\nq.get()")))

    assert "waits for a queue" in found.chain
    assert found.movement == movement


@pytest.mark.parametrize(("unlinks", "movement"), [(False, "unknown"), (True, "stuck")])
def test_a_semaphore_that_has_a_name_may_be_posted_by_any_program(
    start: Start, *, unlinks: bool, movement: str
) -> None:
    name = f"/trainwarden-test-{os.getpid()}"
    opens = f"c.sem_open.restype = ctypes.c_void_p\ns = c.sem_open(b'{name}', 64, 0o600, 0)\n"
    unlink = f"c.sem_unlink(b'{name}')\n"
    waits = "print(flush=True)\nc.sem_wait(ctypes.c_void_p(s))"
    try:
        found = seen(members(start(f"{C}{opens}{unlink * unlinks}{waits}")))
    finally:
        Path(f"/dev/shm/sem.{name[1:]}").unlink(missing_ok=True)

    assert "waits for a lock" in found.chain
    assert found.movement == movement


@pytest.mark.parametrize(("seconds", "movement"), [(1000, "unknown"), (None, "stuck")])
def test_a_thread_of_c_that_sleeps_may_wake_who_waits_in_c(
    start: Start, seconds: int | None, movement: str
) -> None:
    """The main thread joins a thread that Python does not know."""
    sleeps = f"c.pthread_create(ctypes.byref(t), None, c.sleep, ctypes.c_void_p({seconds}))\n"
    waits = "s = ctypes.create_string_buffer(32)\nc.sem_init(s, 0, 0)\nprint(flush=True)\n"
    thread = f"t = ctypes.c_void_p()\n{sleeps}" if seconds else ""
    found = seen(members(start(f"{C}{thread}{waits}c.sem_wait(s)")))

    assert "waits for a lock" in found.chain
    assert found.movement == movement
