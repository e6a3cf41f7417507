"""Fixtures that several areas of the remediator's tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock, InlineExecutor
from tests.remediator.live_host import Box
from tests.remediator.process_yard import Yard
from tests.remediator.stage import Scene, Stage, going_on

from trainwarden_remediator.journal.journal import Journal


@pytest.fixture
def stage(tmp_path: Path, journal: Journal, clock: FakeClock) -> Stage:
    @asynccontextmanager
    async def begin(*, before: Callable[[Scene], None] | None = None, **changes: Any) -> Any:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        scene = Scene(tmp_path, journal, clock, **changes)
        if before:
            before(scene)
        async with going_on(scene.engine.run()):
            await clock.settle()
            yield scene

    return begin


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def journal(tmp_path: Path, clock: FakeClock) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    yield journal
    journal.close()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    yard = Yard(tmp_path)
    yield yard
    yard.close()
