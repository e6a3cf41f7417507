"""A trainer in a container of a real engine, as the host shows it."""

from __future__ import annotations

import os
import subprocess
import uuid

import psutil
import pytest
from tests.waiting import until

from dockerengine import DockerEngine
from trainwarden_exporter.processes.matching import Matcher, ProcessTree, WorkerKey
from trainwarden_exporter.processes.selector import Selector

TRAINER = WorkerKey("demo", "trainer")


@pytest.mark.parametrize("after", ["; sleep 600; :", ""])
def test_docker_exec_hides_no_death_of_the_trainer(engine: DockerEngine, after: str) -> None:
    name = f"c-{uuid.uuid4().hex}"
    trainer = f"/bin/sh -c 'while sleep 1; do :; done' {name}-train"
    matcher = Matcher({TRAINER: Selector.model_validate({"command": f"{name}-train"})})

    def find() -> ProcessTree:
        return matcher.find()[TRAINER]

    def roots() -> list[int]:
        return [root.pid for root in find().roots if root.alive]

    engine.docker("run", "--detach", "--network=none", "--name", name, "shell", "sleep", "600")
    command = ["docker", "--host", f"unix://{engine.socket}", "exec", name]
    with subprocess.Popen([*command, "sh", "-c", trainer + after]) as client:
        try:
            until(lambda: roots() and client.pid not in roots())
            (pid,) = roots()
            assert psutil.Process(pid).cmdline()[-1] == f"{name}-train"
            os.kill(pid, 9)
            until(lambda: roots() == [])
            if after:
                assert client.poll() is None
            else:
                client.wait(60)
            assert find().members == ()
        finally:
            client.kill()
            engine.docker("rm", "--force", name)
