"""How many pids the kernel has given out, and how many processes there are: without any list."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden_exporter.exceptions import CollectError
from trainwarden_exporter.processes.procfs import PROC, are_own, read_text

_FIRST_NAMESPACE = "pid:[4026531836]"  # PID_NS_INIT_INO in include/uapi/linux/nsfs.h
_OWN_LINKS = 2


class Handed(NamedTuple):
    """How far the kernel has come in giving out pids: the last one, and how many since boot.

    The last one is of our namespace, how many is of the whole machine.
    """

    last: int
    total: int


class Census(NamedTuple):
    """How far pids are given out, and how many processes the whole machine has, and some more."""

    handed: Handed
    processes: int


def given_anew(pids: Iterable[int], then: Handed, now: Handed, circle: int) -> set[int]:
    """Which of `pids` the kernel may have given to somebody else between two moments.

    `circle` is how many pids there are. Half of a circle is taken for a whole one: how many are
    passed over, because they are in use, is not known.
    """
    if now.total == then.total:
        return set()
    if not 0 < now.total - then.total < circle // 2:
        return set(pids)
    if then.last <= now.last:
        return set(range(then.last + 1, now.last + 1)).intersection(pids)
    return {pid for pid in pids if pid > then.last or pid <= now.last}


def read_census(root: Path = PROC) -> Census | None:
    """What may tell that nobody came or went; None where it is not told."""
    handed, links = read_handed(root), read_links(root)
    return None if handed is None or links is None else Census(handed, links)


def read_handed(root: Path = PROC) -> Handed | None:
    """How far the kernel has come; None where it does not tell (see proc(5), loadavg and stat)."""
    average, statistics = read_text(f"{root}/loadavg"), read_text(f"{root}/stat")
    try:
        last = int((average or "").split()[4])
        counts = (statistics or "").split("\nprocesses ", 1)[1]
        handed = Handed(last, int(counts.split(maxsplit=1)[0]))
    except (IndexError, ValueError):
        return None
    return handed if handed.total else None  # who has begun none does not count them


def read_links(root: Path = PROC) -> int | None:
    """As many as there are processes, and some: proc_root_getattr in fs/proc/root.c."""
    try:
        return root.stat().st_nlink
    except OSError:
        return None


def count_others(root: Path = PROC) -> int:
    """How many of these links stand for no process, but for the other folders of `root`."""
    try:
        with os.scandir(root) as entries:
            folders = (one.name for one in entries if one.is_dir(follow_symlinks=False))
            return _OWN_LINKS + sum(not name.isdecimal() for name in folders)
    except OSError:
        return 0


def is_first_namespace(root: Path = PROC) -> bool:
    """Whether the pids at `root` are ours, and those of no container."""
    try:
        return are_own(root) and str((root / "self/ns/pid").readlink()) == _FIRST_NAMESPACE
    except OSError:
        return False


def read_circle(root: Path = PROC) -> int:
    """How many pids there are; 0 where `root` tells of another namespace's, or not at all."""
    try:
        # loadavg tells of the reader's own namespace, whatever namespace `root` shows
        if str((root / "self").readlink()) != str(os.getpid()):
            return 0
        return int(read_text(f"{root}/sys/kernel/pid_max") or 0)
    except (OSError, ValueError, CollectError):
        return 0
