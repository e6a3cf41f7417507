"""The host of night 5: simulated GPUs, a healthy run, a run that is about to die, and others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import animate
import children
import ports
from running import SCRIPTS
from trainwarden_exporter.processes.procfs import Identity, read_process

PROGRAM = Path(__file__).with_name("gpu_program.py")
GIB = 1 << 30
NOBODY = 65534
BACK_AFTER = 4.0
"""Seconds from the end of a process until its memory is back."""


@dataclass(frozen=True)
class Night:
    """The host as it is when the fault comes, and the paths of its simulated driver."""

    box: Path
    config: Path
    environment: Mapping[str, str]
    launcher: subprocess.Popen[str]
    leftovers: Mapping[str, Identity]
    """What the launcher started, and what is left when it dies."""
    bystanders: Mapping[str, Identity]

    def preflight(self) -> tuple[int, str]:
        """Whether the run may start, as the command says."""
        command = (SCRIPTS / "trainwarden-exporter", "preflight", "--run", "night")
        result = subprocess.run(
            [*command, "--config.file", self.config / "exporter.yml"],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.stderr == ""
        return result.returncode, result.stdout


def identity(pid: int) -> Identity:
    process = read_process(pid)
    assert process is not None
    return process.identity


@contextmanager
def program(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed that it is ready, and that does not outlive the test."""
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def first_line(started: subprocess.Popen[str]) -> list[str]:
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, "the program ended before it was ready"
    return line.split()


def part(box: Path, *arguments: str) -> tuple[str | Path, ...]:
    return (sys.executable, "-S", PROGRAM, "--box", box, *arguments)


def write_config(folder: Path, box: Path) -> None:
    """A healthy run, and a run to be started again; with all defaults that heal."""
    folder.mkdir()
    free, place = ports.choose(any_free=True), re.escape(str(box))
    workers = {
        run: {"name": name, "match": {"command": rf"gpu_program\.py --box {place} --name {name} "}}
        for run, name in (("evening", "server"), ("night", "trainer"))
    }
    exporter = {
        "gpu": {"device_root": str(box / "dev"), "expected": 2},
        "runs": [{"name": run, "workers": [worker]} for run, worker in workers.items()],
    }
    remediator = {
        "mode": "act",
        "token_file": "token",
        "exporter": {"url": f"http://127.0.0.1:{free['exporter']}", "config": "exporter.yml"},
        "alertmanager": {"url": f"http://127.0.0.1:{free['alertmanager']}"},
        "gpu_cleanup": {},
    }
    watching = {**remediator, "mode": "observe", "journal": "watching.db"}
    files = {"exporter": exporter, "remediator": remediator, "watching": watching}
    for name, content in files.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(content))


@contextmanager
def a_run_about_to_die(folder: Path) -> Iterator[Night]:
    """All of it, in `folder`, and nothing of it afterwards."""
    box, config = folder / "box", folder / "config"
    write_config(config, box)
    with ExitStack() as stack:
        animation = stack.enter_context(
            program(
                *(sys.executable, animate.__file__, "--folder", box),
                *("--devices", "2", "--memory-back-after", str(BACK_AFTER)),
            )
        )
        environment = dict(first_line(animation)[0].split("=", 1) for _ in range(2))
        server = stack.enter_context(
            program(
                *part(box, "--name", "server", "--gpu", "0", "--memory", str(5 * GIB)),
                *("--child", f"--name sampler --gpu 0 --memory {GIB}"),
                *("--child", "--name loader --open nvidiactl"),
            )
        )
        server_pids = first_line(server)[1:]
        launcher = stack.enter_context(
            program(
                *part(box, "--name", "trainer", "--gpu", "1"),
                *("--child", f"--name engine --gpu 0 --memory {4 * GIB}"),
                *("--child", "--name tokenizer --gpu 1"),
                *("--child", f"--name rank-1 --gpu 1 --memory {7 * GIB} --deaf"),
            )
        )
        names = ("engine", "tokenizer", "rank-1")
        pids = map(int, first_line(launcher)[1:])
        leftovers = dict(zip(names, map(identity, pids), strict=True))
        mentions = ("/bin/sh", "-c", "read _", "python", "train.py", "gpu_program.py")
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        stranger = stack.enter_context(program(*mentions, cwd="/", **other))
        persistenced = stack.enter_context(
            program(
                *("nvidia-persistenced", "-c", f"exec 9<'{box}/dev/nvidiactl'; read _"),
                executable="/bin/sh",
            )
        )
        bystanders = {
            "server": identity(server.pid),
            "its sampler": identity(int(server_pids[0])),
            "its loader": identity(int(server_pids[1])),
            "stranger": identity(stranger.pid),
            "nvidia-persistenced": identity(persistenced.pid),
        }
        try:
            yield Night(box, config, environment, launcher, leftovers, bystanders)
        finally:
            for one in (*leftovers.values(), *bystanders.values()):
                children.send(one, signal.SIGKILL)
