"""Processes of an earlier attempt of a run that still live: they may hold its port or its files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainwarden.run.process_tree import Identity, find_processes

NO_PROCESS = -1
MAX_COMMAND = 80
"""Characters of a command line that are shown."""
MAX_SHOWN = 4
MAX_LEFT = 20
SETTLING_LOOKS, SETTLING_SECONDS = 6, 0.2
"""How often, and after how long each, a process is seen that goes on."""
_LISTENS = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""


def describe_left(run_id: str, before: int) -> str:
    """Returns which processes with `run_id` that started before a time in ticks still live.

    With what ends them; "" if none does. This ends no process: some may be meant to go on.
    """
    found = find_processes(NO_PROCESS, run_id) if run_id else []
    left = [pid for pid, ticks in found if ticks < before]
    if not left:
        return ""
    shown = [f"{pid} ({_describe(pid)})" for pid in left[:MAX_SHOWN]]
    more = [f"{len(left) - MAX_SHOWN} more"] if len(left) > MAX_SHOWN else []
    noun, verb = ("process", "runs") if len(left) == 1 else ("processes", "run")
    pids = " ".join(map(str, left))
    names = ", ".join((*shown, *more))
    return f"of an earlier attempt {noun} {names} still {verb}: `kill {pids}` ends what is left"


def left_behind(run_id: str) -> list[Identity]:
    """Returns the processes with `run_id` that go on though their command has finished.

    Helpers of a program end a moment after it.
    """
    found: list[Identity] = []
    for number in range(SETTLING_LOOKS):
        time.sleep(SETTLING_SECONDS if number else 0.0)
        if not (found := find_processes(NO_PROCESS, run_id) if run_id else []):
            break
    return found[:MAX_LEFT]


def describe_left_behind(left: Sequence[object]) -> str:
    """Returns that processes go on after the end of their command; "" if none does."""
    if not left:
        return ""
    noun = "1 process of it goes" if len(left) == 1 else f"{len(left)} processes of it go"
    return f"{noun} on, which nobody watches: start it without `nohup` and `&`"


def _describe(pid: int) -> str:
    """Returns the command line of a process, and the ports on which it listens."""
    given = b""
    with suppress(OSError):
        given = Path(f"/proc/{pid}/cmdline").read_bytes()
    line = given.replace(b"\0", b" ").decode("utf-8", "replace")
    line = "".join(one if one.isprintable() and one != "`" else "?" for one in line.strip())
    shown = line if len(line) <= MAX_COMMAND else f"{line[:MAX_COMMAND]}…"
    ports = ", ".join(f"port {one}" for one in _ports(pid))
    return ", ".join(filter(None, (shown, ports))) or "unknown"


def _ports(pid: int) -> list[int]:
    sockets = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names alone
            with suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115 - no path
    ports = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            for row in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines():
                fields = row.split()
                if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in sockets:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)
