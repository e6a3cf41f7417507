"""Kills the real program again and again, and asks the worker itself what was done to it."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.remediator.engine.test_crash_recovery import Program
from tests.remediator.forked_program import ForkedProgram
from tests.remediator.live_host import Box
from tests.remediator.samples import delivery
from tests.waiting import until

DIARY = """
import os, signal, sys, time

def write(what):
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, f"{what} {os.getpid()}\\n".encode())
    os.close(out)

def end(*_):
    write("ended")
    os._exit(0)

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, lambda *_: write("asked"))
write("started")
print("up", flush=True)
time.sleep(600)
"""
"""A worker that writes down when it starts, and when it is asked to save or to end."""

AT_COMMIT = """
import contextlib
from trainwarden_remediator.journal.database import JournalFile

real, count = JournalFile.transaction, []

@contextlib.contextmanager
def counted(self):
    # only transactions after an alert was received
    with real(self) as db:
        yield db
        received = db.execute("SELECT count(*) FROM incident").fetchone()[0]
        if received:
            count.append(1)
            if len(count) == {number} and not {after}:
                die()
    if len(count) == {number} and {after}:
        die()

JournalFile.transaction = counted
"""
"""Dies just before, or just after, a transaction of that number is on the disk."""


class Victim(Program):
    """A program whose worker keeps a diary; where it `saves`, it is asked to before it ends."""

    def __init__(self, box: Box, *, saves: bool = False) -> None:
        super().__init__(box)
        self._saves = saves
        self._about_to_ask = False
        self.diary = box.folder / "diary"
        box.command[:] = [sys.executable, "-c", DIARY, box.mark, str(self.diary)]
        process = {"start": box.command, "grace": "5s"}
        budget = {"cooldown": 0, "attempts": 50, "attempts_window": "6h"}
        target = {"run": "demo", "worker": "rollout-0", "process": process, **budget}
        if saves:
            target["save"] = {"signal": "SIGUSR1", "timeout": "1s"}
        # one incident after the other would open it
        box.configure(targets=[target], breaker={"actions": 1000})
        box.start_worker()
        self.alert = box.alert()

    def hear(self) -> None:
        """Alertmanager sends the alert; again, if nobody took it."""
        self.ask("/webhook", delivery(self.alert))

    def kill(self, child: ForkedProgram) -> None:
        child.kill()
        child.wait(60)
        self._about_to_ask |= self.box.journaled()[-1:] == ["save_requested"]

    def come_to_an_end(self) -> None:
        """Run it undisturbed until the worker is healed."""
        child = self.start()
        self.hear()
        until(lambda: "healed" in self.box.journaled(), 60)
        child.terminate()
        assert child.wait(60) == 0

    def check(self) -> None:
        """Whether exactly one restart was done, whatever the journal says.

        And whether it was asked once where it saves; or not, if killed when about to ask.
        """
        written = [line.split()[0] for line in self.diary.read_text().splitlines()]
        journaled = self.box.journaled()
        assert [word for word in written if word != "asked"] == ["started", "ended", "started"], (
            written,
            journaled,
        )
        assert journaled.count("save_requested") == self._saves, journaled
        least = 0 if self._about_to_ask else self._saves
        assert least <= written.count("asked") <= self._saves, (written, journaled)
        assert journaled.count("healed") == 1
        assert len(self.box.workers()) == 1
        undone = [e for e in self.box.events() if e.facts.get("outcome") == "not_healed"]
        assert undone == []


@contextmanager
def victim(*, saves: bool = False) -> Iterator[Victim]:
    # of a short name of its own: a trial leaves nothing to the next one
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder))
        program = Victim(box, saves=saves)
        try:
            yield program
        finally:
            program.close()
            box.close()


def killed_at_random(chance: random.Random, kills: int, *, saves: bool = False) -> None:
    """One alert, and a program killed so many times at moments that nobody has chosen."""
    with victim(saves=saves) as program:
        for _ in range(kills):
            child = program.start()
            program.hear()
            # most of what happens happens early
            time.sleep(chance.choice((0.1, 0.4, 1.5)) * chance.random())
            program.kill(child)
        program.come_to_an_end()
        program.check()


def killed_at_commit(number: int, *, after: bool, saves: bool = False) -> bool:
    """Killed before or after that transaction; False where there are not so many."""
    with victim(saves=saves) as program:
        child = program.start(AT_COMMIT.format(number=number, after=after))
        program.hear()
        until(lambda: child.poll() is not None or "healed" in program.box.journaled(), 60)
        reached = child.poll() is not None
        program.kill(child)
        program.come_to_an_end()
        program.check()
        return reached
