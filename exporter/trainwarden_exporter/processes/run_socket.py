"""Client of the socket at which `trainwarden run` answers. Imports the standard library alone."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

MAX_ANSWER = 1 << 20
_CREDENTIALS = struct.Struct("3i")


def ask_run(path: Path, *, owner: int, timeout: float, **request: object) -> dict[str, Any]:
    """Sends a request and returns the answer.

    Raises OSError if the account (uid) `owner` does not listen at `path` or does not answer within
    `timeout` seconds, ValueError if the answer is malformed.
    """
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
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.readline(MAX_ANSWER))
    if not isinstance(answer, dict):
        raise ValueError(f"{path}: not an answer of `trainwarden run`")  # noqa: TRY004 - the input
    return answer
