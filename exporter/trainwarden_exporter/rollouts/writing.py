"""Whether the account of a process may write in a folder, as far as modes and mounts tell.

What they do not tell: the rules of SELinux or AppArmor, quotas, and servers that map accounts.
Sources: path_resolution(7), capabilities(7), acl(5).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.processes.procfs import PROC, read_text

_CAP_DAC_OVERRIDE = 1
_ACL = ("system.posix_acl_access", "system.richacl")


@dataclass(frozen=True, slots=True)
class Account:
    """Who a process is when it opens files."""

    user: int
    groups: frozenset[int] = frozenset()
    overrides: bool = False
    """Whether modes do not bind it, as root's."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a folder grants to whom."""

    mode: int
    user: int
    group: int
    listed: bool = False
    """Whether it has a list that says more than its mode."""

    def grant(self, account: Account, wanted: int) -> bool | None:
        """Whether it grants `account` all bits of `wanted`, as in the last digit of a mode.

        None where its list would have to be read.
        """
        if account.overrides:
            return True
        shift = 6 if account.user == self.user else 3 if self.group in account.groups else 0
        if (self.mode >> shift) & wanted == wanted:
            return True
        return None if self.listed and shift != 6 else False  # noqa: PLR2004 - a list does not bind the owner


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is to be written to, or where that is not there yet, the nearest above it."""

    above: tuple[Rights, ...]
    """Of the folders that lead to it."""
    own: Rights | None
    """None where something else than a folder is in its place."""
    read_only: bool = False
    """Whether its mount is."""
    maker: Account | None = None
    """Whose is what was written there last; else whose it is itself."""

    def admits(self, account: Account | None) -> bool | None:
        """Whether `account` may write there; None where that cannot be known.

        Of an account that is not known, whoever made what lies there stands for it.
        """
        who = account or self.maker
        if self.own is None or self.read_only or who is None:
            return False
        granted = [rights.grant(who, 0o1) for rights in self.above]
        granted.append(self.own.grant(who, 0o3))
        return False if False in granted else None if None in granted else True


def read_folder(path: Path, newest: str | None = None) -> Folder | None:
    """The folder at `path`, in which `newest` was written last; None where we may not look.

    Raises OSError for a disk that does not answer well.
    """
    try:
        return _read(path, newest)
    except PermissionError:
        return None


def read_account(pid: int, root: Path = PROC) -> Account | None:
    """The account of a process; None where it is gone."""
    text = read_text(f"{root}/{pid}/status")
    return None if text is None else parse_account(text)


def parse_account(text: str) -> Account | None:
    """The account in a /proc/<pid>/status: see proc_pid_status(5). None where it is not told."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        # the last of four is that for files
        user, group = (int(lines[name].split()[3]) for name in ("Uid", "Gid"))
        groups = {int(number) for number in lines.get("Groups", "").split()}
        overrides = int(lines["CapEff"], 16) >> _CAP_DAC_OVERRIDE & 1
    except (KeyError, IndexError, ValueError):
        return None
    return Account(user, frozenset({*groups, group}), bool(overrides))


def _read(path: Path, newest: str | None) -> Folder:
    try:
        resolved = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        if path == path.parent:
            raise
        return _read(path.parent, None)
    except RuntimeError as error:  # a link that leads in a circle, until Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    status = resolved.stat()
    above = tuple(_rights(folder, folder.stat()) for folder in resolved.parents)
    read_only = bool(os.statvfs(resolved).f_flag & os.ST_RDONLY)
    if not stat.S_ISDIR(status.st_mode):
        return Folder(above, None, read_only)
    return Folder(
        above,
        _rights(resolved, status),
        read_only,
        _maker(resolved, newest) or _owner(status),
    )


def _rights(path: Path, status: os.stat_result) -> Rights:
    return Rights(status.st_mode, status.st_uid, status.st_gid, any(_lists(path)))


def _lists(path: Path) -> Iterator[bool]:
    for name in _ACL:
        try:
            yield bool(os.getxattr(path, name))
        except OSError:  # it has none, or the file system knows none
            yield False


def _maker(folder: Path, newest: str | None) -> Account | None:
    try:
        return None if newest is None else _owner((folder / newest).stat())
    except OSError:
        return None


def _owner(status: os.stat_result) -> Account:
    """The account of the owner; root's is not bound by modes as a rule."""
    return Account(status.st_uid, frozenset({status.st_gid}), overrides=status.st_uid == 0)
