"""Processes and files of other accounts on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import until

STRANGER = 61234
"""The uid of an account that owns nothing on the host."""
OPERATOR = 61235
"""The uid of the account of a run."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to start processes of other accounts"
)


@contextmanager
def started(
    arguments: Sequence[str], uid: int = STRANGER, *, program: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a command as `uid`; `program` runs under the name `arguments[0]`."""
    child = subprocess.Popen(
        arguments,
        executable=program,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Before its exec the child shows the command line of the tests.
        line = b"".join(part.encode() + b"\0" for part in arguments)
        until(lambda: Path(f"/proc/{child.pid}/cmdline").read_bytes() == line)
        yield child
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def open_folder(owner: int = 0) -> Iterator[Path]:
    """A folder of `owner` that all accounts can enter; pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory(prefix="trainwarden-hostile-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        os.chown(folder, owner, owner)
        yield folder
