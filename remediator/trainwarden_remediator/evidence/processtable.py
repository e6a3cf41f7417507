"""The processes of the box, as they are put into evidence: a target's tree, and the largest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    Process,
    read_command_line,
    read_processes,
    read_resident_bytes,
    start_timestamp,
)
from trainwarden_remediator.evidence.logtail import cut
from trainwarden_remediator.evidence.redaction import redacted_command
from trainwarden_remediator.story import printable

LARGEST = 10
"""So many of the whole box are told of,"""
OF_A_TREE = 40
"""and so many of the target."""
COMMAND_LENGTH = 240


def read_table(
    key: WorkerKey,
    meant: Collection[Identity],
    selectors: Mapping[WorkerKey, Selector],
    *,
    root: Path = PROC,
) -> Mapping[str, Any]:
    """The processes of the worker `key` and those `meant`, and the largest of the box.

    Raises CollectError. Reading about a process can block for as long as the kernel holds it.
    """
    processes = read_processes(root)
    tree = Matcher(selectors, root=root).sort(processes).get(key)
    members = {} if tree is None else {one.pid: one for one in tree.members}
    for identity in meant:
        process = processes.get(identity.pid)
        if process is not None and process.identity == identity:
            members[process.pid] = process
    largest = sorted(processes.values(), key=lambda one: one.resident_bytes, reverse=True)
    own = sorted(members.values(), key=lambda one: one.resident_bytes, reverse=True)
    return {
        "of_target": len(own),
        "on_box": len(processes),
        "tree": _described(own[:OF_A_TREE], root),
        "largest": _described(largest[:LARGEST], root),
    }


def _described(processes: Iterable[Process], root: Path) -> list[dict[str, Any]]:
    found = []
    for process in processes:
        command = read_command_line(process.pid, root)
        exact = read_resident_bytes(process.pid, root)
        found.append(
            {
                "pid": process.pid,
                "parent": process.parent_pid,
                "started": start_timestamp(process.identity),
                "state": process.state,
                "bytes": process.resident_bytes if exact is None else exact,
                "command": _command(process, command),
            }
        )
    return found


def _command(process: Process, arguments: tuple[str, ...] | None) -> str:
    if not arguments:
        return f"[{printable(process.name)}]"
    # A process may make its command line as long as it likes.
    shown = redacted_command(one[:COMMAND_LENGTH] for one in arguments[:64])
    return cut(printable(shown), COMMAND_LENGTH)
