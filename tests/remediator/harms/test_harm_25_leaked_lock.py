"""Harm 25: a lock that its holder has left behind stops all healing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import LATER, NOW, ROLLOUT, TRAINER, make_alert, make_setup
from tests.remediator.stage import Scene

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal

HOLDER = """
import pathlib, sys, time
from trainwarden_remediator.journal.journal import Journal
journal = Journal(pathlib.Path(sys.argv[1]), clock=time.time)
with journal._file.transaction() as db:
    db.execute("INSERT INTO timestamp VALUES ('half', 1)")
    print("holds it", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_holder_that_was_killed_is_nobodys(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as blocking_alert:
        assert blocking_alert.stdout is not None
        assert blocking_alert.stdout.readline() == "holds it\n"
        with pytest.raises(JournalError, match="another remediator is using it"):
            Journal(path, clock=clock)
        blocking_alert.kill()
    journal = Journal(path, clock=clock)
    assert journal.timestamps() == {}
    journal.record_alerts([make_alert()])
    journal.close()


async def test_an_action_on_a_target_that_was_deleted_keeps_nobody_else_waiting(
    stage: Any,
) -> None:
    def leave(scene: Scene) -> None:
        scene.journal.record_alerts([make_alert(starts_at=NOW - 20)])
        action = scene.journal.record_intent(1, ROLLOUT, "restart", ())
        scene.journal.record_step(action, "stop", processes=[])
        scene.context.setup = make_setup(scene.folder, "demo/trainer")

    async with stage(before=leave) as scene:
        assert scene.journal.oldest_action() is None
        scene.hear(worker="trainer", fingerprint=LATER, starts_at=NOW - 20)
        await scene.clock.advance(5)
        assert len(scene.actions[TRAINER].restarts) == 1
