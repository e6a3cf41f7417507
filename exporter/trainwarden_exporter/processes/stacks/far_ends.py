"""Finds what a process waits for: the one behind a connection, a pipe or a lock, or a file."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.listening_ports import (
    CONNECTED,
    parse_endpoint,
    parse_sockets,
    read_table,
    socket_inodes,
)
from trainwarden_exporter.processes.procfs import (
    PROC,
    Identity,
    list_pids,
    read_open_links,
    read_process,
    read_text,
)
from trainwarden_exporter.processes.stacks.kernel_state import parse_file_number
from trainwarden_exporter.processes.stacks.model import FarEnd, KernelState
from trainwarden_exporter.processes.stacks.prompts import TERMINAL
from trainwarden_exporter.processes.unix_sockets import read_unix_peers
from trainwarden_exporter.runtime.formatting import on_one_line

MAX_FAR_ENDS = 8
_INODE = 6  # the place in a line of /proc/net/unix
UNKNOWN = FarEnd("a process that is not known")
_LOCK = re.compile(r"(\d+): (-> )?\S+ +\S+ +\S+ +(\d+) ")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(NamedTuple):
    local: Address
    remote: Address


def parse_connections(text: str) -> dict[int, Connection]:
    """Returns the connections in a /proc/<pid>/net/tcp or tcp6, by inode.

    A connection that no process has accepted yet has the inode 0, and is left out.
    """
    return {
        one.inode: Connection(_endpoint(one.local), _endpoint(one.remote))
        for one in parse_sockets(text, CONNECTED)
        if one.inode
    }


def find_servers(
    pid: int, file_number: int | None, members: Iterable[int], root: Path = PROC
) -> tuple[FarEnd, ...]:
    """Returns the other ends of the connection in which a process waits, or of all that it made.

    `file_number` is that of the system call in which it waits. `members` are searched first for
    the process at the other end. Empty if it made no connection.
    """
    if local := find_local_ends(pid, file_number, members, root):
        return local
    connections = _read_connections(pid, root)
    listeners = read_table(pid, root)
    own = socket_inodes(pid, root)
    awaited = _inode(pid, file_number, root)
    chosen = connections.keys() & (own if awaited is None else {awaited})
    # connections to a port on which it listens were made by others
    served = {listeners[inode].port for inode in own & listeners.keys()}
    found: dict[FarEnd, None] = {}
    for inode in sorted(chosen):
        connection = connections[inode]
        if connection.local.port in served:
            continue
        ends = {
            other
            for other, one in connections.items()
            if (one.local, one.remote) == (connection.remote, connection.local)
        }
        if not ends and _is_local(connection):
            port = connection.remote.port
            ends = {other for other, one in listeners.items() if one.port == port}
        found[FarEnd(str(connection.remote), _owner(ends, members, root))] = None
        if len(found) > MAX_FAR_ENDS:
            return (*tuple(found)[:MAX_FAR_ENDS], FarEnd("others"))
    return tuple(found)


def leads_outside(
    pid: int, files: Iterable[int], members: Iterable[int], root: Path = PROC
) -> bool:
    """Whether one of these files of a process is a connection to no process of `members`.

    Connections that others made to it do not count.
    """
    own = {inode for one in files if (inode := _inode(pid, one, root)) is not None}
    if not own:
        return False
    of_members = set[int]().union(*(socket_inodes(one, root) for one in members))
    local, peers = read_text(f"{root}/{pid}/net/unix") or "", read_unix_peers()
    if any(is_local_socket(one, local) and peers.get(one) not in of_members for one in own):
        return True
    connections, listeners = _read_connections(pid, root), read_table(pid, root)
    served = {listeners[one].port for one in socket_inodes(pid, root) & listeners.keys()}
    by_ends = {(one.remote, one.local): inode for inode, one in connections.items()}
    return any(
        by_ends.get(connections[one]) not in of_members
        for one in own & connections.keys()
        if connections[one].local.port not in served
    )


def _read_connections(pid: int, root: Path) -> dict[int, Connection]:
    texts = (read_text(f"{root}/{pid}/net/{name}") or "" for name in ("tcp", "tcp6"))
    return {inode: one for text in texts for inode, one in parse_connections(text).items()}


def find_local_ends(
    pid: int, file_number: int | None, members: Iterable[int], root: Path = PROC
) -> tuple[FarEnd, ...]:
    """Returns the processes that have the other end of a local socket, those of the run last.

    Empty for any other file.
    """
    inode = _inode(pid, file_number, root)
    if inode is None or not is_local_socket(inode, read_text(f"{root}/{pid}/net/unix") or ""):
        return ()
    peer = read_unix_peers().get(inode)
    holders = [one for one in list_pids(root) if peer and peer in socket_inodes(one, root)]
    holders.sort(key=set(members).__contains__)
    known = [one for pid in holders if (one := read_process(pid, root)) is not None]
    return tuple(FarEnd(f"process {one.pid}", one.identity) for one in known[:MAX_FAR_ENDS]) or (
        UNKNOWN,
    )


def is_local_socket(inode: int, text: str) -> bool:
    """Whether a /proc/<pid>/net/unix lists a socket."""
    # a name has any bytes, also separators of lines
    fields = (line.split() for line in text.split("\n")[1:])
    return any(len(one) > _INODE and one[_INODE] == str(inode) for one in fields)


_MAX_PATH = 4096
_WORKING_FOLDER = ("0xffffff9c", "0xffffffffffffff9c")  # AT_FDCWD in linux/fcntl.h


def find_file(pid: int, tid: int, root: Path = PROC) -> tuple[FarEnd, ...]:
    """Returns the file of the system call in which a thread waits, which is not touched.

    Empty if the call names none, or if the memory of the process is not readable.
    """
    number, *arguments = (read_text(f"{root}/{pid}/task/{tid}/syscall") or "-1").split()
    if number == "-1" or len(arguments) < 2:  # noqa: PLR2004 - a page fault, or no wait
        return ()
    first, second = arguments[:2]
    file_number = parse_file_number(f"{number} {first}")
    if file_number is not None:
        path = read_link(f"{root}/{pid}/fd/{file_number}")
    elif first in _WORKING_FOLDER:
        name = _read_string(f"{root}/{pid}/mem", second)
        path = os.path.join(read_link(f"{root}/{pid}/cwd"), name) if name else ""  # noqa: PTH118 - text
    else:
        path = _read_string(f"{root}/{pid}/mem", first)
    return (FarEnd(on_one_line(path)),) if path.startswith("/") else ()


def _read_string(memory: str, address: str) -> str:
    """Returns the text at an address of a process; empty if there is none."""
    try:
        file = os.open(memory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text, end, _ = os.pread(file, _MAX_PATH, int(address, 16)).partition(b"\0")
    except (OSError, OverflowError):
        return ""
    finally:
        os.close(file)
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


def find_device(pid: int, kernel: KernelState, root: Path = PROC) -> tuple[FarEnd, ...]:
    """Returns the timer or the terminal for which a process waits that reads none.

    Empty if it waits for neither.
    """
    link = "" if kernel.file_number is None else read_link(f"{root}/{pid}/fd/{kernel.file_number}")
    return tuple(
        FarEnd(text)
        for channel, file, text in _DEVICES
        if channel.fullmatch(kernel.wait_channel) and re.fullmatch(file, link)
    )


def find_pipe_ends(
    pid: int, file_number: int | None, members: Collection[int], root: Path = PROC
) -> tuple[FarEnd, ...]:
    """Returns the processes beside `members` that have the other end of the pipe of a wait.

    Nobody is known to act for them: each may write into it, or read from it, at any time. A pipe
    with a name may be opened by anybody. Empty if only members have that end.
    """
    own = f"{root}/{pid}/fd/{file_number}"
    pipe = read_link(own)
    if not pipe.startswith("pipe:"):
        return (FarEnd(f"any program that opens {on_one_line(pipe)}") if pipe else UNKNOWN,)
    other = (stat.S_IRUSR | stat.S_IWUSR) & ~_mode(own) or stat.S_IRUSR | stat.S_IWUSR
    holders = {
        holder
        for holder in list_pids(root)
        for number, link in read_open_links(holder, root)
        if link == pipe and _mode(f"{root}/{holder}/fd/{number}") & other
    }
    # Without the other end the wait would be over: it is in a process of another account.
    if not holders:
        return (UNKNOWN,)
    outside = sorted(holders - set(members))
    return tuple(FarEnd(f"process {holder}") for holder in outside[:MAX_FAR_ENDS])


def _mode(path: str) -> int:
    """Returns for what a file is open, as the permissions of its link in /proc show it."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def find_lock_holder(pid: int, root: Path = PROC) -> tuple[FarEnd, ...]:
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


def _owner(inodes: set[int], members: Iterable[int], root: Path) -> Identity | None:
    if not inodes:
        return None
    for pid in chain(members, list_pids(root)):
        if inodes & socket_inodes(pid, root):
            process = read_process(pid, root)
            return None if process is None else process.identity
    return None


def _is_local(connection: Connection) -> bool:
    remote = connection.remote.host
    return remote == connection.local.host or ipaddress.ip_address(remote).is_loopback


def _inode(pid: int, file_number: int | None, root: Path) -> int | None:
    match = re.fullmatch(r"socket:\[(\d+)\]", read_link(f"{root}/{pid}/fd/{file_number}"))
    return int(match[1]) if match else None


def read_link(path: str) -> str:
    """Returns where a link of /proc leads, as the kernel writes it; "" if it is not readable."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a link in /proc, not a path
    except OSError:
        return ""


def _endpoint(text: str) -> Address:
    host, port = parse_endpoint(text)
    return Address(str(getattr(ipaddress.ip_address(host), "ipv4_mapped", None) or host), port)
