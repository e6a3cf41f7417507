"""A real FUSE file system that never answers, in a mount namespace of its own.

`unshare --mount python hung_mount.py FOLDER` mounts it, prints a line, and ends with its standard
input. With it end the namespace and the connection: a process that waits for it gets an error.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INIT = 26  # FUSE_INIT and fuse_init_out in linux/fuse.h
HEADER = 16
FOLDER_MODE = "40000"  # S_IFDIR, in octal digits


@contextmanager
def hung_mount(folder: Path) -> Iterator[list[str]]:
    """Mounts it at `folder`; yields the start of a command line for programs that see it.

    Raises OSError where that is not possible.
    """
    holder = subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-S", __file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            errors = holder.communicate()[1].decode().splitlines()
            raise OSError(errors[-1] if errors else "no mount")
        yield ["nsenter", f"--target={holder.pid}", "--mount"]
    finally:
        holder.kill()
        holder.communicate()


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode={FOLDER_MODE},user_id=0,group_id=0,allow_other"
    if libc.mount(b"hung", sys.argv[1].encode(), b"fuse.hung", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "no FUSE file system can be mounted")
    # the first request is answered, after which the kernel sends others, which are not read
    _, operation, number = struct.unpack_from("<IIQ", os.read(device, 1 << 17))
    assert operation == INIT
    answer = struct.pack("<4I2HII2HI7I", 7, 31, 0, 0, 12, 9, 65536, 1, 32, 0, 0, *[0] * 7)[:64]
    os.write(device, struct.pack("<IiQ", HEADER + len(answer), 0, number) + answer)
    os.write(1, b"\n")
    sys.stdin.read()


if __name__ == "__main__":
    main()
