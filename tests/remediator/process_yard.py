"""Real processes to be terminated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.remediator.fakes import NoRecords
from tests.remediator.samples import ROLLOUT

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.gpu.config import GpuConfig
from trainwarden_exporter.gpu.snapshot import TakeGpuSnapshot, take_gpu_snapshot
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, Selector, WorkerKey
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.actions.termination import terminate
from trainwarden_remediator.config.restart_methods.process import ProcessTarget
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
TERM_EXITS = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); {SLEEP}"
TERM_IGNORED = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"
PARENT = """
import subprocess, sys, time
command = [sys.executable, "-c", sys.argv[2]]
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=sys.argv[3] == "y")
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def stop(tree: ProcessTree, *, grace: float) -> tuple[int, ...]:
    roots, members = ([process.identity for process in part] for part in (tree.roots, tree.members))
    return terminate(roots, members, grace=grace)


class Yard:
    """Starts processes that carry a mark of this test in their command line, and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"yard-{uuid.uuid4().hex}"
        self._children: list[subprocess.Popen[str]] = []
        self._strangers: list[int] = []
        self.tracker = DescendantTracker(NoRecords())
        self.action = self.acting()

    def run(
        self, program: str, *arguments: str, mark: str | None = None, folder: Path | None = None
    ) -> subprocess.Popen[str]:
        """A python that runs `program`, once it has printed its first line."""
        command = (sys.executable, "-c", program, mark or self.mark, *arguments)
        return self.run_command(*command, folder=folder)[0]

    def run_command(
        self, *command: str | Path, folder: Path | None = None
    ) -> tuple[subprocess.Popen[str], str]:
        """A process in `folder` (default: that of the target), and the first line it prints."""
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=folder or self.folder
        )
        self._children.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline()

    def run_tree(
        self, below: str = SLEEP, *, own_session: bool = False
    ) -> tuple[subprocess.Popen[str], int]:
        """A parent, and the pid of the child it has started."""
        session = "y" if own_session else "n"
        parent, line = self.run_command(*(sys.executable, "-c", PARENT, self.mark, below, session))
        self.care_for(int(line))
        return parent, int(line)

    def care_for(self, pid: int) -> None:
        """End a process that is no child of the test, too."""
        self._strangers.append(os.pidfd_open(pid))

    def target(self, **process: Any) -> Target:
        command = [sys.executable, "-c", SLEEP, self.mark]
        content = {"start": command, "grace": 5, "cwd": self.folder, **process}
        target = {"run": "demo", "worker": "rollout-0", "process": content}
        return Target.model_validate(target, context={"folder": self.folder})

    def process(self, target: Target) -> ProcessTarget:
        assert target.process is not None
        return target.process

    def acting(
        self,
        *,
        also: Mapping[WorkerKey, Selector] | None = None,
        gpu_reader: TakeGpuSnapshot = take_gpu_snapshot,
        max_save_delay: float = 600,
        checkpoints: Sequence[Mapping[str, Any]] = (),
        **changes: Any,
    ) -> Any:
        selectors = {ROLLOUT: Selector.model_validate({"command": self.mark}), **(also or {})}
        workers = [WorkerConfig(name=key.worker, match=match) for key, match in selectors.items()]
        run = RunConfig.model_validate(
            {
                "name": "demo",
                "workers": workers,
                **({"path": self.folder, "checkpoints": checkpoints} if checkpoints else {}),
            }
        )
        gpu = GpuConfig(device_root=self.folder / "dev")
        watched = ExporterConfig(gpu=gpu, runs=(run,))
        target = self.target(**changes).model_copy(update={"max_save_delay": max_save_delay})
        self.setup = Setup(Config(insecure=True, targets=(target,)), watched)
        self.matcher = Matcher(selectors)
        self.action = ProcessAction(
            target, self.process(target), self.setup, self.tracker, gpu_reader=gpu_reader
        )
        return self.action

    def observe(self) -> None:
        """Let it be remembered what stands below which root."""
        self.tracker.observe(self.matcher, [ROLLOUT])

    def tree(self) -> ProcessTree:
        tree: ProcessTree = self.action._find_processes().tree
        return tree

    def close(self) -> None:
        for child in (*self._children, *self.action._children):
            child.kill()
            child.wait(60)
            if child.stdout:
                child.stdout.close()
        for pidfd in self._strangers:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.alive


class Steps(list[tuple[str, dict[str, Any]]]):
    """What was announced."""

    def __call__(self, step: str, **facts: Any) -> None:
        self.append((step, facts))
