"""Chooses the ports of the stack: each its usual one where that is free. All are on loopback."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

USUAL: Mapping[str, int] = {
    "exporter": 10977,
    "remediator": 10978,
    "prometheus": 9090,
    "alertmanager": 9093,
    "inference": 8000,
}
PAGES = ("exporter", "remediator")
"""What has a page for people."""
LOOPBACK = "127.0.0.1"
FILE = "ports.json"
"""Has the ports of a stack, in its folder."""
OTHERS = range(20_000, 32_768)
"""Drawn from where the usual port is in use. Linux gives higher ones to outgoing connections, so
that one of those may be in use again before its program listens."""
ATTEMPTS = 100


class InUseError(Exception):
    """The port of `name`, which is fixed, is in use."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(f"port {port} of the {name} is in use")
        self.name, self.port = name, port


def choose(
    fixed: Mapping[str, int] | None = None,
    before: Mapping[str, int] | None = None,
    *,
    any_free: bool = False,
) -> dict[str, int]:
    """A free port for each program of the stack.

    `fixed` ones are taken as they are. Each other program gets the usual one unless `any_free` is
    set, else keeps the port that it had `before`, else gets any, whichever is free first. Raises
    InUseError when a fixed one is in use.
    """
    fixed, before = fixed or {}, before or {}
    others = _others()
    chosen: dict[str, int] = {}
    for name, usual in {**USUAL, **fixed}.items():
        kept = {before[name]} - set(chosen.values()) if name in before else ()
        # once the program that had a usual port has ended, a bookmark of it is right again
        candidates = [*([] if any_free else [usual]), *kept, *others]
        try:
            chosen[name] = _first_free([usual] if name in fixed else candidates)
        except OSError as error:
            raise InUseError(name, usual) from error
        others = [other for other in others if other not in chosen.values()]
    return chosen


def moved(chosen: Mapping[str, int]) -> list[str]:
    """Returns `10977 (exporter) is in use: 23456 instead` for each usual port that is taken."""
    found = []
    for name, port in chosen.items():
        usual = USUAL[name]
        if port != usual and usual not in chosen.values() and not _is_free(usual):
            found.append(f"{usual} ({name}) is in use: {port} instead")
    return found


def forwarding(chosen: Mapping[str, int]) -> str:
    """Returns the command that shows both pages on another computer, at the same ports."""
    forwarded = (f"-L {port}:{LOOPBACK}:{port}" for port in map(chosen.get, PAGES))
    return f"ssh {' '.join(forwarded)} HOST"


def read(folder: Path) -> dict[str, int]:
    """Returns the ports of the stack that was started last in `folder`; empty if there was none."""
    try:
        content = json.loads((folder / FILE).read_bytes())
        found = {name: int(content[name]) for name in USUAL}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return found if all(0 < port < 1 << 16 for port in found.values()) else {}


def free_port() -> int:
    """Returns a port of loopback that nothing uses."""
    return _first_free(_others())


def _others() -> list[int]:
    return random.sample(OTHERS, ATTEMPTS)


def _first_free(candidates: Iterable[int]) -> int:
    """Raises OSError, the last one, if all are in use."""
    problem = OSError("no port to choose from")
    for port in candidates:
        try:
            _bind(port)
        except OSError as error:
            problem = error
        else:
            return port
    raise problem


def _is_free(port: int) -> bool:
    with suppress(OSError):
        _bind(port)
        return True
    return False


def _bind(port: int) -> None:
    """Raises OSError if the port is in use."""
    with socket.socket() as taken:
        # As servers do: a port that only has old connections closing on it is free.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((LOOPBACK, port))
