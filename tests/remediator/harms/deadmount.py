"""A file system that takes every question and answers none: what waits for it cannot be ended.

Sources: fuse(4), mount(2), include/uapi/linux/fuse.h; a request that the server of a file system
has read is waited for in the kernel, also by a process that was sent SIGKILL (fs/fuse/dev.c).
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_NOSUID, _NODEV = 2, 4
_FORCE, _DETACH = 1, 2
_HEADER = struct.Struct("=IIQ")  # length, operation, number
_INIT = 26
_MAJOR, _MINOR, _ANSWER_BYTES = 7, 31, 64
_REQUEST_BYTES = 1 << 17

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """While inside, `folder` is one. Skips the test where nothing can be mounted."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no file system of our own here: {error}")
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    find_position = os.fsencode(folder)
    if _libc.mount(b"dead", find_position, b"fuse", _NOSUID | _NODEV, options.encode()) != 0:
        reason = os.strerror(ctypes.get_errno())
        os.close(device)
        pytest.skip(f"nothing can be mounted here: {reason}")
    listening = threading.Thread(target=_listen, args=(device,), daemon=True)
    listening.start()
    try:
        yield
    finally:
        # a waiting process gets an error, as the file system is gone, and ends
        _libc.umount2(find_position, _FORCE)
        _libc.umount2(find_position, _DETACH)
        listening.join()
        os.close(device)


def _listen(device: int) -> None:
    with suppress(OSError):  # it was unmounted
        while request := os.read(device, _REQUEST_BYTES):
            _, operation, number = _HEADER.unpack_from(request)
            if operation == _INIT:
                answer = struct.pack("=II", _MAJOR, _MINOR).ljust(_ANSWER_BYTES, b"\0")
                length = 16 + len(answer)
                os.write(device, struct.pack("=IiQ", length, 0, number) + answer)
