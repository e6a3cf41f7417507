"""Reads how much of a disk is left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.disk.mounts import Mount, read_mount

_FLOOR_SHARE = 0.05
_FLOOR_BYTES = 20 << 30


@dataclass(frozen=True, slots=True)
class Space:
    """What is left of the file system that a path lies on; None for what it does not tell."""

    size: int | None
    """Bytes."""
    free: int | None
    """Bytes that ordinary users may still write; root may have more."""
    inodes: int | None
    """Files it can hold at most; None where there is no such limit, as on btrfs."""
    free_inodes: int | None
    read_only: bool
    mount: Mount | None
    """None for a mount that cannot be seen from here."""


def read_space(path: Path, *, or_above: bool = False) -> Space:
    """Look once; on a dead network mount this blocks, for ever perhaps.

    With `or_above`, a folder that is not there yet stands for the nearest one above it. Raises
    OSError.
    """
    descriptor = _open(path, or_above=or_above)
    try:
        vfs = os.fstatvfs(descriptor)
        mount = read_mount(descriptor)
    finally:
        os.close(descriptor)
    unit = vfs.f_frsize or vfs.f_bsize
    sized, counted = vfs.f_blocks > 0, vfs.f_files > 0
    return Space(
        size=vfs.f_blocks * unit if sized else None,
        free=vfs.f_bavail * unit if sized else None,
        inodes=vfs.f_files if counted else None,
        free_inodes=vfs.f_favail if counted else None,
        read_only=bool(vfs.f_flag & os.ST_RDONLY) if mount is None else mount.read_only,
        mount=mount,
    )


def default_floor(size: int) -> int:
    """Bytes that should stay free of `size` when nobody said."""
    return min(int(size * _FLOOR_SHARE), _FLOOR_BYTES)


def _open(path: Path, *, or_above: bool) -> int:
    # O_PATH opens nothing in the folder itself: neither a right to read it nor its device is needed
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if not or_above or path == path.parent:
            raise
        return _open(path.parent, or_above=True)
