"""A trainer that dies in a shell which stays open, through the whole remediator."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from tests.remediator.api.test_webhook import come, post, running
from tests.remediator.live_host import Box
from tests.remediator.process_yard import alive
from tests.remediator.samples import delivery

HEALS = {"condition": "missing", "verify": {"timeout": "20s", "stable_for": "0s"}}


@pytest.fixture
def shells() -> Iterator[list[psutil.Process]]:
    """The shells of a test; at its end, what is below them ends with them."""
    shells: list[psutil.Process] = []
    below: list[psutil.Process] = []
    yield shells
    for shell in shells:
        with suppress(psutil.NoSuchProcess):
            shell.suspend()  # it does not go on with its next command
            below += [shell, *shell.children(recursive=True)]
    for one in below:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def is_sleeping(shell: psutil.Process) -> bool:
    """Whether all that is left to the shell is its last command."""
    return [one.name() for one in shell.children()] == ["sleep"]


async def test_it_starts_what_died_in_a_shell_and_ends_no_shell_but_its_own(
    box: Box, shells: list[psutil.Process]
) -> None:
    box.command = ["bash", "-c", f"{shlex.join(box.command)}; sleep 600; :"]
    process = {"start": box.command, "grace": "2s"}
    target = {"run": "demo", "worker": "rollout-0", "cooldown": 0, "process": process}
    box.configure(targets=[target], playbooks={"start_missing_worker": HEALS})
    by_hand = psutil.Process(box.start_worker().pid)
    shells.append(by_hand)
    (first,) = box.workers()
    os.kill(first.pid, signal.SIGKILL)
    await come(lambda: is_sleeping(by_hand))
    assert box.workers() == []

    async with running(box, engine=True) as (client, _):
        gone = box.alert(alertname="TrainingWorkerGone", remediation="start_missing_worker")
        assert (await post(client, delivery(gone))).status == 200
        await come(lambda: "healed" in box.journaled())
        assert box.journaled() == ["alert", "intent", "start", "done", "healed"]
        (second,) = box.workers()
        own = psutil.Process(psutil.Process(second.pid).ppid())
        shells.append(own)
        assert own.cmdline() == by_hand.cmdline()
        assert is_sleeping(by_hand)

        # the alert still fires; a shell that it has started itself makes room for the next one
        below = {own.pid, second.pid}
        os.kill(second.pid, signal.SIGKILL)
        await come(lambda: box.journaled().count("healed") == 2)
        assert box.journaled()[5:] == ["intent", "stop", "start", "done", "healed"]
        (third,) = box.workers()
        shells.append(psutil.Process(psutil.Process(third.pid).ppid()))
        assert not any(map(alive, below))
        assert is_sleeping(by_hand)
