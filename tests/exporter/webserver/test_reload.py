"""Files are read again one reload at a time, and the result is remembered."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from trainwarden_exporter.exceptions import ConfigError, Problem
from trainwarden_exporter.webserver.service import Reloader

MAIN = Problem(Path("main.yml"), 3, "a", "wrong")
WEB = Problem(Path("web.yml"), None, "", "gone")


class FakeFile:
    """A step that fails while it has problems, and counts how often it is taken."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        self.reads = 0

    async def read(self) -> None:
        self.reads += 1
        if self.problems:
            raise ConfigError(*self.problems)


class FakeClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_the_start_counts_as_the_first_success() -> None:
    reloader = Reloader(FakeFile().read, now=FakeClock())
    assert reloader.successful
    assert reloader.success_timestamp == 1000


async def test_a_failure_keeps_the_moment_of_the_last_success() -> None:
    clock, file = FakeClock(), FakeFile(MAIN)
    reloader = Reloader(file.read, now=clock)
    clock.now = 2000
    with pytest.raises(ConfigError):
        await reloader.reload()
    assert not reloader.successful
    assert reloader.problems == (MAIN,)
    assert reloader.success_timestamp == 1000

    file.problems = ()
    await reloader.reload()
    assert reloader.successful
    assert reloader.success_timestamp == 2000


async def test_every_step_is_taken_and_every_problem_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    main, web = FakeFile(MAIN), FakeFile(WEB)
    reloader = Reloader(main.read)
    reloader.add_step(web.read)

    with pytest.raises(ConfigError) as caught:
        await reloader.reload()

    assert caught.value.problems == (MAIN, WEB)
    assert [vars(record)["problem"] for record in caplog.records] == [
        "main.yml:3: a: wrong",
        "web.yml: gone",
    ]


async def test_another_files_problem_is_not_the_configurations() -> None:
    reloader = Reloader(FakeFile().read, now=FakeClock())
    reloader.add_step(FakeFile(WEB).read)

    with pytest.raises(ConfigError):
        await reloader.reload()

    assert reloader.successful


async def test_reloads_do_not_overlap(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trainwarden_exporter")
    running = most = 0

    async def read() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    reloader = Reloader(read)
    await asyncio.gather(*(reloader.reload() for _ in range(5)))

    assert most == 1
    assert caplog.messages == ["reloaded"] * 5
