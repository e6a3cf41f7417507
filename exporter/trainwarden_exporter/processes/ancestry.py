"""Parents and descendants in a table of processes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from trainwarden_exporter.processes.procfs_parser import Process


def parent(process: Process, processes: Mapping[int, Process]) -> Process | None:
    """Returns the parent of `process` in `processes`.

    The table is not atomic: a pid may have been reused during the read. A process younger than its
    child is not its parent.
    """
    found = processes.get(process.parent_pid)
    if found is None or found.identity.start_ticks > process.identity.start_ticks:
        return None
    return found


def children_of(
    processes: Mapping[int, Process], pids: Iterable[int]
) -> Mapping[int, list[Process]]:
    """Returns the children among `pids`, by the pid of their parent."""
    children = defaultdict[int, list[Process]](list)
    for pid in pids:
        if parent(processes[pid], processes) is not None:
            children[processes[pid].parent_pid].append(processes[pid])
    return children


def descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Returns the pids below `roots`; a root only if it is below another one."""
    children = defaultdict[int, list[int]](list)
    for pid, process in processes.items():
        children[process.parent_pid].append(pid)
    found: set[int] = set()
    waiting = [pid for pid in roots if pid in processes]
    while waiting:
        above = waiting.pop()
        for pid in children.get(above, ()):
            if pid not in found and pid != above and parent(processes[pid], processes) is not None:
                found.add(pid)
                waiting.append(pid)
    return found
