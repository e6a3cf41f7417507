"""A remediator to be treated badly."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.live_host import Box


@pytest.fixture
def program() -> Iterator[Program]:
    # not tmp_path: other runs of pytest may clear it meanwhile
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder))
        program = Program(box)
        yield program
        program.close()
        box.close()
