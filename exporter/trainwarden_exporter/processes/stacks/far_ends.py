"""Finds what a process waits for: the one behind a connection, a pipe or a lock, or a file."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from trainwarden_exporter.processes.procfs import Identity, read_process, read_text
from trainwarden_exporter.processes.stacks.model import FarEnd, KernelState
from trainwarden_exporter.processes.stacks.open_files import Connection, OpenFiles, read_link
from trainwarden_exporter.processes.stacks.prompts import TERMINAL
from trainwarden_exporter.processes.stacks.system_calls import read_call, read_memory
from trainwarden_exporter.runtime.formatting import on_one_line

MAX_FAR_ENDS = 8
UNKNOWN = FarEnd("a process that is not known")
_LOCK = re.compile(r"(\d+): (-> )?\S+ +\S+ +\S+ +(\d+) ")


def find_servers(pid: int, file_number: int | None, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the other ends of the connection in which a process waits, or of all that it made.

    `file_number` is that of the system call in which it waits. The processes of the run are
    searched first for the one at the other end. Empty if it made no connection.
    """
    if local := find_local_ends(pid, file_number, files):
        return local
    connections, listening, _ = files.network(pid)
    own, awaited = files.sockets.get(pid, ()), _inode(pid, file_number, files.root)
    if awaited is not None and awaited not in own:
        return (UNKNOWN,)  # it is newer
    # connections to a port on which it listens were made by others
    served = {listening[inode] for inode in own if inode in listening}
    found: dict[FarEnd, None] = {}
    for inode in sorted(own if awaited is None else (awaited,)):
        connection = connections.get(inode)
        if connection is None or connection.local.port in served:
            continue
        ends = {
            other
            for other, one in connections.items()
            if (one.local, one.remote) == (connection.remote, connection.local)
        }
        if not ends and _is_local(connection):
            port = connection.remote.port
            ends = {other for other, one in listening.items() if one == port}
        found[FarEnd(str(connection.remote), _owner(ends, files))] = None
        if len(found) > MAX_FAR_ENDS:
            return (*tuple(found)[:MAX_FAR_ENDS], FarEnd("others"))
    return tuple(found)


def leads_outside(pid: int, file_numbers: Iterable[int], files: OpenFiles) -> bool:
    """Whether one of these files of a process is a connection to no process of the run.

    Connections that others made to it do not count.
    """
    awaited = {one for number in file_numbers if (one := _inode(pid, number, files.root))}
    if not awaited:
        return False
    connections, listening, local = files.network(pid)
    own, of_run = files.sockets.get(pid, ()), set[int | None]().union(*files.sockets.values())
    if any(one not in own for one in awaited):
        return True  # it is newer
    if any(str(one) in local and files.peers.get(one) not in of_run for one in awaited):
        return True
    served = {listening[one] for one in own if one in listening}
    by_ends = {(one.remote, one.local): inode for inode, one in connections.items()}
    return any(
        by_ends.get(connections[one]) not in of_run
        for one in awaited
        if one in connections and connections[one].local.port not in served
    )


