"""Runs `trainwarden up` for a test, and asks its parts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import connected

import claims
import stack
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_command_line,
    read_process,
    read_processes,
)
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.database import journal_exists, open_database
from trainwarden_remediator.journal.event_text import as_json
from trainwarden_remediator.journal.rows import read_events

PROJECT = Path(__file__).parent.parent.parent
SCRIPTS = Path(sys.executable).parent
UP_SECONDS = 180


class Up:
    """One `trainwarden up` that runs in a folder of the test's."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.output = folder.parent / f"{folder.name}.out"
        self.started = time.time()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [SCRIPTS / "trainwarden", "up", "--any-free", "--folder", folder],
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_until(self, seen: Callable[[], object], seconds: float) -> None:
        """Until `seen` returns something true; fails the test when that takes too long."""
        deadline = time.monotonic() + seconds
        while not seen():
            if self.has_ended() or time.monotonic() > deadline:
                pytest.fail(f"not seen within {seconds} s; output of make up:\n{self.text()}")
            time.sleep(0.2)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_up(self) -> None:
        self.wait_until(lambda: "What happens:" in self.text(), UP_SECONDS)

    def url(self, part: str) -> str:
        match = re.search(rf"^  {part} +(http://[^/\s]+)/", self.text(), re.MULTILINE)
        assert match is not None
        return match[1]

    def journal(self, config_file: Path | None = None) -> list[dict[str, Any]]:
        return read_journal(config_file or self.folder / "remediator.yml")

    def processes(self) -> dict[str, Identity]:
        """All processes below this one, by command line."""
        table = read_processes()
        return {
            " ".join(read_command_line(pid) or ()): table[pid].identity
            for pid in descendants(table, [self.pid])
        }

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.text()


class Detached(Up):
    """The stack as `trainwarden up --detach` of another installation runs it, without a clone."""

    def __init__(self, program: Path, state: Path, name: str = "demo") -> None:
        self.program, self.folder = program, state / "trainwarden" / "stack" / name
        self.output = self.folder.with_suffix(".out")
        stack.find_binaries()
        self.folder.parent.mkdir(parents=True)
        for found in stack.stack_folder().glob("prometheus*/"):  # fetched once for all tests
            (self.folder.parent / found.name).symlink_to(found)
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state), "CONFIG": "", "MODE": ""}
        for variable in ("TRAINWARDEN_STACK_DIR", "TRAINWARDEN_FOLDER"):
            self.environment.pop(variable, None)
        self.started = time.time()

    def run(self, *arguments: str) -> str:
        """What the command prints; it must succeed."""
        result = subprocess.run(
            [self.program, *arguments],
            cwd=self.program.parent,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_SECONDS,
        )
        assert (result.returncode, result.stderr) == (0, ""), result.stdout
        return result.stdout

    @property
    def pid(self) -> int:
        running = claims.owner(claims.lock_of(self.folder))
        return 0 if running is None else running.pid

    def has_ended(self) -> bool:
        return self.pid == 0


PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def build_wheel(place: Path) -> Path:
    build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, PROJECT)
    subprocess.run([*PIP, *build], check=True)
    (wheel,) = place.glob("trainwarden-*.whl")
    return wheel


def install_wheel(place: Path) -> Path:
    """The command `trainwarden` of a wheel in an environment of its own.

    It uses the dependencies that are installed here; tests/situations installs all from the index.
    """
    wheel = build_wheel(place)
    environment = place / "env"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], check=True)
    here, there = (
        subprocess.run(
            [each, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for each in (sys.executable, python)
    )
    (Path(there) / "dependencies.pth").write_text(f"{here}\n")
    (environment / "bin" / "supervisord").symlink_to(SCRIPTS / "supervisord")
    return environment / "bin" / "trainwarden"


@contextmanager
def up(folder: Path, **environment: str) -> Iterator[Up]:
    running = Up(folder, environment)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(60)


def alive(identity: Identity) -> bool:
    process = read_process(identity.pid)
    return process is not None and process.identity == identity and process.alive


def fetch(
    url: str, *, accept: str = "*/*", data: bytes | None = None, token: str = ""
) -> tuple[int, str]:
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return connected(ask)


def read_journal(config_file: Path) -> list[dict[str, Any]]:
    """What `trainwarden-remediator journal --json` prints; nothing before there is a journal.

    Who looks again and again would keep a core busy with starts of that command.
    """
    path = journal_of(config_file)
    if not journal_exists(path):
        return []
    try:
        with open_database(path, mode="ro") as connection:
            return [json.loads(as_json(event)) for event in read_events(connection)]
    except JournalError:  # as it is made, its tables are missing
        return []


@cache
def journal_of(config_file: Path) -> Path:
    return load_setup(config_file).config.journal


def journaled(run: Up) -> str:
    """The output of the journal command while the stack ran."""
    return run.text().partition("What happens:")[2]
