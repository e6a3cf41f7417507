"""Every Python program behaves as on a kernel before 6.15, which refuses PIDFD_GET_INFO."""

from __future__ import annotations

import errno
import fcntl
from typing import Any

PIDFD_GET_INFO = 0xC040FF0B
asked = fcntl.ioctl


def ioctl(descriptor: Any, request: int, *rest: Any) -> Any:
    if request == PIDFD_GET_INFO:
        raise OSError(errno.ENOTTY, "an old kernel")
    return asked(descriptor, request, *rest)


fcntl.ioctl = ioctl
