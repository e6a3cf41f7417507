"""Withdraws a start if something else started the same worker a moment earlier."""

from __future__ import annotations

from collections.abc import Iterable
from subprocess import Popen
from typing import Any

from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import Identity, read_processes
from trainwarden_remediator.actions.base import reading_processes
from trainwarden_remediator.actions.termination import terminate


def earlier_starts(child: Popen[Any], roots: Iterable[Identity]) -> list[Identity]:
    """Returns those of the worker's `roots` that started before `child`.

    A process that the child has launched is none of them: after the last possible pid the kernel
    gives low ones again, so that it may look earlier. Of two starts at the same moment, only the
    later one finds the other here.
    """
    with reading_processes():
        processes = read_processes()
    own = processes.get(child.pid)
    if own is None:
        return []
    below = descendants(processes, [child.pid])
    return [one for one in roots if one.pid not in below and _order(one) < _order(own.identity)]


def withdraw(pid: int, grace: float) -> None:
    """Terminates a process that was started for a worker, and its descendants.

    Raises ActionError if that fails.
    """
    with reading_processes():
        processes = read_processes()
    pids = descendants(processes, [pid]) | {pid}
    identities = [processes[one].identity for one in pids if one in processes]
    terminate([one for one in identities if one.pid == pid], identities, grace=grace)


def _order(identity: Identity) -> tuple[int, int]:
    return identity.start_ticks, identity.pid
