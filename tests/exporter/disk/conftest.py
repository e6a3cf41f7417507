"""Mounts of their own for tests of disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Mount = Callable[..., None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts at a folder, with arguments as the command takes them, until the test is over."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mounted: list[Path] = []

    def mount(point: Path, *arguments: str) -> None:
        point.mkdir(exist_ok=True)
        command = ["mount", *arguments, str(point)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            pytest.skip(f"mounts are not allowed here: {result.stderr.strip()}")
        if point not in mounted:
            mounted.append(point)

    yield mount
    for point in reversed(mounted):
        subprocess.run(["umount", str(point)], check=True)
