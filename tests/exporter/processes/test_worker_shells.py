"""Real shells that run a worker as one of several commands."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from trainwarden_exporter.collectors.workers import WorkersCollector
from trainwarden_exporter.processes.config import WorkerConfig
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, Selector, WorkerKey
from trainwarden_exporter.run_config import RunConfig

TRAINER = WorkerKey("demo", "trainer")


class Trainers:
    """Trainers below shells, with a mark of this test in the name of their script."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / f"train-{uuid.uuid4().hex}.py"
        self.script.write_text("import time; time.sleep(600)\n")
        self.command = f"{shlex.quote(sys.executable)} {self.script}"
        self.selector = {"command": self.script.name}
        self._shells: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> psutil.Process:
        """Starts `command`, in whose texts TRAIN stands for the trainer's command."""
        words = [word.replace("TRAIN", self.command) for word in command]
        shell = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        self._shells.append(shell)
        return psutil.Process(shell.pid)

    def ask(self, client_command: Sequence[str], *command: str) -> psutil.Process:
        """Starts a program like `docker exec`, whose command line has all of what it asks for."""
        (self.script.parent / client_command[1]).write_text("import time; time.sleep(600)\n")
        words = [word.replace("TRAIN", self.command) for word in (*client_command, *command)]
        client = subprocess.Popen(
            words, executable=sys.executable, cwd=self.script.parent, stdin=subprocess.PIPE
        )
        self._shells.append(client)
        return psutil.Process(client.pid)

    def find(self) -> ProcessTree:
        """Returns what a matcher without any memory finds."""
        return Matcher({TRAINER: Selector.model_validate(self.selector)}).find()[TRAINER]

    def roots(self) -> list[int]:
        return [root.pid for root in self.find().roots if root.alive]

    def named(self) -> Iterator[psutil.Process]:
        """Yields all processes whose command line has the mark, also the lost ones."""
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if self.script.name in " ".join(one.cmdline()):
                    yield one

    def close(self) -> None:
        for root in self.named():
            with suppress(psutil.NoSuchProcess):
                root.suspend()  # it does not go on with its next command
                for one in (*root.children(recursive=True), root):
                    one.kill()
        for shell in self._shells:
            shell.kill()
            shell.communicate()


@pytest.fixture
def trainers(tmp_path: Path) -> Iterator[Trainers]:
    trainers = Trainers(tmp_path)
    yield trainers
    trainers.close()


def child_of(process: psutil.Process, name: str) -> psutil.Process:
    """Returns the descendant whose program is called `name`, once it runs."""
    found: list[psutil.Process] = []

    def runs() -> bool:
        for one in process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                if one.name().startswith(name):
                    found.append(one)
        return bool(found)

    until(runs)
    return found[0]


KEPT_OPEN = [
    ["bash", "-c", "TRAIN; sleep 600; :"],
    ["sh", "-c", "TRAIN; sleep 600"],
    ["sh", "-c", "TRAIN; bash"],
    ["bash", "-c", "cd / && TRAIN; while :; do sleep 600; done"],
    ["bash", "-lc", "TRAIN || { echo 'the trainer failed'; sleep 600; }; :"],
    ["bash", "-euo", "pipefail", "-c", "(TRAIN) || sleep 600; :"],
    ["bash", "-c", "sleep 0\nTRAIN\nsleep 600\n:"],
    ["bash", "-c", "TRAIN & sleep 600; :"],
    ["bash", "-c", "TRAIN 2>&1 | cat; sleep 600; :"],
    ["timeout", "1h", "bash", "-c", "TRAIN; sleep 600; :"],
    ["sh", "-c", "bash -c 'TRAIN; sleep 600; :'; sleep 600"],
]


@pytest.mark.parametrize("command", KEPT_OPEN, ids=[" ".join(one) for one in KEPT_OPEN])
def test_a_shell_that_stays_open_does_not_hide_the_end_of_the_trainer(
    trainers: Trainers, command: list[str]
) -> None:
    shell = trainers.start(*command)
    trainer = child_of(shell, "python")
    until(lambda: trainers.roots() == [trainer.pid])
    trainer.kill()
    child_of(shell, "bash" if command[-1].endswith("bash") else "sleep")
    until(lambda: trainers.roots() == [])
    assert shell.is_running()
    assert trainers.find().members == ()


