"""Chooses the ports of the stack: each its usual one where that is free. All are on loopback."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack

USUAL: Mapping[str, int] = {
    "exporter": 10977,
    "remediator": 10978,
    "prometheus": 9090,
    "alertmanager": 9093,
    "inference": 8000,
}
LOOPBACK = "127.0.0.1"


class InUseError(Exception):
    """The port of `name`, which is fixed, is in use."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(f"port {port} of the {name} is in use")
        self.name, self.port = name, port


def choose(fixed: Mapping[str, int] | None = None, *, any_free: bool = False) -> dict[str, int]:
    """A free port for each program of the stack.

    `fixed` ones are taken as they are; of the others each is the usual one if it is free and
    `any_free` is not set. Raises InUseError when a fixed one is in use.
    """
    wanted = {name: 0 if any_free else port for name, port in USUAL.items()} | dict(fixed or {})
    chosen: dict[str, int] = {}
    with ExitStack() as stack:  # all are held until the last is chosen, so that they differ
        for name, port in wanted.items():
            try:
                taken = stack.enter_context(_take(port, or_any=name not in (fixed or {})))
            except OSError as error:
                raise InUseError(name, port) from error
            chosen[name] = taken.getsockname()[1]
    return chosen


def _take(port: int, *, or_any: bool) -> socket.socket:
    taken = socket.socket()
    # As servers do: a port that only has old connections closing on it is free.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((LOOPBACK, port))
    except OSError:
        if not or_any:
            taken.close()
            raise
        taken.bind((LOOPBACK, 0))
    return taken
