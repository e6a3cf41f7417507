"""A cgroup with a limit of memory. Making one takes root, and writable cgroups."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from tests.waiting import until

from trainwarden_exporter.host.cgroup_memory import (
    V1,
    V2,
    CgroupVersion,
    MemoryCgroup,
    read_cgroup_usage,
    read_oom_kills,
)

ROOT = Path("/sys/fs/cgroup")


class SmallCgroup:
    """A cgroup of its own with a limit, and what was started in it.

    Skips the test where none can be made.
    """

    def __init__(self, limit: int) -> None:
        """`limit` is that of its memory, in bytes."""
        self._bytes = limit
        version, hierarchy_root = (
            (V1, ROOT / "memory") if (ROOT / "memory").is_dir() else (V2, ROOT)
        )
        self.folder = hierarchy_root / f"trainwarden-{uuid.uuid4().hex[:12]}"
        try:
            self.folder.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup can be made here: {error.strerror}")
        try:
            self._limit(version)
        except OSError as error:
            self.folder.rmdir()
            pytest.skip(f"no memory cgroup can be written to here: {error.strerror}")
        self.memory = MemoryCgroup(self.folder, self.folder, version)
        self._started: list[subprocess.Popen[bytes]] = []

    def _limit(self, version: CgroupVersion) -> None:
        limit = str(self._bytes)
        (self.folder / version.limit).write_text(limit)
        for name, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", limit)):
            with suppress(OSError):  # of the other version, or no swap is counted
                (self.folder / name).write_text(value)

    def start(self, *command: str | Path, log: Path, adjust: int = 0) -> subprocess.Popen[bytes]:
        """A program in it; `adjust` is its oom_score_adj at first."""
        enter = 'echo "$1" > /proc/self/oom_score_adj && echo $$ > "$0/cgroup.procs" && shift'
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["sh", "-c", f'{enter} && exec "$@"', self.folder, str(adjust), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._started.append(child)
        return child

    @property
    def oom_kills(self) -> int:
        """Processes in it that the kernel has killed for want of memory."""
        found = read_oom_kills(self.memory)
        assert found is not None
        return found

    @property
    def left(self) -> int:
        """Bytes that could still be had in it, what the kernel can drop included."""
        found = read_cgroup_usage(self.memory)
        assert found is not None
        return found.available_bytes

    def close(self) -> None:
        for child in self._started:
            child.kill()
            child.wait()
        members = self.folder / "cgroup.procs"
        for line in members.read_text().split():  # what the remediator has started
            with suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGKILL)
        until(lambda: not members.read_text().strip())
        self.folder.rmdir()
