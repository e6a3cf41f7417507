"""Restarts of a real worker beside decoys: processes of somebody else that match it too.

A decoy may also be a shell that runs such a process, and stays open after it.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.remediator.fakes import NoRecords
from tests.remediator.samples import GIB, ROLLOUT, make_worker

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.matching import Matcher, oldest_root_start
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target
from trainwarden_remediator.exceptions import ProcessesDifferError
from trainwarden_remediator.observation.model import ExporterState


@dataclass
class Tally:
    """What became of all attempts."""

    restarts: int = 0
    refused: int = 0
    decoys: int = 0
    wrongly_ended: list[int] = field(default_factory=list)


class Decoys:
    """Starts and ends decoys at random moments, in a thread, until closed."""

    def __init__(
        self, command: list[str], chance: random.Random, tally: Tally, *, shells: bool
    ) -> None:
        self._command, self._chance, self._tally = command, chance, tally
        self._shells = shells
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(self._chance.expovariate(1 / 0.03)):
            command = [*self._command, "1"]
            if self._shells:  # its copy ends, and the shell waits
                seconds = self._chance.expovariate(1 / 0.02)
                text = f"{self._command[0]} {seconds} {self._command[1]}e-9; read _; :"
                command = ["bash", "-c", text]
            decoy = subprocess.Popen(command, stdin=subprocess.PIPE)
            self._tally.decoys += 1
            self._closing.wait(self._chance.expovariate(1 / 0.02))
            if decoy.poll() is not None:  # nobody but this thread should end it
                self._tally.wrongly_ended.append(decoy.pid)
            decoy.kill()
            decoy.communicate()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()


class Bench:
    """A worker that an alert is always about, and what the exporter shows of it."""

    def __init__(self, folder: Path) -> None:
        program = folder / "trainer"
        program.symlink_to(shutil.which("sleep") or "/bin/sleep")
        self.command = [str(program), f"100000.{uuid.uuid4().int % 10**12}"]
        match = {"command": self.command[1]}
        run = {"name": "demo", "workers": [{"name": "rollout-0", "match": match}]}
        exporter = ExporterConfig(runs=(RunConfig.model_validate(run),))
        process = {"start": self.command, "grace": 5, "cwd": folder}
        target = Target.model_validate(
            {"run": "demo", "worker": "rollout-0", "process": process}, context={"folder": folder}
        )
        assert target.process is not None
        setup = Setup(Config(insecure=True, targets=(target,)), exporter)
        tracker = DescendantTracker(NoRecords())
        self.action = ProcessAction(target, target.process, setup, tracker)
        self._matcher = Matcher(setup.selectors)
        self.own: int | None = None

    def scrape(self) -> ExporterState | None:
        """What the exporter shows while the alert stands; None once it does not any more.

        It is about the own process (over its limit), or about a worker without a process.
        """
        tree = self._matcher.find()[ROLLOUT]
        pids = [root.pid for root in tree.roots if root.alive]
        if pids and self.own not in pids:
            return None
        worker = make_worker(processes=len(pids), started_at=oldest_root_start(tree))
        return ExporterState({ROLLOUT: worker}, GIB, 0)

    def attempt(self, chance: random.Random) -> bool:
        """Scrape, decision and act, with time between them. Whether the worker was restarted."""
        shown = self.scrape()
        time.sleep(chance.uniform(0, 0.02))
        if shown is None:
            return False
        intended = self.action.find_instances()
        if self.action.proof_problem(shown):
            return False
        time.sleep(chance.uniform(0, 0.02))
        try:
            facts = self.action.perform("7", lambda *_, **__: None, intended=intended)
        except ProcessesDifferError:
            return False
        self.action.reap_children()
        if facts["started_by"] != "trainwarden":
            return False
        (self.own,) = facts["processes"]
        return True

    def close(self) -> None:
        for child in self.action._children:
            child.kill()
            child.wait()


def restart_beside_decoys(
    folder: Path, restarts: int, chance: random.Random, *, shells: bool = False
) -> Tally:
    """Restarts a worker so many times while decoys start and end."""
    tally, bench = Tally(), Bench(folder)
    seed = random.Random(chance.random())  # noqa: S311 - no secret
    decoys = Decoys(bench.command, seed, tally, shells=shells)
    try:
        while tally.restarts < restarts and not tally.wrongly_ended:
            if bench.attempt(chance):
                tally.restarts += 1
            else:
                tally.refused += 1
    finally:
        decoys.close()
        bench.close()
    return tally
