from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.processes.exit_status import (
    ExitWatcher,
    ProcessExit,
    parse_exit_status,
    read_zombie_status,
    shell_code,
    status_name,
)
from trainwarden_exporter.processes.procfs import Identity, read_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.exporter.conftest import FakeProc, Start

READY = "print('ready', flush=True); input();"
EXIT_3, KILLED, ENDED_WELL = 3 << 8, 9, 0


def identity_of(program: subprocess.Popen[str]) -> Identity:
    found = read_process(program.pid)
    assert found is not None
    return found.identity


def go_on(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def kernel_tells_exits() -> bool:
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) >= (6, 15)


tells_exits = pytest.mark.skipif(not kernel_tells_exits(), reason="needs Linux 6.15")


@tells_exits
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(3)", EXIT_3),
        ("import os; os.kill(os.getpid(), 9)", KILLED),
        ("pass", ENDED_WELL),
        ("import os, threading; threading.Thread(target=os._exit, args=(3,)).start()", EXIT_3),
    ],
)
def test_the_end_of_a_watched_process_is_known_after_it_was_reaped(
    start: Start, code: str, status: int
) -> None:
    program = start(READY + code)
    identity, watch = identity_of(program), ExitWatcher()
    watch.watch(identity)
    assert watch.process_exit(identity) is None

    go_on(program)
    program.wait()

    assert watch.process_exit(identity) == ProcessExit(status, reaped=True)
    assert len(watch) == 1
    watch.retain(())
    assert watch.process_exit(identity) == ProcessExit(None, reaped=True)


@tells_exits
def test_the_kernel_reports_an_end_that_the_parent_never_announces(start: Start) -> None:
    program = start(READY + "import os; os.kill(os.getpid(), 9)")
    identity, watch = identity_of(program), ExitWatcher()
    running = ProcessExit(None, reaped=False)
    watch.watch(identity)
    go_on(program)
    program.wait()

    assert watch.process_exit(identity, running) == ProcessExit(KILLED, reaped=True)
    watch.retain(())
    assert watch.process_exit(identity, running) == running


@tells_exits
def test_even_the_end_of_another_users_process_is_known(
    start: Start, as_nobody: Callable[[], AbstractContextManager[None]]
) -> None:
    program = start(READY + "raise SystemExit(3)")
    identity, watch = identity_of(program), ExitWatcher()
    with as_nobody():
        watch.watch(identity)
        go_on(program)
        program.wait()
        assert watch.process_exit(identity) == ProcessExit(EXIT_3, reaped=True)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", EXIT_3), ("pass", ENDED_WELL)]
)
def test_a_zombie_tells_its_status_to_who_may_trace_it(
    start: Start,
    wait_until: Callable[[Callable[[], bool]], None],
    as_nobody: Callable[[], AbstractContextManager[None]],
    code: str,
    status: int,
) -> None:
    program = start(READY + code)
    identity, watch = identity_of(program), ExitWatcher()
    go_on(program)
    wait_until(lambda: watch.process_exit(identity) is not None)

    assert watch.process_exit(identity) == ProcessExit(status, reaped=False)
    with as_nobody():
        assert watch.process_exit(identity) == ProcessExit(None, reaped=False)


def test_a_process_that_was_not_watched_ended_nobody_knows_how(start: Start) -> None:
    program = start(READY)
    identity = identity_of(program)
    go_on(program)
    program.wait()

    assert ExitWatcher().process_exit(identity) == ProcessExit(None, reaped=True)


def test_a_pid_that_belongs_to_another_process_now_is_not_watched() -> None:
    me = Identity(os.getpid(), 1)
    watch = ExitWatcher()
    watch.watch(me)

    assert len(watch) == 0
    assert watch.process_exit(me) == ProcessExit(None, reaped=True)


@tells_exits
def test_pidfds_are_bounded_and_closed(start: Start) -> None:
    first, second = (identity_of(start(READY)) for _ in range(2))
    before = len(list(Path("/proc/self/fd").iterdir()))
    watch = ExitWatcher(capacity=1)
    for identity in (first, first, second):
        watch.watch(identity)

    assert len(watch) == 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    del watch
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_status_of_zero_needs_the_right_to_be_believed(proc: FakeProc) -> None:
    proc.add(10, state="Z", status=0)
    proc.add(11, state="Z", status=EXIT_3)
    assert read_zombie_status(Identity(10, 100), proc.root) is None
    assert read_zombie_status(Identity(11, 100), proc.root) == EXIT_3

    (proc.root / "10" / "ns").mkdir()
    (proc.root / "10" / "ns" / "user").symlink_to("user:[1]")
    assert read_zombie_status(Identity(10, 100), proc.root) == 0


def test_only_a_zombie_has_a_status() -> None:
    line = "5 (a) b) {} 1 " + "0 " * 47 + "768\n"

    assert parse_exit_status(line.format("Z")) == EXIT_3
    assert parse_exit_status(line.format("S")) is None
    assert parse_exit_status("5 (a) Z 1 2 3") is None


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (0, "0", 0),
        (1 << 8, "1", 1),
        (255 << 8, "255", 255),
        (9, "SIGKILL", 137),
        (11 | 0x80, "SIGSEGV", 139),
        (signal.SIGRTMIN + 3, "SIGRTMIN+3", 128 + signal.SIGRTMIN + 3),
    ],
)
def test_a_status_is_named_as_people_and_shells_do(status: int, name: str, code: int) -> None:
    assert (status_name(status), shell_code(status)) == (name, code)


def test_an_unknown_status_is_named_so() -> None:
    assert status_name(None) == "unknown"
