"""A real Slurm asks preflight before and after each job, and takes nodes away only for cause."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.slurm.conftest import PACKAGES, Cluster
from tests.waiting import until

import archive
import stack

SLURM = stack.PROJECT / "deploy" / "slurm"
EXPORTER = Path(sys.executable).parent / "trainwarden-exporter"
PATIENCE = 3
SLEEPER = "import time; time.sleep(600)"
SECONDS = 120


class Node:
    """A cluster of one node, with the files of deploy/slurm, and what is left on it."""

    def __init__(self, cluster: Cluster, settings: str) -> None:
        self.cluster = cluster
        self.mark = f"left-{uuid.uuid4().hex}"
        self.config = cluster.folder / "exporter.yml"
        self.reported = cluster.folder / "reported.log"
        self.reported.touch()
        self._left: list[subprocess.Popen[bytes]] = []
        self.be_right()
        script = cluster.folder / "node.sh"
        script.write_text(
            "#!/bin/sh\n"
            f"export TRAINWARDEN_EXPORTER={EXPORTER} TRAINWARDEN_CONFIG={self.config}\n"
            f"export TRAINWARDEN_RETRY_FOR={PATIENCE}\n"
            f"exec {SLURM / 'node.sh'} 2>> {self.reported}\n"
        )
        script.chmod(0o755)
        more = re.sub(r"/etc/slurm/\S+", str(script), settings)
        cluster.conf.write_text(cluster.conf.read_text() + more)

    def be_right(self) -> None:
        """A configuration that knows what a run is, and so what is left of one."""
        worker = {"name": "trainer", "match": {"command": self.mark}}
        run = {"name": "grpo", "workers": [worker]}
        self.config.write_text(yaml.safe_dump({"runs": [run]}))

    def be_wrong(self) -> None:
        self.config.write_text("nonsense: true\n")

    @property
    def left(self) -> str:
        """The command line of something that a run leaves behind."""
        return shlex.join([sys.executable, "-S", "-c", SLEEPER, self.mark])

    def leave(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(shlex.split(self.left), stdin=subprocess.DEVNULL)
        self._left.append(child)
        return child

    def submit(self, script: str, *flags: str) -> str:
        file = self.cluster.folder / f"job-{uuid.uuid4().hex}.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        return self.sbatch(file, *flags)

    def sbatch(self, file: Path, *flags: str) -> str:
        common = ("--parsable", "--requeue", f"--output={self.cluster.folder}/%j.out")
        return self.cluster.ask("sbatch", *common, *flags, file).strip()

    def job(self, number: str) -> tuple[str, str, str]:
        """Its state, why it waits, and how often it was put back."""
        shown = self.cluster.ask(
            "squeue", "--noheader", "--states=all", f"--jobs={number}",
            "--Format=State:|,Reason:|,RestartCnt:|",
        )  # fmt: skip
        state, reason, restarts, _ = shown.strip().split("|")
        return state, reason, restarts

    def state(self) -> tuple[str, str]:
        """Whether the node is in use, and why not."""
        shown = self.cluster.ask("sinfo", "--noheader", "--Format=StateLong:|,Reason:100|")
        state, reason, *_ = shown.strip().split("|")
        return state.strip(), reason.strip()

    def resume(self) -> None:
        (name,) = self.cluster.ask("sinfo", "--noheader", "--format=%n").split()
        self.cluster.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")
        until(lambda: self.state()[0] == "idle", SECONDS)

    def wait(self, number: str, state: str) -> None:
        until(lambda: self.job(number)[0] == state, SECONDS)

    def start_immediately(self, number: str) -> None:
        """Let a job that was put back not wait for two minutes."""
        self.cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")

    def pids(self) -> list[int]:
        """Processes of the run, of any parent."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and self.mark.encode() in _command_line(entry)
        ]

    def clear(self) -> None:
        """End all remaining processes of the run."""
        for child in self._left:
            child.kill()
            child.wait()
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.be_right()
        self.clear()
        self.cluster.close()


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def made(tmp_path: Path, settings: str) -> Iterator[Node]:
    root = archive.fetch_root(stack.stack_folder() / "slurm", PACKAGES)
    cluster = Cluster(tmp_path, root)
    node = Node(cluster, settings)
    try:
        cluster.start()
        yield node
    finally:
        node.close()


def shipped() -> str:
    return (SLURM / "slurm.conf").read_text(encoding="utf-8")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield from made(tmp_path, shipped())


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[Node]:
    """As Slurm does by default: a job that the prolog rejects is held."""
    lines = [line for line in shipped().splitlines() if "nohold_on_prolog_fail" not in line]
    yield from made(tmp_path, "\n".join(lines) + "\n")


