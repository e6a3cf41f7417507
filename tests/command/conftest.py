"""What the tests of the command share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from running_runs import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path / "state")
    yield found
    found.close()
