"""The remediator as a process that is forked where the program is imported already.

What it imports takes nine tenths of the CPU time of a start, and tests that kill it start it a
hundred times. Since the fork it is a process like any other, with threads, files and locks of its
own. tests/hostile/ and tests/e2e/ start it as a user does.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

FORKS = """
import json, os, signal, sys
from trainwarden_remediator.__main__ import main

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

for line in sys.stdin:
    asked = json.loads(line)
    if "ended" in asked:
        _, status = os.waitpid(asked["ended"], 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    elif pid := os.fork():
        print(pid, flush=True)
    else:
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(opened, number)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        exec(asked["patch"])
        sys.exit(main(asked["arguments"]))
"""
"""Does what it is asked on a line, and answers with a number: the pid, or the exit status."""


class ForkedProgram:
    """A remediator with these arguments, and with `patch` applied before it runs."""

    def __init__(self, arguments: Sequence[str], log: Path, patch: str = "") -> None:
        self.pid = _ask(
            arguments=arguments,
            environment=dict(os.environ),
            folder=str(Path.cwd()),
            log=str(log),
            patch=patch,
        )
        self._descriptor = os.pidfd_open(self.pid)
        self._status: int | None = None

    def poll(self) -> int | None:
        """Its exit status, or the negative number of its signal; None while it runs."""
        if self._status is None and select.select([self._descriptor], [], [], 0)[0]:
            self.wait(0)
        return self._status

    def wait(self, timeout: float) -> int:
        if self._status is None:
            if not select.select([self._descriptor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked remediator", timeout)
            self._status = _ask(ended=self.pid)
            os.close(self._descriptor)
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _ask(**asked: Any) -> int:
    forks = _forks()
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps(asked) + "\n")
    forks.stdin.flush()
    return int(forks.stdout.readline())


@cache
def _forks() -> subprocess.Popen[str]:
    """The process that has the program imported; it ends with this one."""
    forks = subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(forks.communicate)
    return forks
