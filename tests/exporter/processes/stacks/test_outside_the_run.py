"""Real processes that wait for a process outside of the run, which may end their wait."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.exporter.processes.stacks.test_waits_of_c_code import members, seen

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


def test_a_fifo_that_only_the_run_has_open_proves_a_hang(start: Start, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    opened = f"os.open({str(tmp_path / 'fifo')!r}, os.O_RDWR)"
    (one,) = members(start(f"{READY}os.read({opened}, 1)"))

    assert seen([one]).movement == "stuck"
    with (tmp_path / "fifo").open("wb"):
        assert seen([one]).movement == "unknown"


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
