"""Becomes another program, in a network of its own that has nothing but loopback.

Usage: ownnetwork.py PROGRAM [ARGUMENT …], as root. What it starts shares that network.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def enter_own_network() -> None:
    """Leave the machine's network (unshare(2), netdevice(7)). Raises OSError without the right."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


if __name__ == "__main__":
    enter_own_network()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - to become it is what this is for
