"""Waits until every part of the stack answers, and says which one does not."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import children
import ports
import supervision
from runfolder import RunFolder
from stack import StackError
from trainwarden_exporter.processes.listening_ports import read_table, socket_inodes

SERVERS = ("exporter", "remediator", "prometheus", "alertmanager")
"""The parts of the stack; all four answer at READY_PATH."""

READY_PATH = "/-/ready"
LIMIT_SECONDS = 60.0
TAIL_LINES = 15
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, not bound


class PortTakenError(StackError):
    """Another program has taken the port of a part, between its choice and its use."""


def wait(
    run: RunFolder, supervisord: subprocess.Popen[bytes], pause: Callable[[float], None]
) -> None:
    """Until every part answers. Raises StackError with the log of a silent part.

    Raises PortTakenError if another program listens on the port of a part.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    waiting = [*SERVERS, *run.programs]
    while waiting:
        pause(0.2)
        if supervisord.poll() is not None:
            raise StackError(f"supervisord does not start\n{tail(run.log('supervisord'))}")
        with suppress(OSError):
            programs = supervision.read_programs(run.socket)
            # What answers at such a port is the other program, such as that of another stack.
            for name in others_listening(run.ports, waiting):
                raise PortTakenError(
                    f"another program has taken port {run.ports[name]} of the {name}"
                )
            for name in waiting:
                failed = ("FATAL",) if name in SERVERS else ("FATAL", "EXITED", "BACKOFF")
                if programs[name].state in failed:
                    raise StackError(f"{name} does not start\n{tail(run.log(name))}")
            waiting = [name for name in waiting if not is_ready(run, name, programs[name])]
        if time.monotonic() > deadline and waiting:
            late = waiting[0]
            raise StackError(
                f"{late} is not ready after {LIMIT_SECONDS:.0f} s\n{tail(run.log(late))}"
            )


def is_ready(run: RunFolder, name: str, program: supervision.Program) -> bool:
    """Whether a part runs and, if it is a server, says that it is ready."""
    if program.state != "RUNNING":
        return False
    return name not in SERVERS or _answers(run.ports[name], READY_PATH)


def others_listening(chosen: Mapping[str, int], names: Collection[str]) -> list[str]:
    """Those of `names` on whose port no process below this one listens, but another does."""
    listening: dict[int, set[int]] = {}
    for inode, listener in read_table(os.getpid()).items():
        if listener.address in (ports.LOOPBACK, ANY_ADDRESS):
            listening.setdefault(listener.port, set()).add(inode)
    taken = {name: listening[chosen[name]] for name in names if chosen.get(name) in listening}
    if not taken:
        return []
    own = set().union(*(socket_inodes(each.pid) for each in children.below(os.getpid())))
    return [name for name, inodes in taken.items() if inodes.isdisjoint(own)]


def page(run: RunFolder, name: str, paths: Sequence[str]) -> str:
    """The first of the pages that the server has; the last where it has none."""
    return next((path for path in paths if _answers(run.ports[name], path)), paths[-1])


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def tail(path: Path) -> str:
    """The last lines of a log, indented."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        lines = []
    return "\n".join(f"    {line}" for line in lines or ["(it has written no log)"])
