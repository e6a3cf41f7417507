"""A hundred thousand odd payloads, posted to the real program: `pytest tests/heavy`.

PAYLOADS says how many, SEED which ones.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import sys
from pathlib import Path
from statistics import median

import aiohttp
from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.odd_payloads import odd_payload
from tests.remediator.samples import TOKEN
from tests.waiting import until

PAYLOADS = int(os.environ.get("PAYLOADS", "100000"))
SEED = int(os.environ.get("SEED", "4"))
AT_ONCE = 8
LOOKS = 100
"""How often, on the way, it is looked how much memory it takes."""
MIB = 1 << 20
LASTING = "import time; print('up', flush=True); time.sleep(86_400)"


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_nothing_that_is_posted_breaks_it_or_makes_it_act_or_grow(program: Program) -> None:
    program.box.command[2] = LASTING
    worker = program.box.start_worker()
    child = program.start("", "--log.level=error")
    chance = random.Random(SEED)  # noqa: S311 - the same payloads each time
    answers: dict[int, int] = {}
    left, sizes = PAYLOADS, []
    url = f"http://127.0.0.1:{program.port}/webhook"
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async with aiohttp.ClientSession(headers=headers) as session:

        async def post() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                if left % max(1, PAYLOADS // LOOKS) == 0:
                    sizes.append(resident(child.pid))
                async with session.post(url, data=io.BytesIO(odd_payload(chance))) as answer:
                    await answer.read()
                    answers[answer.status] = answers.get(answer.status, 0) + 1

        await asyncio.gather(*(post() for _ in range(AT_ONCE)))
    quarter = len(sizes) // 4
    # the first is for warming up
    before, after = median(sizes[quarter : 2 * quarter]), median(sizes[-quarter:])
    sys.stdout.write(
        f"answers: {answers}; {before / MIB:.1f} MiB resident in the second quarter,"
        f" {after / MIB:.1f} MiB in the last\n"
    )
    assert set(answers) == {200, 400}
    assert sum(answers.values()) == PAYLOADS
    assert child.poll() is None
    assert program.ask("/-/healthy") == 200
    until(lambda: program.ask("/metrics") == 200, 60)
    assert worker.poll() is None
    assert not {"intent", "stop", "start"} & set(program.box.journaled())
    assert after < 1.05 * before
