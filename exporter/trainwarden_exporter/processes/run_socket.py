"""Client of the socket at which `trainwarden run` answers. Imports the standard library alone."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MAX_ANSWER = 1 << 20
_CREDENTIALS = struct.Struct("3i")


def ask_run(
    path: Path,
    *,
    owner: int,
    timeout: float,
    on_progress: Callable[[Mapping[str, Any]], None] | None = None,
    **request: object,
) -> dict[str, Any]:
    """Sends a request and returns the answer; `on_progress` gets what happens before it.

    Raises OSError if the account (uid) `owner` does not listen at `path` or does not answer within
    `timeout` seconds, ValueError if the answer is malformed.
    """
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:  # the path of a socket is limited to 107 bytes; through the folder any is short
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if (uid := _CREDENTIALS.unpack(raw)[1]) != owner:
            raise PermissionError(f"account {uid} listens at {path}, not {owner}")
        follows = {} if on_progress is None else {"follow": True}
        connection.sendall(json.dumps({**request, **follows}).encode() + b"\n")
        received = bytearray()
        while True:
            answer = _parse(path, _read_line(connection, received, deadline))
            if on_progress is None or "progress" not in answer:
                return answer
            on_progress(answer)


def _parse(path: Path, line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply") from None
    if not isinstance(answer, dict):
        raise ValueError(f"{path}: not an answer of `trainwarden run`")  # noqa: TRY004 - the input
    return answer


def _read_line(connection: socket.socket, received: bytearray, deadline: float) -> bytes:
    """Returns what arrives up to the end of a line, cut to the limit; `received` has the rest.

    Raises OSError.
    """
    while len(received) < MAX_ANSWER and b"\n" not in received:
        # the timeout of a socket is that of one call: an answer in drops would never end
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        data = connection.recv(65536)
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
        received += data
        if not data:
            break
    line, _, rest = bytes(received[:MAX_ANSWER]).partition(b"\n")
    received[:] = rest
    return line
