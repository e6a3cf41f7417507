"""Harm 13: the same alert delivered many times, by peers, by retries, and after a restart."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery

from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.app import Remediator


def shifted(alert: dict[str, Any], seconds: int) -> dict[str, Any]:
    """The alert, as if it had begun that much later."""
    starts = datetime.fromisoformat(alert["startsAt"][:26]).replace(tzinfo=UTC)
    moved = starts + timedelta(seconds=seconds)
    return {**alert, "startsAt": f"{moved:%Y-%m-%dT%H:%M:%S.%f}Z"}


def record_decisions(remediator: Remediator) -> bool:
    return all(one.last_decision for one in remediator.journal.open_incidents())


async def test_fifty_times_from_two_peers_with_other_starts_and_a_restart_between_is_one_action(
    box: Box,
) -> None:
    worker = box.start_worker()
    alert = box.alert()
    bodies = [
        delivery(shifted(alert, number % 3), externalURL=f"http://peer-{number % 2}")
        for number in range(50)
    ]
    children: list[subprocess.Popen[bytes]] = []
    for _ in range(2):
        async with running(box, engine=True) as (client, remediator):
            answers = await asyncio.gather(*(post(client, body) for body in bodies))
            assert {answer.status for answer in answers} == {200}
            await come(lambda: "healed" in box.journaled())
            (started,) = box.workers()
            # what waits beside it is decided, too
            await come(partial(record_decisions, remediator))
            assert box.workers() == [started]
            for action in remediator.control_loop._executor._actions.values():
                assert isinstance(action, ProcessAction)
                # it lives on, as after a kill of the program
                children += action._children
                action._children.clear()
    assert worker.wait(60) == -15
    for child in children:
        child.kill()
        child.wait(60)
    assert box.journaled().count("intent") == 1
