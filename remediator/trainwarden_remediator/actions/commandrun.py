"""Runs a command of the operator's within its time, and keeps the end of what it says."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import (
    Identity,
    Process,
    read_command_line,
    read_environment,
    read_process,
    read_processes,
)
from trainwarden_remediator.actions.starting import MARK, start
from trainwarden_remediator.ending import end
from trainwarden_remediator.exceptions import ActionError
from trainwarden_remediator.means.command import CommandTarget
from trainwarden_remediator.means.process import ProcessTarget

KEPT_BYTES = 4096
"""So much of the end of its output is kept."""

MOST_BYTES = 64 << 20
"""What a command without a log may have written before the beginning of it is thrown away."""

LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `status` is as subprocess has it, None where it took too long."""

    status: int | None
    output: str


def run(command: CommandTarget, mark: str, spared: Callable[[], Collection[Identity]]) -> Ended:
    """Run it, in a session of its own, its processes bearing `mark`.

    One that takes too long is ended, with what is left of its session; but not what is `spared`.
    Raises ActionError when it cannot be started or ended.
    """
    with ExitStack() as stack:
        try:
            if command.log is None:
                # A file and no pipe: what it leaves running must not end with whoever reads.
                file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="trainwarden-"))
                log, begun = Path(file.name), 0
            else:
                log = command.log
                begun = log.stat().st_size if log.exists() else 0
        except OSError as error:
            raise ActionError(f"cannot keep what {command.restart[0]} says: {error}") from error
        child = start(_as_process(command, log), mark)
        status = _await(child, command, log if command.log is None else None)
        if status is None:
            _end(child, command, spared())
        return Ended(status, _tail(log, begun))


def running(command: CommandTarget, mark: str) -> tuple[Process, ...]:
    """Runs of that command under way, of which the mark begins with `mark`.

    What a command leaves running bears its mark as well, and has another command line.
    """
    try:
        return tuple(
            process
            for process in read_processes().values()
            if process.alive
            and not process.kernel_thread
            and (read_environment(process.pid) or {}).get(MARK, "").startswith(mark)
            and is_line_of(command.restart, read_command_line(process.pid) or ())
            and _session(process.pid) == process.pid
        )
    except CollectError as error:
        raise ActionError(f"cannot see the processes: {error}") from error


def is_line_of(command: Sequence[str], line: Sequence[str]) -> bool:
    """Whether a process of that command line runs `command`: maybe by a script's interpreter."""
    program, *arguments = command
    before = line[: len(line) - len(arguments)]
    if not before or list(line[len(before) :]) != arguments:
        return False
    return Path(before[-1]).name == Path(program).name


def end_session(first: Identity, grace: float, spared: Collection[Identity]) -> None:
    """End a process and what is left of its session, but not what is `spared`."""
    members = [one for one in _members(first.pid) if one not in spared]
    end([first], members, grace=grace)


def _as_process(command: CommandTarget, log: Path) -> ProcessTarget:
    return ProcessTarget(
        start=command.restart,
        cwd=command.cwd,
        environment=command.environment,
        log=log,
        user=command.user,
    )


def _await(
    child: subprocess.Popen[bytes], command: CommandTarget, scratch: Path | None
) -> int | None:
    """Its exit status, None where it takes too long; `scratch` is kept from growing without end."""
    deadline = time.monotonic() + command.within
    while (left := deadline - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(min(left, LOOK_SECONDS))
        if scratch is not None and scratch.stat().st_size > MOST_BYTES:
            os.truncate(scratch, 0)  # it is written to by appending
    return child.poll()


def _end(
    child: subprocess.Popen[bytes], command: CommandTarget, spared: Collection[Identity]
) -> None:
    # It is not reaped yet, so its pid is its own.
    process = read_process(child.pid)
    if process is not None:
        end_session(process.identity, command.grace, spared)
    with suppress(subprocess.TimeoutExpired):
        child.wait(LOOK_SECONDS)


def _members(session: int) -> list[Identity]:
    try:
        processes = read_processes().values()
    except CollectError as error:
        raise ActionError(f"cannot see the processes: {error}") from error
    return [one.identity for one in processes if one.alive and _session(one.pid) == session]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _tail(log: Path, begun: int) -> str:
    """The end of what was written since, as text."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - KEPT_BYTES, begun if size >= begun else 0))
            return file.read(KEPT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
