"""Programs whose clock a test can set, while that of the host goes on."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from pathlib import Path

STEPS = 64
TICK = 0.05
"""Seconds after which the times of files are no longer those of the tick before."""
SOURCE = Path(__file__).with_suffix(".c")


class HostClock:
    """The clock of the programs that a test starts with `within` before their command line."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError without a C compiler."""
        if (compiler := shutil.which("cc")) is None:
            raise OSError("no C compiler")
        library, self._file = folder / "set_clock.so", folder / "steps"
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"cannot compile {SOURCE.name}: {done.stderr}")
        self._file.write_bytes(bytes(STEPS * 16))
        self._steps: list[tuple[float, float]] = []
        self.within = ["env", f"LD_PRELOAD={library}", f"CLOCK_STEPS={self._file}"]

    @property
    def ahead(self) -> float:
        """By how many seconds it is ahead of the host's."""
        return self._steps[-1][1] if self._steps else 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def set_forward(self, seconds: float) -> None:
        """Sets it forward, or back by negative seconds."""
        self._steps.append((time.time(), self.ahead + seconds))
        with self._file.open("r+b") as file:
            for step in self._steps:
                file.write(struct.pack("dd", *step))
        time.sleep(TICK)


class RealClock:
    """The clock of a virtual machine that is thrown away: it is really set, for all programs."""

    within: tuple[str, ...] = ()

    def now(self) -> float:
        return time.time()

    def set_forward(self, seconds: float) -> None:
        """Sets it forward, or back by negative seconds; raises PermissionError if not root."""
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
        time.sleep(TICK)