def find_local_ends(pid: int, file_number: int | None, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the processes that have the other end of a local socket, those of the run last.

    Empty for any other file.
    """
    inode = _inode(pid, file_number, files.root)
    if inode is None or str(inode) not in files.network(pid).local:
        return ()
    peer = files.peers.get(inode)
    holders = sorted(_holders(peer, files), key=files.pids.__contains__) if peer else ()
    known = [one for each in holders if (one := read_process(each, files.root)) is not None]
    return tuple(FarEnd(f"process {one.pid}", one.identity) for one in known[:MAX_FAR_ENDS]) or (
        UNKNOWN,
    )


_MAX_PATH = 4096
_WORKING_FOLDER = (0xFFFFFF9C, 0xFFFFFFFFFFFFFF9C)  # AT_FDCWD in linux/fcntl.h


def find_file(pid: int, tid: int, root: Path) -> tuple[FarEnd, ...]:
    """Returns the file of the system call in which a thread waits, which is not touched.

    Empty if the call names none, or if the memory of the process is not readable.
    """
    call = read_call(f"{root}/{pid}/task/{tid}")
    if call is None:
        return ()
    folder, first, second = f"{root}/{pid}", *call.arguments[:2]
    if call.file_number is not None:
        path = read_link(f"{folder}/fd/{call.file_number}")
    elif first in _WORKING_FOLDER:
        name = _read_string(folder, second)
        path = os.path.join(read_link(f"{folder}/cwd"), name) if name else ""  # noqa: PTH118 - text
    else:
        path = _read_string(folder, first)
    return (FarEnd(on_one_line(path)),) if path.startswith("/") else ()


def _read_string(folder: str, address: int) -> str:
    """Returns the text at an address of a process; empty if there is none."""
    text, end, _ = (read_memory(folder, address, _MAX_PATH) or b"").partition(b"\0")
    shown = text.decode("utf-8", "replace")
    return shown if end and shown.isprintable() else ""


_DEVICES = (
    (re.compile(r"do_wait_intr_irq|timerfd_read.*"), r"anon_inode:\[timerfd\]", "a timer"),
    (
        re.compile(r"wait_woken|(?:n_)?tty_write.*"),
        TERMINAL.pattern,
        "its terminal to take output, which Ctrl-Q lets go on after Ctrl-S",
    ),
)
"""Kernel functions, files, and how these are called."""


def find_device(pid: int, kernel: KernelState, root: Path) -> tuple[FarEnd, ...]:
    """Returns the timer or the terminal for which a process waits that reads none.

    Empty if it waits for neither.
    """
    link = "" if kernel.file_number is None else read_link(f"{root}/{pid}/fd/{kernel.file_number}")
    return tuple(
        FarEnd(text)
        for channel, file, text in _DEVICES
        if channel.fullmatch(kernel.wait_channel) and re.fullmatch(file, link)
    )


def find_pipe_ends(pid: int, file_number: int | None, files: OpenFiles) -> tuple[FarEnd, ...]:
    """Returns the processes outside of the run that have the other end of the pipe of a wait.

    Nobody is known to act for them: each may write into it, or read from it, at any time. A pipe
    with a name may be opened by anybody. Empty if only processes of the run have that end.
    """
    own = f"{files.root}/{pid}/fd/{file_number}"
    pipe = read_link(own)
    if not pipe.startswith("pipe:"):
        return (FarEnd(f"any program that opens {on_one_line(pipe)}") if pipe else UNKNOWN,)
    other = (stat.S_IRUSR | stat.S_IWUSR) & ~_mode(own) or stat.S_IRUSR | stat.S_IWUSR
    holders = {
        holder
        for holder, number in files.holders(pipe) or ()
        if _mode(f"{files.root}/{holder}/fd/{number}") & other
    }
    # Without the other end the wait would be over: it is in a process of another account.
    if not holders:
        return (UNKNOWN,)
    outside = sorted(holders - set(files.pids))
    return tuple(FarEnd(f"process {holder}") for holder in outside[:MAX_FAR_ENDS])


def _mode(path: str) -> int:
    """Returns for what a file is open, as the permissions of its link in /proc show it."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def find_lock_holder(pid: int, root: Path) -> tuple[FarEnd, ...]:
    """Returns the process that holds the file lock for which a process waits.

    It is not known if it is on another host, has ended and left the lock to a child, or if the lock
    is only tried again and again.
    """
    holder = parse_lock_holders(read_text(f"{root}/locks") or "").get(pid)
    process = None if holder is None else read_process(holder, root)
    if process is None:
        return (UNKNOWN,)
    return (FarEnd(f"process {process.pid}, which holds the file lock", process.identity),)


def parse_lock_holders(text: str) -> Mapping[int, int]:
    """Returns the holders of the locks in a /proc/locks by the waiting pid; see proc_locks(5)."""
    holders: dict[str, int] = {}
    found = {}
    for line in text.splitlines():
        if (match := _LOCK.match(line)) is None:
            continue
        number, waits, pid = match[1], match[2], int(match[3])
        if not waits:
            holders[number] = pid
        elif number in holders:
            found[pid] = holders[number]
    return found


def _owner(inodes: Iterable[int], files: OpenFiles) -> Identity | None:
    holders = {pid for inode in inodes for pid in _holders(inode, files)}
    for pid in sorted(holders, key=lambda pid: (pid not in files.pids, pid)):
        process = read_process(pid, files.root)
        return None if process is None else process.identity
    return None


def _holders(inode: int, files: OpenFiles) -> Collection[int]:
    """Returns the processes that have a socket; none if that is not known."""
    return {pid for pid, _ in files.holders(f"socket:[{inode}]") or ()}


def _is_local(connection: Connection) -> bool:
    remote = connection.remote.host
    return remote == connection.local.host or ipaddress.ip_address(remote).is_loopback


def _inode(pid: int, file_number: int | None, root: Path) -> int | None:
    match = re.fullmatch(r"socket:\[(\d+)\]", read_link(f"{root}/{pid}/fd/{file_number}"))
    return int(match[1]) if match else None
