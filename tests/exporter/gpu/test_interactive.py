"""Who is a leftover and who is not, by real processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.waiting import until

from trainwarden_exporter.gpu.interactive import interactive_reason
from trainwarden_exporter.processes.procfs import read_command_line, read_processes

SLEEP = "import time; time.sleep(60)"
NESTED = (
    "import subprocess, sys, time; "
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); "
    "print(child.pid, flush=True); time.sleep(60)"
)
RENAMED = "import ctypes; ctypes.CDLL(None).prctl(15, b'tmux: server'); "  # PR_SET_NAME


class Children:
    """Processes without a terminal, each in a session of its own, and what they start."""

    def __init__(self) -> None:
        self._own: list[subprocess.Popen[str]] = []
        self.others: list[int] = []

    def run(self, *arguments: str, program: str = SLEEP) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._own.append(child)
        return child

    def run_nested(self, *arguments: str, program: str = NESTED) -> tuple[int, int]:
        """The pids of a process and of its child."""
        parent = self.run(*arguments, program=program)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        self.others.append(child)
        return parent.pid, child

    def kill(self, pid: int) -> None:
        (child,) = (one for one in self._own if one.pid == pid)
        child.kill()
        child.wait()

    def close(self) -> None:
        for pid in self.others:
            os.kill(pid, signal.SIGKILL)
        for child in self._own:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.close()


def attended(pid: int) -> str:
    processes = read_processes()
    return interactive_reason(processes[pid], read_command_line(pid) or (), processes)


def test_a_process_without_a_session_above_is_a_leftover(children: Children) -> None:
    assert attended(children.run().pid) == ""
    # the launcher of an earlier run is no session to come back to
    launcher, rank = children.run_nested()
    assert (attended(launcher), attended(rank)) == ("", "")


def test_a_process_with_a_terminal_is_attended() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", SLEEP])  # noqa: S606 - as a shell does
    try:
        until(lambda: attended(pid) == "it has a terminal")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


@pytest.mark.parametrize("argument", ["ipykernel_launcher", "/opt/bin/jupyter-lab"])
def test_a_notebook_kernel_and_its_child_are_attended(children: Children, argument: str) -> None:
    kernel, child = children.run_nested(argument)
    assert attended(kernel) == "notebook kernel"
    assert attended(child) == f"child of notebook kernel {kernel}"


def test_a_program_of_a_living_session_is_attended(children: Children) -> None:
    leader, script = children.run_nested(program=RENAMED + NESTED)
    assert attended(script) == f"session of tmux: server ({leader})"
    children.kill(leader)
    assert attended(script) == ""
