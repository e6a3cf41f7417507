"""Notifies the service manager of the program's state.

The protocol is that of sd_notify(3) and sd_watchdog_enabled(3). Without a service manager, the
functions have no effect.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


def reloading() -> str:
    """Returns the state that announces a reload; `READY` ends it."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def notify(state: str, *, environment: Mapping[str, str] | None = None) -> bool:
    """Sends `state` to the socket named by NOTIFY_SOCKET; returns whether it was sent.

    A failure is only logged, at debug level.
    """
    address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(address)
            sender.send(state.encode())
    except (OSError, ValueError) as error:
        log.debug("service manager not notified", extra={"state": state, "error": str(error)})
        return False
    return True


def watchdog_interval(
    *, environment: Mapping[str, str] | None = None, pid: int | None = None
) -> float | None:
    """Returns the seconds between two WATCHDOG notifications, half of the service manager's limit.

    None if it has no watchdog for this process.
    """
    environment = os.environ if environment is None else environment
    limit = environment.get("WATCHDOG_USEC", "")
    owner = environment.get("WATCHDOG_PID", "")
    if owner and owner != str(os.getpid() if pid is None else pid):
        return None
    if not (limit.isascii() and limit.isdigit()) or int(limit) == 0:
        return None
    return int(limit) / 2 / 1_000_000
