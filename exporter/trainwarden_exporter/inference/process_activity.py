"""What the kernel shows of a server that does not answer: stopped, waiting, or without CPU time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process, read_transfers

IDLE_CPU_SECONDS = 0.05
"""CPU seconds that a program which does nothing may still use within the timeout of a probe."""

WORK_CPU_SHARE = 0.05
"""Share of a CPU that a program which works uses at least; threads that poll use less."""

WORK_BYTES = 1 << 20
"""Bytes that it reads or writes at least within the timeout of a probe; a log is shorter."""


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """Activity of all processes of a server's worker."""

    cpu_seconds: float = 0.0
    stopped: bool = False
    """Whether a process is stopped (SIGSTOP); a debugger's stop does not count."""
    waits: bool = False
    """Whether a process waits for a device or a network mount."""
    runs: bool = False
    """Whether a process runs, or waits for a CPU: on a loaded host it gets only a share."""
    moved_bytes: int = 0
    """Bytes read from storage and written to it."""
    uses_gpu: bool = False
    """Whether a process executes kernels."""

    def is_idle_since(self, before: ProcessActivity) -> bool:
        """Whether no process has done anything since `before`, and none waits for a device."""
        used = self.cpu_seconds - before.cpu_seconds
        return 0.0 <= used <= IDLE_CPU_SECONDS and not (self.waits or before.waits)

    def has_worked_since(self, before: ProcessActivity, seconds: float) -> bool:
        """Whether the processes have worked in the `seconds` since `before`."""
        return (
            self.uses_gpu
            or (self.runs and before.runs)
            or self.cpu_seconds - before.cpu_seconds > WORK_CPU_SHARE * seconds
            or self.moved_bytes - before.moved_bytes >= WORK_BYTES
        )


def read_activity(identities: Sequence[Identity], root: Path = PROC) -> ProcessActivity | None:
    """Returns the activity of the processes that live; None if there is none."""
    found = [read_process(identity.pid, root) for identity in identities]
    living = [
        process
        for process, identity in zip(found, identities, strict=True)
        if process is not None and process.identity == identity and process.alive
    ]
    if not living:
        return None
    return ProcessActivity(
        sum(process.cpu_seconds for process in living),
        any(process.state == "T" for process in living),
        any(process.state == "D" for process in living),
        any(process.state == "R" for process in living),
        sum(sum(moved) for one in living if (moved := read_transfers(one.pid, root)) is not None),
    )
