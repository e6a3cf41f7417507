"""A hundred thousand odd payloads, posted to the real program: `pytest tests/heavy`.

PAYLOADS says how many, SEED which ones.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.remediator.conftest import TOKEN, Box, until
from tests.remediator.odd_payloads import odd_payload
from tests.remediator.test_crash import Program

PAYLOADS = int(os.environ.get("PAYLOADS", "100000"))
SEED = int(os.environ.get("SEED", "4"))
AT_ONCE = 8
MIB = 1 << 20


@pytest.fixture
def program() -> Iterator[Program]:
    # not tmp_path: other runs of pytest may clear it meanwhile
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder))
        program = Program(box)
        yield program
        program.close()
        box.close()


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_nothing_that_is_posted_breaks_it_or_makes_it_act_or_grow(program: Program) -> None:
    worker = program.box.start_worker()
    child = program.start("", "--log.level=error")
    chance = random.Random(SEED)  # noqa: S311 - the same payloads each time
    answers: dict[int, int] = {}
    left, half = PAYLOADS, 0
    url = f"http://127.0.0.1:{program.port}/webhook"
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async with aiohttp.ClientSession(headers=headers) as session:

        async def post() -> None:
            nonlocal left, half
            while left > 0:
                left -= 1
                if left == PAYLOADS // 2:
                    half = resident(child.pid)
                async with session.post(url, data=io.BytesIO(odd_payload(chance))) as answer:
                    await answer.read()
                    answers[answer.status] = answers.get(answer.status, 0) + 1

        await asyncio.gather(*(post() for _ in range(AT_ONCE)))
    grown = resident(child.pid) - half
    sys.stdout.write(
        f"answers: {answers}; {half / MIB:.0f} MiB resident at half, {grown / MIB:+.0f} MiB after\n"
    )
    assert set(answers) == {200, 400}
    assert sum(answers.values()) == PAYLOADS
    assert child.poll() is None
    assert program.ask("/-/healthy") == 200
    until(lambda: program.ask("/metrics") == 200, 60)
    assert worker.poll() is None
    assert not {"intent", "stop", "start"} & set(program.box.told())
    # what is open is kept in the journal, and looked through in each turn
    assert grown < 150 * MIB