TEXT = "TRAIN; sleep 600; :"
WRAPPED = [
    ["nohup", "bash", "-c", TEXT],
    ["env", "X=1", "bash", "-c", TEXT],
    ["setsid", "bash", "-c", TEXT],
    ["setsid", "--wait", "bash", "-c", TEXT],
    ["nice", "-n", "5", "bash", "-c", TEXT],
    ["stdbuf", "-oL", "bash", "-c", TEXT],
    ["nohup", "setsid", "-w", "nice", "stdbuf", "-oL", "env", "X=1", "bash", "-c", TEXT],
    ["su", "root", "-c", TEXT],
    ["su", "-", "root", "-c", TEXT],
    ["su", f"--command={TEXT}", "root"],
    ["su", "root", "-c", f"nohup bash -c {shlex.quote(TEXT)}"],
    ["runuser", "-u", "root", "--", "bash", "-c", TEXT],
    ["script", "-qec", TEXT, "/dev/null"],
    ["flock", "/", "-c", TEXT],
    ["bash", "-c", "su root -c 'TRAIN; :'; sleep 600; :"],
    ["bash", "-c", f"nohup {TEXT}"],
    ["bash", "-c", f"stdbuf -oL nice {TEXT}"],
    ["bash", "-c", f"setsid -w env X=1 {TEXT}"],
]


@pytest.mark.parametrize("command", WRAPPED, ids=[" ".join(one) for one in WRAPPED])
def test_what_starts_such_a_shell_does_not_hide_the_end_of_the_trainer(
    trainers: Trainers, command: list[str]
) -> None:
    if os.geteuid() and {"su", "runuser"} & set(" ".join(command).split()):
        pytest.skip("it asks for a password")
    trainers.start(*command)

    def trainer() -> list[int]:
        return [one.pid for one in trainers.named() if one.cmdline()[1:] == [str(trainers.script)]]

    until(trainer)
    (pid,) = trainer()
    until(lambda: trainers.roots() == [pid])
    os.kill(pid, signal.SIGKILL)
    until(lambda: trainers.roots() == [])
    assert list(trainers.named())
    assert trainers.find().members == ()


ASKED = [["bash", "-c", TEXT], ["sh", "-c", "cd / && exec TRAIN --name 'a b' >/dev/null"]]


CLIENTS = ["docker exec c", "srun host", "ssh host"]


@pytest.mark.parametrize("client_command", CLIENTS)
@pytest.mark.parametrize("command", ASKED, ids=[" ".join(one) for one in ASKED])
def test_a_client_of_a_service_is_no_second_process(
    trainers: Trainers, client_command: str, command: list[str]
) -> None:
    """Seen from the host: what it asks for runs below the service, not below it."""
    client = trainers.ask(client_command.split(), *command)
    # the service may be on another host: then the client is all that is seen of the worker
    until(lambda: trainers.roots() == [client.pid])
    inside = trainers.start(*command)
    trainer = inside if "exec" in command[-1] else child_of(inside, "python")
    until(lambda: trainers.roots() == [trainer.pid])
    if trainer is not inside:
        trainer.kill()
        child_of(inside, "sleep")
        until(lambda: trainers.roots() == [])
        assert trainers.find().members == ()
    assert client.is_running()


def test_a_client_of_a_service_is_the_worker_beside_another_one(trainers: Trainers) -> None:
    client = trainers.ask(CLIENTS[0].split(), "TRAIN", "--rank", "1")
    other = trainers.start(*shlex.split(trainers.command), "--rank", "0")
    until(lambda: sorted(trainers.roots()) == sorted([client.pid, other.pid]))


def test_a_shell_that_reads_does_not_hide_the_end_of_the_trainer(trainers: Trainers) -> None:
    shell = trainers.start("bash", "-c", "TRAIN; read -p 'close this window? ' _")
    trainer = child_of(shell, "python")
    until(lambda: trainers.roots() == [trainer.pid])
    trainer.kill()
    until(lambda: not shell.children())
    assert trainers.roots() == []


COUNTED = [
    ["bash", "-c", "while :; do TRAIN; sleep 600; done"],
    ["sh", "-c", "for i in 1 2 3; do TRAIN; sleep 600; done"],
    ["sh", "-c", "train() { TRAIN; }; train; sleep 600"],
    ["sh", "-c", "TRAIN; sleep 600; TRAIN --resume"],
]
"""Commands that start the trainer once more: beside them, a second copy would be started."""


