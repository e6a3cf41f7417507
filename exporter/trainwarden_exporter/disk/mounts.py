"""Finds the mount that an open file lies on.

Source: mountinfo and fdinfo as in proc_pid_mountinfo(5) and proc_pid_fdinfo(5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.processes.procfs import PROC

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount, as this process sees it."""

    id: int
    point: str
    """The folder it is mounted at."""
    device: str
    """What is mounted: a device, a server's folder, or a word such as `tmpfs`."""
    fstype: str
    read_only: bool
    """Whether nothing can be written through it: by its own options, or its file system's.

    Not by an option that only the sandbox of this process adds: a run is not in it."""


def read_mount(descriptor: int, root: Path = PROC) -> Mount | None:
    """The mount that an open file lies on; None for one that this process cannot see.

    By the descriptor, and not by comparing paths: that is right below links, below mounts that
    hide each other, and in a container. Raises OSError.
    """
    own = root / "self"
    number = parse_mount_id((own / "fdinfo" / str(descriptor)).read_text(encoding="ascii"))
    text = (own / "mountinfo").read_text(encoding="utf-8", errors="replace")
    mount = parse_mounts(text).get(number)
    if mount is not None and mount.read_only and is_sandboxed(number, text, _read_of_init(root)):
        return replace(mount, read_only=False)
    return mount


def _read_of_init(root: Path) -> str:
    try:
        return (root / "1" / "mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # hidden from us: then what we see ourselves is all there is
        return ""


def is_sandboxed(number: int, own: str, init: str) -> bool:
    """Whether a mount is read-only for this process alone, as in a unit or container of its own.

    `own` and `init` are the mountinfo of this process and of process 1, where nothing of such a
    sandbox is: the mount is not there, and its file system can be written to.
    """
    ours = next(line for line in map(_split, own.splitlines()) if int(line.fields[0]) == number)
    theirs = list(map(_split, init.splitlines()))
    if "ro" in ours.options or any(int(line.fields[0]) == number for line in theirs):
        return False
    same = [line for line in theirs if line.fields[2] == ours.fields[2]]
    return any("ro" not in line.fields[5].split(",") for line in same)


class _Line(NamedTuple):
    """One line of a mountinfo."""

    fields: list[str]
    fstype: str
    device: str
    options: list[str]
    """Those of the file system; those of the mount are among the fields."""


def _split(line: str) -> _Line:
    # any number of optional fields stands before the lone dash
    before, _, after = line.partition(" - ")
    fstype, device, *options = after.split(" ")
    return _Line(before.split(" "), fstype, device, "".join(options[:1]).split(","))


def parse_mount_id(text: str) -> int:
    """The number of the mount in a /proc/self/fdinfo/<fd>; -1 where it is not told."""
    for line in text.splitlines():
        if line.startswith("mnt_id:"):
            return int(line.partition(":")[2])
    return -1


def parse_mounts(text: str) -> Mapping[int, Mount]:
    """A /proc/self/mountinfo, by the number of the mount."""
    mounts = (_parse_mount(line) for line in text.splitlines())
    return {mount.id: mount for mount in mounts}


def _parse_mount(line: str) -> Mount:
    fields, fstype, device, options = _split(line)
    return Mount(
        id=int(fields[0]),
        point=_unescaped(fields[4]),
        device=_unescaped(device),
        fstype=fstype,
        read_only="ro" in {*fields[5].split(","), *options},
    )


def _unescaped(text: str) -> str:
    """Spaces, tabs, newlines and backslashes are written as three octal digits."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
