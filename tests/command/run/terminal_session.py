"""A terminal with a program in it, as a user has it."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence

TIMEOUT = 180.0


class TerminalSession:
    """Runs `argv` in the foreground of a new terminal; `output` is what it has shown so far."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.output = bytearray()
        self.pid, self.master = pty.fork()
        if not self.pid:
            for number in (signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)  # in a background job they are ignored
            try:
                os.execvpe(argv[0], list(argv), dict(environment))  # noqa: S606
            finally:
                os._exit(127)

    def read_until(self, text: bytes, *, after: int = 0) -> None:
        deadline = time.monotonic() + TIMEOUT
        while text not in self.output[after:]:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} never shown; shown: {bytes(self.output[-2000:])!r}")

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait(self) -> int:
        """Reads to the end and returns the wait status."""
        deadline = time.monotonic() + TIMEOUT
        while self._read(deadline):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return status

    def hang_up(self) -> None:
        """Closes the terminal, as the end of an ssh session does."""
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.master >= 0:
            os.close(self.master)

    def _read(self, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self.master, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise AssertionError(f"nothing more is shown; shown: {bytes(self.output[-2000:])!r}")
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            data = b""
        self.output += data
        return bool(data)