def test_a_node_that_is_fit_takes_job_after_job(node: Node) -> None:
    for _ in range(2):
        number = node.submit("true")
        node.wait(number, "COMPLETED")
    assert node.state()[0] == "idle"
    assert node.reported.read_text() == ""


def test_a_job_is_put_back_and_the_node_drained_where_something_is_left(node: Node) -> None:
    node.leave()
    number = node.submit("true")
    until(lambda: node.state()[0].startswith("drain"), SECONDS)
    assert "Prolog error" in node.state()[1]
    node.wait(number, "PENDING")
    state, reason, restarts = node.job(number)
    assert (state, restarts) == ("PENDING", "1")
    assert "held" not in reason.lower()
    reported = node.reported.read_text()
    assert f"job {number}" in reported
    assert "stop it first, or leave it running" in reported
    node.clear()
    node.resume()
    node.start_immediately(number)
    node.wait(number, "COMPLETED")


def test_without_our_setting_slurm_holds_what_a_prolog_turned_away(holding: Node) -> None:
    holding.leave()
    number = holding.submit("true")
    until(lambda: holding.state()[0].startswith("drain"), SECONDS)
    until(lambda: "held" in holding.job(number)[1].lower(), SECONDS)
    holding.clear()
    holding.resume()
    holding.cluster.ask("scontrol", "release", number)
    holding.start_immediately(number)
    holding.wait(number, "COMPLETED")


def test_what_a_job_leaves_behind_drains_the_node_after_it(node: Node) -> None:
    number = node.submit(f"setsid --fork {node.left} < /dev/null > /dev/null 2>&1")
    until(lambda: node.state()[0].startswith("drain"), SECONDS)
    assert "Epilog error" in node.state()[1]
    assert node.job(number)[0] == "COMPLETED"
    reported = node.reported.read_text()
    assert f"epilog_slurmd of job {number}" in reported
    assert "stop it first, or leave it running" in reported
    node.clear()
    node.resume()


def test_a_process_that_ends_soon_after_the_job_drains_no_node(node: Node) -> None:
    ending = shlex.join([sys.executable, "-S", "-c", "import time; time.sleep(1)", node.mark])
    number = node.submit(f"setsid --fork {ending} < /dev/null > /dev/null 2>&1")
    node.wait(number, "COMPLETED")
    until(lambda: node.state()[0] == "idle", SECONDS)
    assert node.reported.read_text() == ""


def test_a_configuration_that_is_wrong_takes_no_node_away(node: Node) -> None:
    node.be_wrong()
    number = node.submit("true")
    node.wait(number, "COMPLETED")
    until(lambda: node.state()[0] == "idle", SECONDS)
    reported = node.reported.read_text()
    assert "could not be asked (status 2)" in reported
    assert "nonsense" in reported


def test_a_node_with_another_job_on_it_is_not_looked_at(node: Node) -> None:
    first = node.submit(f"exec {node.left}")
    node.wait(first, "RUNNING")
    until(node.pids, SECONDS)
    second = node.submit("true")
    node.wait(second, "COMPLETED")
    assert node.job(first)[0] == "RUNNING"
    until(lambda: f"job {second}: not looked at" in node.reported.read_text(), SECONDS)
    node.cluster.ask("scancel", first)
    until(lambda: node.state()[0] == "idle", SECONDS)


def test_a_job_with_its_own_check_is_requeued_or_held(node: Node) -> None:
    training = node.cluster.folder / "train.sh"
    training.write_text("#!/bin/sh\necho trained\n")
    training.chmod(0o755)
    settings = f"TRAINWARDEN_EXPORTER={EXPORTER},TRAINWARDEN_CONFIG={{}},TRAINING={training}"
    wrong = node.cluster.folder / "wrong.yml"
    wrong.write_text("nonsense: true\n")
    held = node.sbatch(SLURM / "job.sh", f"--export=ALL,{settings.format(wrong)}")
    until(lambda: "held" in node.job(held)[1].lower(), SECONDS)
    node.cluster.ask("scancel", held)
    # What the prolog of this node does not know of, and the file of the job does.
    beside = f"beside-{uuid.uuid4().hex}"
    own = node.cluster.folder / "own.yml"
    worker = {"name": "trainer", "match": {"command": beside}}
    own.write_text(yaml.safe_dump({"runs": [{"name": "grpo", "workers": [worker]}]}))
    child = subprocess.Popen([*shlex.split(node.left)[:-1], beside])
    try:
        number = node.sbatch(SLURM / "job.sh", f"--export=ALL,{settings.format(own)}")
        until(lambda: node.job(number)[0::2] == ("PENDING", "1"), SECONDS)
        assert "held" not in node.job(number)[1].lower()
    finally:
        child.kill()
        child.wait()
    node.start_immediately(number)
    node.wait(number, "COMPLETED")
    assert (node.cluster.folder / f"{number}.out").read_text().endswith("trained\n")
