"""Real processes that wait for an operator, in a terminal of their own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.exporter.processes.stacks.test_waits_of_c_code import members, seen

from trainwarden_exporter.processes.stacks.model import Activity, Frame
from trainwarden_exporter.processes.stacks.prompts import is_at_prompt

LIB = "/usr/lib/python3.12"
SITE = f"{LIB}/site-packages"
USER = ("train", "/srv/train.py")


@pytest.fixture
def terminal() -> Iterator[int]:
    outer, inner = pty.openpty()
    yield inner
    os.close(inner)
    os.close(outer)


@pytest.mark.parametrize(
    "code", ["breakpoint()", "import readline; input()", "import sys; sys.stdin.readline()"]
)
def test_who_waits_for_an_operator_is_never_stuck(terminal: int, code: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}\npass"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        text=True,
    )
    try:
        found = seen(members(process))
    finally:
        process.kill()
        process.wait()
    assert found.findings[0].activity is Activity.PROMPT
    assert found.movement == "unknown"
    assert "waits for you at a prompt at <string>:" in found.chain


@pytest.mark.parametrize(
    ("calls", "at_prompt"),
    [
        ((("Pdb.cmdloop", f"{LIB}/cmd.py"), ("interaction", f"{LIB}/pdb.py"), USER), True),
        ((("wait", f"{LIB}/threading.py"), ("cmdloop", f"{SITE}/IPython/terminal/debugger.py")),
         True),
        ((("_do_wait_suspend", "/home/a/debugpy/_vendored/pydevd/pydevd.py"), USER), True),
        ((("sleep", "/srv/run.py"), ("cmdloop", f"{LIB}/cmd.py")), False),
        ((("get", f"{LIB}/queue.py"), USER, ("run", f"{LIB}/bdb.py"), ("main", f"{LIB}/pdb.py")),
         False),
        ((), False),
    ],
    ids=["pdb", "IPython", "debugpy", "a command at the prompt", "below pdb", "no stack"],
)  # fmt: skip
def test_a_prompt_is_known_by_its_frames(
    calls: tuple[tuple[str, str], ...], *, at_prompt: bool
) -> None:
    frames = [Frame(function, file, 1) for function, file in calls]

    assert is_at_prompt(frames) is at_prompt
