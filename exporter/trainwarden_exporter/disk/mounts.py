"""Finds the mount of an open file.

Source: mountinfo and fdinfo as in proc_pid_mountinfo(5) and proc_pid_fdinfo(5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount as seen by this process."""

    id: int
    point: str
    """The mount point."""
    device: str
    """The mounted device, a server's folder, or a word such as `tmpfs`."""
    fstype: str
    read_only: bool
    """Whether the mount or its file system is read-only.

    Ignores options that only the sandbox of this process adds, because a run is outside of it."""


# psutil.disk_partitions has no mount id, and does not show read-only mounts of a sandbox
def read_mount(descriptor: int) -> Mount | None:
    """Returns the mount of an open file; None if this process cannot see it.

    Uses the descriptor instead of comparing paths, which is correct with links, overlaid mounts and
    containers. Raises OSError.
    """
    own = PROC / "self"
    number = parse_mount_id((own / "fdinfo" / str(descriptor)).read_text(encoding="ascii"))
    text = (own / "mountinfo").read_text(encoding="utf-8", errors="replace")
    mount = parse_mounts(text).get(number)
    if mount is not None and mount.read_only and is_sandboxed(number, text, _read_init_mountinfo()):
        return replace(mount, read_only=False)
    return mount


def _read_init_mountinfo() -> str:
    try:
        return (PROC / "1" / "mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # hidden from us: use our own view
        return ""


def is_sandboxed(number: int, own: str, init: str) -> bool:
    """Whether a mount is read-only only for this process, as in a sandboxed unit or container.

    `own` and `init` are the mountinfo of this process and of process 1, which is outside the
    sandbox: there the mount is missing and its file system is writable.
    """
    ours = next(
        line for line in map(_split_line, own.splitlines()) if int(line.fields[0]) == number
    )
    theirs = list(map(_split_line, init.splitlines()))
    if "ro" in ours.options or any(int(line.fields[0]) == number for line in theirs):
        return False
    same = [line for line in theirs if line.fields[2] == ours.fields[2]]
    return any("ro" not in line.fields[5].split(",") for line in same)


class _MountinfoLine(NamedTuple):
    fields: list[str]
    fstype: str
    device: str
    options: list[str]
    """Options of the file system; those of the mount are among the fields."""


def _split_line(line: str) -> _MountinfoLine:
    # any number of optional fields precedes the dash
    before, _, after = line.partition(" - ")
    fstype, device, *options = after.split(" ")
    return _MountinfoLine(before.split(" "), fstype, device, "".join(options[:1]).split(","))


def parse_mount_id(text: str) -> int:
    """Returns the mount number in a /proc/self/fdinfo/<fd>; -1 without one."""
    for line in text.splitlines():
        if line.startswith("mnt_id:"):
            return int(line.partition(":")[2])
    return -1


def parse_mounts(text: str) -> Mapping[int, Mount]:
    """Parses a /proc/self/mountinfo, by mount number."""
    mounts = (_parse_mount(line) for line in text.splitlines())
    return {mount.id: mount for mount in mounts}


def _parse_mount(line: str) -> Mount:
    fields, fstype, device, options = _split_line(line)
    return Mount(
        id=int(fields[0]),
        point=_unescape(fields[4]),
        device=_unescape(device),
        fstype=fstype,
        read_only="ro" in {*fields[5].split(","), *options},
    )


def _unescape(text: str) -> str:
    """Decodes spaces, tabs, newlines and backslashes from three octal digits."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
