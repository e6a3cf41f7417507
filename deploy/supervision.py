"""Asks supervisord how its programs are, over the unix socket it listens on."""

from __future__ import annotations

import xmlrpc.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden_remediator.actions.supervisor import Transport

ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """One program as supervisord sees it; `state` as in its documentation (RUNNING, FATAL, …).

    `pid` is 0 while it does not run; `exit_status` is that of its last end, -1 after a signal.
    """

    name: str
    state: str
    pid: int
    exit_status: int


def read_programs(path: Path) -> dict[str, Program]:
    """All programs by name. Raises OSError while supervisord does not listen at `path`, or ends."""
    with _asking(path) as supervisor:
        answer: Any = supervisor.getAllProcessInfo()
    return {
        each["name"]: Program(each["name"], each["statename"], each["pid"], each["exitstatus"])
        for each in answer
    }


def kill(path: Path, name: str) -> None:
    """End a program at once, also if it is stopped. Raises OSError, also if it has ended."""
    with _asking(path) as supervisor:
        supervisor.signalProcess(name, "KILL")


@contextmanager
def _asking(path: Path) -> Iterator[Any]:
    transport = Transport(path, None, ANSWER_SECONDS)
    with xmlrpc.client.ServerProxy("http://localhost", transport=transport) as proxy:
        try:
            yield proxy.supervisor
        except xmlrpc.client.Fault as error:
            raise OSError(error.faultString) from error


def changes(before: Mapping[str, Program], now: Mapping[str, Program]) -> Iterator[str]:
    """Returns messages about programs that no longer run."""
    for name, program in now.items():
        was = before.get(name, program)
        if program.state == "FATAL" != was.state:
            yield f"{name} keeps ending and is not started any more"
        elif program.pid and program.pid != was.pid:
            yield f"{name} ended and was started again"
        elif was.pid and not program.pid and program.state != "STOPPED":
            status = program.exit_status
            yield f"{name} ended {f'with status {status}' if status >= 0 else 'by a signal'}"
