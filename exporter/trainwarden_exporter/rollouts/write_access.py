"""Whether the account of a process may write to a folder, by modes and mounts.

Not covered: SELinux and AppArmor rules, quotas, and servers that map accounts. Sources:
path_resolution(7), capabilities(7), acl(5).
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
    """Account of a process for file access."""

    uid: int
    groups: frozenset[int] = frozenset()
    bypasses_modes: bool = False
    """Whether it bypasses modes, like root."""


@dataclass(frozen=True, slots=True)
class FolderPermissions:
    mode: int
    uid: int
    gid: int
    has_acl: bool = False
    """Whether it has an ACL beyond its mode."""

    def grants(self, account: Account, wanted: int) -> bool | None:
        """Whether it grants `account` all bits of `wanted`, as in the last digit of a mode.

        None if the answer depends on the ACL.
        """
        if account.bypasses_modes:
            return True
        shift = 6 if account.uid == self.uid else 3 if self.gid in account.groups else 0
        if (self.mode >> shift) & wanted == wanted:
            return True
        return None if self.has_acl and shift != 6 else False  # noqa: PLR2004 - a list does not bind the owner


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The folder to be written to; its nearest existing parent if it is missing."""

    ancestors: tuple[FolderPermissions, ...]
    """Permissions of its parent folders."""
    permissions: FolderPermissions | None
    """None if it is not a folder."""
    read_only: bool = False
    """Whether its mount is read-only."""
    last_writer: Account | None = None
    """Owner of the last file written there; else the owner of the folder."""

    def is_writable_by(self, account: Account | None) -> bool | None:
        """Whether `account` may write there; None if unknown.

        The owner of existing files stands in for an unknown account.
        """
        who = account or self.last_writer
        if self.permissions is None or self.read_only or who is None:
            return False
        granted = [rights.grants(who, 0o1) for rights in self.ancestors]
        granted.append(self.permissions.grants(who, 0o3))
        return False if False in granted else None if None in granted else True


def read_write_target(path: Path, newest: str | None = None) -> WriteTarget | None:
    """Returns the folder at `path`, in which `newest` was written last; None if inaccessible.

    Raises OSError if the disk fails.
    """
    try:
        return _read(path, newest)
    except PermissionError:
        return None


def read_account(pid: int, root: Path = PROC) -> Account | None:
    """Returns the account of a process; None if it has ended."""
    text = read_text(f"{root}/{pid}/status")
    return None if text is None else parse_account(text)


def parse_account(text: str) -> Account | None:
    """Returns the account in a /proc/<pid>/status (proc_pid_status(5)); None if missing."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        # the last of four is that for file access
        uid, gid = (int(lines[name].split()[3]) for name in ("Uid", "Gid"))
        groups = {int(number) for number in lines.get("Groups", "").split()}
        bypasses_modes = int(lines["CapEff"], 16) >> _CAP_DAC_OVERRIDE & 1
    except (KeyError, IndexError, ValueError):
        return None
    return Account(uid, frozenset({*groups, gid}), bool(bypasses_modes))


def _read(path: Path, newest: str | None) -> WriteTarget:
    try:
        resolved = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        if path == path.parent:
            raise
        return _read(path.parent, None)
    except RuntimeError as error:  # a link that leads in a circle, until Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    status = resolved.stat()
    ancestors = tuple(_permissions(folder, folder.stat()) for folder in resolved.parents)
    read_only = bool(os.statvfs(resolved).f_flag & os.ST_RDONLY)
    if not stat.S_ISDIR(status.st_mode):
        return WriteTarget(ancestors, None, read_only)
    return WriteTarget(
        ancestors,
        _permissions(resolved, status),
        read_only,
        _last_writer(resolved, newest) or _owner(status),
    )


def _permissions(path: Path, status: os.stat_result) -> FolderPermissions:
    return FolderPermissions(status.st_mode, status.st_uid, status.st_gid, any(_acls(path)))


def _acls(path: Path) -> Iterator[bool]:
    for name in _ACL:
        try:
            yield bool(os.getxattr(path, name))
        except OSError:  # it has none, or the file system knows none
            yield False


def _last_writer(folder: Path, newest: str | None) -> Account | None:
    try:
        return None if newest is None else _owner((folder / newest).stat())
    except OSError:
        return None


def _owner(status: os.stat_result) -> Account:
    """Returns the account of the owner; root usually bypasses modes."""
    return Account(status.st_uid, frozenset({status.st_gid}), bypasses_modes=status.st_uid == 0)
