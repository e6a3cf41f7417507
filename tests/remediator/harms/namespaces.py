"""Runs a program in a pid namespace of its own, where its pids are small and known."""

from __future__ import annotations

import subprocess
import sys

import pytest

UNSHARE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def run_apart(program: str, *arguments: str) -> str:
    """What `program` prints there; the test is skipped where the kernel does not allow it."""
    allowed = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode != 0:
        pytest.skip(f"no pid namespace of its own here: {allowed.stderr.strip()}")
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