@pytest.mark.parametrize("command", COUNTED, ids=[" ".join(one) for one in COUNTED])
def test_a_shell_that_starts_the_trainer_once_more_counts_as_the_worker(
    trainers: Trainers, command: list[str]
) -> None:
    shell = trainers.start(*command)
    trainer = child_of(shell, "python")
    until(lambda: trainers.roots() == [shell.pid])
    trainer.kill()
    child_of(shell, "sleep")
    assert trainers.roots() == [shell.pid]


WAITING = [
    ["bash", "-c", "sleep 600; TRAIN; sleep 600; :"],
    ["bash", "-c", "until false; do sleep 600; done; TRAIN; :"],
    ["sh", "-c", "sleep 600; TRAIN | tee log; sleep 600"],
    ["sh", "-c", "sleep 600; :", "TRAIN"],
]


@pytest.mark.parametrize("command", WAITING, ids=[" ".join(one) for one in WAITING])
def test_a_shell_that_has_not_started_the_trainer_yet_counts_as_the_worker(
    trainers: Trainers, command: list[str]
) -> None:
    shell = trainers.start(*command)
    child_of(shell, "sleep")
    until(lambda: trainers.roots() == [shell.pid])


def test_output_that_goes_to_a_named_file_is_no_second_process(trainers: Trainers) -> None:
    log = trainers.script.with_suffix(".py.log")
    shell = trainers.start("bash", "-c", f"TRAIN | tee {log}; sleep 600; :")
    trainer = child_of(shell, "python")
    child_of(shell, "tee")
    until(lambda: trainers.roots() == [trainer.pid])


def test_a_shell_goes_on_with_its_next_program_and_counts_as_the_worker(
    trainers: Trainers,
) -> None:
    """What follows, such as a program that stops the rented pod, must not run early."""
    shell = trainers.start("sh", "-c", f"TRAIN; {sys.executable} -S -c 'input()'")
    child_of(shell, "python")
    until(lambda: trainers.roots() == [shell.pid])


def test_a_program_beside_the_trainer_belongs_to_the_worker_with_the_shell(
    trainers: Trainers,
) -> None:
    beside = f"{sys.executable} -S -c 'import time; time.sleep(600)'"
    shell = trainers.start("bash", "-c", f"{beside} & TRAIN; sleep 600; :")
    until(lambda: len(shell.children()) == 2)
    until(lambda: trainers.roots() == [shell.pid])


def test_a_worker_that_only_the_text_of_a_shell_shows_is_the_shell(
    trainers: Trainers, tmp_path: Path
) -> None:
    (tmp_path / "other.py").write_text("import time; time.sleep(600)\n")
    text = f"SCRIPT={trainers.script.name}; {sys.executable} {tmp_path}/other.py; sleep 600; :"
    shell = trainers.start("bash", "-c", text)
    child_of(shell, "python")
    until(lambda: trainers.roots() == [shell.pid])


def test_the_collector_sees_the_trainer_down_and_how_it_ended(
    trainers: Trainers, tmp_path: Path
) -> None:
    worker = WorkerConfig(name="trainer", match=Selector.model_validate(trainers.selector))
    run = RunConfig.model_validate({"name": "demo", "workers": [worker]})
    collector = WorkersCollector((run,), state_folder=tmp_path)

    def value(metric: str) -> float | None:
        return next(
            (
                sample.value
                for family in collector.collect()
                for sample in family.samples
                if sample.name == f"trainwarden_worker_{metric}"
            ),
            None,
        )

    shell = trainers.start("bash", "-c", "TRAIN; sleep 600; :")
    trainer = child_of(shell, "python")
    until(lambda: trainers.roots() == [trainer.pid])
    assert value("processes") == 1
    os.kill(trainer.pid, signal.SIGKILL)
    child_of(shell, "sleep")
    until(lambda: value("processes") == 0)
    assert value("last_exit_code") in (137, None)  # None: on a kernel before 6.15
    assert value("missing_processes") == 1

    # an exporter that starts now sees the same
    collector = WorkersCollector((run,), state_folder=tmp_path)
    assert value("processes") == 0
    assert value("missing_processes") == 1
