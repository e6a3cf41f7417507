"""What the programs of the demo share: a graceful end, faults switched on from a shell, a log."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LEAK_BYTES_PER_SECOND = 6 << 20
LEAK_CEILING = 600 << 20
"""Bytes at which a leak ends, so that an unattended demo never takes the host down."""

_TICK = 0.2


class Program:
    """One program of the demo run.

    `echo leak > FOLDER/faults/NAME` switches a fault on: `leak` memory, `die` at once, `hang` (deaf
    to SIGTERM too), `stall` (alive, but no work gets done), or `leftover` (go on, and leave a
    process behind that holds a GPU and has no parent any more). The process that runs then takes
    the file away, so the process started in its place is healthy.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.stopping = False
        self.stalled = False
        self._folder = folder
        self._fault_file = folder / "faults" / name
        self._leaking_since: float | None = None
        self._leaked: list[bytes] = []
        self._leaked_bytes = 0
        self._fault_file.parent.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def pause(self, seconds: float) -> None:
        """Wait while faults take effect; return early when the program is stopped."""
        end = time.monotonic() + seconds
        while not self.stopping:
            self.tick()
            if (left := end - time.monotonic()) <= 0:
                return
            time.sleep(min(_TICK, left))

    def tick(self) -> None:
        """Start faults that were switched on; a fault that is active continues."""
        match self._take_fault():
            case None:
                pass
            case "leak":
                self._leaking_since = time.monotonic()
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                self._hang()
            case "stall":
                self.stalled = True
            case "leftover":
                self._leave_behind()
            case other:
                self.log(f"unknown fault {other!r}: leak, die, hang, stall and leftover are known")
        if self._leaking_since is not None:
            self._leak(time.monotonic() - self._leaking_since)

    def log(self, message: str) -> None:
        """Write one line with the time to standard output."""
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self.name} {message}", flush=True)

    def _stop(self, number: int, _frame: object) -> None:
        self.log(f"{signal.Signals(number).name}: ending")
        self.stopping = True

    def _take_fault(self) -> str | None:
        try:
            fault = self._fault_file.read_text(encoding="utf-8").strip()
        except OSError:
            return None
        if not fault:  # the shell has made the file, and not yet written the word
            return None
        self._fault_file.unlink(missing_ok=True)
        self.log(f"fault: {fault}")
        return fault

    def _leak(self, seconds: float) -> None:
        due = min(int(seconds * LEAK_BYTES_PER_SECOND), LEAK_CEILING) - self._leaked_bytes
        if due > 0:
            # Bytes other than zero, so that the pages are really written and stay resident.
            self._leaked.append(b"\x5a" * due)
            self._leaked_bytes += due

    def _leave_behind(self) -> None:
        script = Path(__file__).with_name("leftover.py")
        command = [sys.executable, str(script), "--name=leftover", "--folder", str(self._folder)]
        # The shell in between ends at once, so what it started has no parent of this run.
        shell = ["/bin/sh", "-c", '"$@" &', "sh", *command]
        subprocess.run(shell, start_new_session=True, check=True)  # noqa: S603 - our own script

    def _hang(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser of the arguments that every program of the demo takes."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--name", required=True, help="name of this worker in the run")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the run")
    return parser


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, also after a crash."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
