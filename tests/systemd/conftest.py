"""A small system with a real systemd as its first process, and the stack installed in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import dockerengine
import stack
import standins
from stack import PROJECT, StackError

BOOT_SECONDS = 60
NAME = "box"
STACK = "/stack"

# What systemd needs of a container; PTRACE and READ_SEARCH are what the exporter's unit hands on.
RIGHTS = (
    *("--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE", "--cap-add=DAC_READ_SEARCH"),
    *("--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"),
    *("--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw"),
    *("--tmpfs=/run", "--tmpfs=/run/lock", "--env=container=docker"),
)
# As systemd does on a machine, and not in a container: else credentials of units stay hidden.
BOOT = "mount --make-rshared / && exec /sbin/init"


class Box:
    """One such system."""

    def __init__(self, engine: dockerengine.DockerEngine) -> None:
        self._engine = engine
        mounts = (f"--volume={PROJECT}:/src:ro", f"--volume={stack.stack_folder()}:{STACK}:ro")
        settings = (f"--env=TRAINWARDEN_STACK_DIR={STACK}", "--stop-signal=SIGRTMIN+3")
        command = ("run", "--detach", "--name", NAME, "--network=none", *RIGHTS, *mounts, *settings)
        engine.docker(*command, standins.BASE, "sh", "-c", BOOT)
        self.wait_until_booted()

    def run(self, *command: str) -> str:
        """What a command in it prints. Raises StackError when it fails."""
        return self._engine.docker("exec", NAME, *command)

    def tries(self, *command: str) -> str:
        """The same, where failing is an answer as well."""
        return self.run("sh", "-c", '"$@" || true', "sh", *command)

    def write(self, path: str, text: str) -> None:
        self.run("sh", "-c", 'printf %s "$1" > "$0"', path, text)

    def fetch(self, port: int, path: str) -> str:
        ask = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
        return self.run("python3", "-c", ask, f"http://127.0.0.1:{port}{path}")

    def value(self, port: int, series: str) -> float:
        """A series of a page of metrics, written as there."""
        for line in self.fetch(port, "/metrics").splitlines():
            name, _, number = line.rpartition(" ")
            if name == series:
                return float(number)
        raise AssertionError(series)

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def pid(self, unit: str) -> int:
        return int(self.show(unit, "MainPID"))

    def status(self, unit: str) -> str:
        """The kernel's status of the first process of a unit."""
        return self.run("cat", f"/proc/{self.pid(unit)}/status")

    def journal(self) -> list[dict[str, Any]]:
        """What the remediator has written down."""
        command = ("/opt/trainwarden/bin/trainwarden-remediator", "journal", "--json")
        text = self.run(*command, "--config.file=/etc/trainwarden/remediator.yml")
        return [json.loads(line) for line in text.splitlines()]

    def reboot(self) -> None:
        """Shut down, and boot again; processes and /run are gone then, and the rest is not."""
        self._engine.docker("restart", "--time=60", NAME)
        self.wait_until_booted()

    def wait_until_booted(self) -> None:
        def booted() -> bool:
            with suppress(StackError):
                return self.tries("systemctl", "is-system-running") in ("running", "degraded")
            return False

        self.wait_until(booted, BOOT_SECONDS)

    def wait_until(self, seen: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not seen():
            if time.monotonic() > deadline:
                # the lines of the programs; those about them, of systemd itself, are many
                output = self.tries(
                    *("journalctl", "--no-pager", "--lines=40", "--unit=trainwarden-*"),
                    "--grep=logger=",
                )
                pytest.fail(f"not seen within {seconds} s:\n{output}")
            time.sleep(0.5)


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    stack.find_binaries()
    engine = dockerengine.DockerEngine(dockerengine.find_programs())
    try:
        engine.start()
        standins.make_base(engine.docker)
        box = Box(engine)
        box.run("python3", "/src/deploy/systemd/install.py")
        yield box
    finally:
        engine.close()
