"""What the kernel shows of a server that does not answer: stopped, waiting, or without CPU time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, Identity, read_process

IDLE_CPU_SECONDS = 0.05
"""CPU seconds that a program which does nothing may still use within the timeout of a probe."""


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """Activity of all processes of a server's worker."""

    cpu_seconds: float = 0.0
    stopped: bool = False
    """Whether a process is stopped (SIGSTOP); a debugger's stop does not count."""
    waits: bool = False
    """Whether a process waits for a device or a network mount."""

    def is_idle_since(self, before: ProcessActivity) -> bool:
        """Whether no process has done anything since `before`, and none waits for a device."""
        used = self.cpu_seconds - before.cpu_seconds
        return 0.0 <= used <= IDLE_CPU_SECONDS and not (self.waits or before.waits)


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
    )
