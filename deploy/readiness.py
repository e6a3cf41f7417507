"""Waits until every part of the stack answers, and says which one does not."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import ports
import supervision
from runfolder import RunFolder
from stack import StackError

SERVERS = ("exporter", "remediator", "prometheus", "alertmanager")
"""The parts of the stack; all four answer at READY_PATH."""

READY_PATH = "/-/ready"
LIMIT_SECONDS = 60.0
TAIL_LINES = 15


def wait(
    run: RunFolder, supervisord: subprocess.Popen[bytes], pause: Callable[[float], None]
) -> None:
    """Until every part answers. Raises StackError with the log of a silent part."""
    deadline = time.monotonic() + LIMIT_SECONDS
    waiting = [*SERVERS, *run.programs]
    while waiting:
        pause(0.2)
        if supervisord.poll() is not None:
            raise StackError(f"supervisord does not start\n{tail(run.log('supervisord'))}")
        with suppress(OSError):
            programs = supervision.read_programs(run.socket)
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
