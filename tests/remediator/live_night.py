"""A host whose inference server is dead and whose trainer waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import yaml
from tests.remediator.live_host import WORKER, Box
from tests.remediator.samples import GIB, TRAINER

from trainwarden_exporter.processes.matching import Matcher, Selector
from trainwarden_exporter.processes.procfs import Identity, read_environment
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_remediator.actions.process import ACTION_VARIABLE


class NightBox(Box):
    """A box on which an inference server is dead, and the trainer waits for it.

    As the exporter shows it, whatever runs of the server serves, and a trainer makes steps once the
    remediator has started it.
    """

    def __init__(self, folder: Path) -> None:
        self.trainer_mark = f"box-{uuid.uuid4().hex}"
        self.trainer_command = [sys.executable, "-c", WORKER, self.trainer_mark]
        self._trainers = Matcher({TRAINER: Selector.model_validate({"command": self.trainer_mark})})
        super().__init__(folder)
        workers = [
            {"name": name, "role": role, "match": {"command": mark}}
            for name, role, mark in (
                ("rollout-0", "inference", self.mark),
                ("trainer", "trainer", self.trainer_mark),
            )
        ]
        runs = [{"name": "demo", "workers": workers}]
        (folder / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))
        self.reload_exporter()

    def configure(self, **changes: Any) -> None:
        targets = [
            {
                "run": "demo",
                "worker": name,
                "cooldown": 0,
                "attempts": 9,
                "process": {"start": command, "grace": "2s"},
            }
            for name, command in (("rollout-0", self.command), ("trainer", self.trainer_command))
        ]
        rungs = [
            {"verify": {"serves": True, "timeout": "20s", "stable_for": "0s"}},
            {
                "target": "trainer",
                "when": "no_progress",
                "after": "1s",
                "verify": {"progress": True, "timeout": "20s", "stable_for": "0s"},
            },
        ]
        playbooks = {"restart_inference": {"rungs": rungs}}
        super().configure(**{"targets": targets, "playbooks": playbooks, **changes})

    def start_trainer(self) -> subprocess.Popen[str]:
        child = subprocess.Popen(self.trainer_command, stdout=subprocess.PIPE, text=True)
        self._children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    def trainers(self) -> list[Identity]:
        with self._turn:
            roots = self._trainers.find()[TRAINER].roots
        return [root.identity for root in roots if root.alive]

    def alert(self, *, ago: float = 0, **labels: str) -> dict[str, Any]:
        return super().alert(ago=ago, remediation="restart_inference", **labels)

    def close(self) -> None:
        for identity in self.trainers():
            os.kill(identity.pid, signal.SIGKILL)
        super().close()

    def _page(self) -> str:
        now, trainers = time.time(), self.trainers()
        serves = bool(self.workers())
        which = 'run="demo",server="s",engine="sglang"'
        resumed = [one for one in trainers if ACTION_VARIABLE in (read_environment(one.pid) or {})]
        step_at = start_timestamp(resumed[0]) + 0.2 if resumed else now - 3600
        shown = {
            f'inference_info{{{which},worker="rollout-0",role="inference"}}': 1,
            f"inference_up{{{which}}}": int(serves),
            f'inference_reason{{{which},reason="refused"}}': int(not serves),
            f"inference_deep_probe_success{{{which}}}": int(serves),
            f"inference_deep_probe_timestamp_seconds{{{which}}}": now,
            'training_step{run="demo"}': 1871 if resumed else 1874,
            'training_last_step_timestamp_seconds{run="demo"}': step_at,
            'training_progress_timestamp_seconds{run="demo"}': step_at,
            'training_stall_limit_seconds{run="demo"}': 1,
            'training_resume_step{run="demo"}': 1870,
            'training_first_step_after_resume{run="demo"}': 1871,
            'checkpoint_complete{run="demo",checkpoint="default"}': 1,
            'checkpoint_step{run="demo",checkpoint="default"}': 1870,
            'checkpoint_recovery_matches{run="demo",checkpoint="default"}': 1,
        }
        trainer = 'run="demo",worker="trainer",role="trainer"'
        shown |= {
            f"worker_processes{{{trainer}}}": len(trainers),
            f"worker_expected_processes{{{trainer}}}": 1,
            f"worker_memory_bytes{{{trainer}}}": GIB,
        }
        if trainers:
            start = min(map(start_timestamp, trainers))
            shown[f"worker_start_timestamp_seconds{{{trainer}}}"] = start
        return super()._page() + "".join(f"trainwarden_{name} {n}\n" for name, n in shown.items())
