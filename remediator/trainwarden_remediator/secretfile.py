"""Secrets that stand in a file of their own: read anew each time, and never shown."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trainwarden_remediator.exceptions import SecretError

LONGEST = 16 * 1024
"""Bytes; a secret is far shorter, and a file named by mistake is not."""


def read_secret(path: Path) -> str:
    """The one line in the file at `path`, without the space around it.

    Raises SecretError, whose message never repeats what stands there. A pipe that nobody writes to
    is not waited for.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - a Path cannot be opened with flags
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SecretError(f"{path}: not a regular file")
            content = file.read(LONGEST + 1)
    except OSError as error:
        raise SecretError(f"{path}: {error.strerror}") from error
    if not (text := content.strip()):
        raise SecretError(f"{path}: holds nothing")
    if len(content) > LONGEST or not text.isascii() or not text.decode("ascii").isprintable():
        raise SecretError(f"{path}: not one line of printable ASCII")
    return text.decode("ascii")
