"""Finds out whether an operator works with a process, which then is no leftover.

A leftover has lost its parent and its terminal. A notebook or a script that an operator started by
hand has not (harm 1).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden_exporter.processes.ancestry import parent
from trainwarden_exporter.processes.procfs import PROC, Process, read_command_line, read_text

_NOTEBOOKS = ("ipykernel", "jupyter", "colab_kernel_launcher", "marimo")
_SESSIONS = ("sshd", "tmux", "screen", "SCREEN", "mosh-server", "login")
"""Programs that hold a login or a detached session, by the beginning of their names."""

_SESSION_FIELD, _TERMINAL_FIELD = 3, 4
"""Places in /proc/<pid>/stat after the name (proc_pid_stat(5)): session, tty_nr."""


def interactive_reason(
    process: Process, arguments: Sequence[str], processes: Mapping[int, Process], root: Path = PROC
) -> str:
    """Returns why `process` counts as interactive, or "".

    `arguments` is its command line. Of several reasons it returns the first.
    """
    if _is_notebook(arguments):
        return "notebook kernel"
    session, terminal = _session_and_terminal(process.pid, root)
    if terminal:
        return "it has a terminal"
    above = parent(process, processes)
    if above is not None and _is_notebook(read_command_line(above.pid, root) or ()):
        return f"child of notebook kernel {above.pid}"
    leader = processes.get(session)
    seen: set[int] = set()
    # The leader of its own session has left the session of its parent.
    while leader is not None and leader.alive and session != process.pid and leader.pid not in seen:
        seen.add(leader.pid)
        if leader.name.startswith(_SESSIONS):
            return f"session of {leader.name} ({leader.pid})"
        leader = parent(leader, processes)
    return ""


def _is_notebook(arguments: Sequence[str]) -> bool:
    names = [os.path.basename(argument) for argument in arguments[:4]]  # noqa: PTH119 - plain text
    return any(name.startswith(_NOTEBOOKS) for name in names)


def _session_and_terminal(pid: int, root: Path) -> tuple[int, int]:
    """Returns the session and the number of the controlling terminal; 0 if it is unknown."""
    fields = (read_text(f"{root}/{pid}/stat") or "").rpartition(")")[2].split()
    if len(fields) <= _TERMINAL_FIELD:
        return 0, 0
    return int(fields[_SESSION_FIELD]), int(fields[_TERMINAL_FIELD])
