"""Whose stack listens at a port of loopback: another account's, or one of another place."""

from __future__ import annotations

import os
from pathlib import Path

from trainwarden.stack import load_script
from trainwarden_exporter.processes.ancestry import parent
from trainwarden_exporter.processes.listening_ports import (
    LISTENING,
    parse_endpoint,
    parse_sockets,
)
from trainwarden_exporter.processes.procfs import (
    account_name,
    read_command_line,
    read_processes,
    read_text,
    read_uid,
)

PEOPLE = range(1000, 60_000)
"""Users in the sense of systemd: the others are of the system, of services and of containers, whose
exporter watches the host for everybody."""
LOOPBACK = "127.0.0.1"
_SUPERVISORD = "supervisord.conf"


def stranger_at(port: int) -> str:
    """Returns whose stack listens at a port of loopback, if it is not one of this account's.

    "" if nothing listens there, or what does is no stack of `trainwarden up` and of no other user:
    a unit, a container, an exporter that this account has started.
    """
    table = read_text("/proc/self/net/tcp") or ""
    uids = [
        one.uid
        for one in parse_sockets(table, LISTENING)
        if parse_endpoint(one.local) == (LOOPBACK, port)
    ]
    if not uids:
        return ""
    uid = uids[0]
    whose = "one" if uid == os.geteuid() else f"one of {account_name(uid)}"
    if (folder := _stack_at(port, uid)) is None:
        return whose if whose != "one" and uid in PEOPLE else ""
    # Of a stack that has just begun to start, the ports are not known yet.
    running = load_script("claims").running_folders()
    return "" if folder in running else f"{whose} in {folder}"


def _stack_at(port: int, uid: int) -> Path | None:
    """Returns the folder of the stack of an account whose exporter listens there."""
    processes = read_processes()
    listens = f"--web.listen-address={LOOPBACK}:{port}"
    for pid, process in processes.items():
        if listens not in (read_command_line(pid) or ()) or read_uid(pid) != uid:
            continue  # any account may choose a command line; that of the socket is known
        above = parent(process, processes)
        for word in (above and read_command_line(above.pid)) or ():
            if Path(word).name == _SUPERVISORD:
                return Path(word).parent
    return None
