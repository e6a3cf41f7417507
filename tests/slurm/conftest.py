"""A real Slurm on this machine: a controller, a node, and a remediator's target for each job."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

import archive
import stack
from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, Selector, WorkerKey
from trainwarden_exporter.run_config import RunConfig
from trainwarden_remediator.actions.slurm import SlurmAction
from trainwarden_remediator.config.schema import Config, Setup
from trainwarden_remediator.config.targets import Target

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "base-passwd")
KEY = WorkerKey("demo", "rollout-0")
WORKER = "import time; time.sleep(600)"

CONF = """\
ClusterName=box
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=100 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """One controller and one node, that run in a folder and are gone when it is closed."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self._root = root
        libraries = next(root.glob("usr/lib/*/slurm-wlm"))
        self.programs = folder / "bin"
        self.conf = folder / "slurm.conf"
        for name in ("state", "spool", "bin"):
            (folder / name).mkdir()
        ports = [_free_port() for _ in range(2)]
        values = {"host": _host(), "ports": ports, "plugins": libraries, "folder": folder}
        self.conf.write_text(CONF.format(**values))
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self._paths = f"{libraries.parent}:{libraries}"
        # As installed programs would: they find their libraries by themselves.
        for name in ("squeue", "scontrol", "scancel", "sbatch", "sinfo", "srun"):
            line = f"exec env LD_LIBRARY_PATH={self._paths} {root}/usr/bin/{name}"
            (self.programs / name).write_text(f'#!/bin/sh\n{line} "$@"\n')
            (self.programs / name).chmod(0o755)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        step = self._root / "usr/sbin/slurmstepd-wlm"
        self._run("slurmctld-wlm", "-D", "-f", self.conf)
        self._run("slurmd-wlm", "-D", "-N", _host(), "-d", step, "-f", self.conf)
        until(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T", check=False))

    def _run(self, name: str, *arguments: str | Path) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                [self._root / "usr/sbin" / name, *arguments],
                env={**self.environment, "LD_LIBRARY_PATH": self._paths},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._daemons.append(daemon)

    def ask(self, program: str, *arguments: str | Path, check: bool = True) -> str:
        """What a program of Slurm's prints."""
        return subprocess.run(
            [self.programs / program, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=check,
            timeout=60,
        ).stdout

    def close(self) -> None:
        if self._daemons:
            self.ask("scancel", "--user=root", check=False)
            until(lambda: not self.ask("squeue", "--noheader", check=False))
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(30)


class Job:
    """A worker that is a job, and what the remediator makes of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.mark = f"job-{uuid.uuid4().hex}"
        self.name = f"rollout-{self.mark[-8:]}"
        self._matcher = Matcher({KEY: Selector.model_validate({"command": self.mark})})

    def submit(self, *flags: str, script: str | None = None) -> str:
        """Submit it, by a script in which {worker} is its command; returns its id."""
        worker = shlex.join([sys.executable, "-c", WORKER, self.mark])
        script = (script or "exec {worker}").format(worker=worker)
        file = self.cluster.folder / f"{self.mark}.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        common = ("--parsable", "--requeue", f"--job-name={self.name}", "--output=/dev/null")
        return self.cluster.ask("sbatch", *common, *flags, file).strip()

    def pids(self) -> list[int]:
        return [root.pid for root in self._matcher.find()[KEY].roots if root.alive]

    def state(self, number: str) -> str:
        """Its state and how often it was restarted."""
        shown = self.cluster.ask(
            "squeue", "--noheader", "--array", "--states=all", f"--jobs={number}",
            "--Format=State:|,RestartCnt:|",
        )  # fmt: skip
        return shown.strip()

    def action(self, **changes: Any) -> SlurmAction:
        slurm = {"programs": self.cluster.programs, "conf": self.cluster.conf, **changes}
        target = Target.model_validate({"run": "demo", "worker": "rollout-0", "slurm": slurm})
        match = Selector.model_validate({"command": self.mark})
        run = RunConfig(name="demo", workers=(WorkerConfig(name="rollout-0", match=match),))
        setup = Setup(Config(insecure=True, targets=(target,)), ExporterConfig(runs=(run,)))
        assert target.slurm is not None
        return SlurmAction(target, target.slurm, setup)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _host() -> str:
    return socket.gethostname().partition(".")[0]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = archive.fetch_root(stack.stack_folder() / "slurm", PACKAGES)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"), root)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def job(cluster: Cluster) -> Iterator[Job]:
    job = Job(cluster)
    yield job
    cluster.ask("scancel", f"--name={job.name}", check=False)
    until(lambda: not cluster.ask("squeue", "--noheader", f"--name={job.name}"))
