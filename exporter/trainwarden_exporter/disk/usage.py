"""Reads the usage of a disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.disk.config import DiskConfig
from trainwarden_exporter.disk.mounts import Mount, read_mount

_FLOOR_SHARE = 0.05
_FLOOR_BYTES = 20 << 30


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Usage of the file system of a path; None for unavailable values."""

    size: int | None
    """Bytes."""
    free: int | None
    """Bytes available to unprivileged users; root may have more."""
    inodes: int | None
    """Maximum number of inodes; None without a limit, as on btrfs."""
    free_inodes: int | None
    read_only: bool
    mount: Mount | None
    """None if the mount is not visible."""


# psutil.disk_usage has no inodes, and shows an unknown size as zero
def read_disk_usage(path: Path, *, or_above: bool = False) -> DiskUsage:
    """Reads the usage; may block forever on a dead network mount.

    With `or_above`, a missing folder is replaced by its nearest existing parent. Raises OSError.
    """
    descriptor = _open(path, or_above=or_above)
    try:
        vfs = os.fstatvfs(descriptor)
        mount = read_mount(descriptor)
    finally:
        os.close(descriptor)
    unit = vfs.f_frsize or vfs.f_bsize
    sized, counted = vfs.f_blocks > 0, vfs.f_files > 0
    return DiskUsage(
        size=vfs.f_blocks * unit if sized else None,
        free=vfs.f_bavail * unit if sized else None,
        inodes=vfs.f_files if counted else None,
        free_inodes=vfs.f_favail if counted else None,
        read_only=bool(vfs.f_flag & os.ST_RDONLY) if mount is None else mount.read_only,
        mount=mount,
    )


def free_floor(disk: DiskConfig | None, usage: DiskUsage) -> int | None:
    """Returns the minimum of free bytes: as configured, else derived from the size, if known."""
    if disk is not None and disk.free_floor is not None:
        return disk.free_floor
    return None if usage.size is None else min(int(usage.size * _FLOOR_SHARE), _FLOOR_BYTES)


def _open(path: Path, *, or_above: bool) -> int:
    # O_PATH needs neither read permission nor the device
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if not or_above or path == path.parent:
            raise
        return _open(path.parent, or_above=True)
