"""Runs started by `trainwarden run`, in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from terminal_session import TerminalSession
from trainwarden.run.process_tree import read_start_ticks, send_signal

TIMEOUT = 180.0


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not what():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)


class Runs:
    """Starts runs, and reads what they announce."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "TRAINWARDEN_FOLDER": str(folder)}
        self.sessions: list[TerminalSession] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def argv(*arguments: str, options: tuple[str, ...] = ("--name", "r")) -> list[str]:
        return [sys.executable, "-m", "trainwarden", "run", *options, "--", *arguments]

    def in_terminal(self, *arguments: str, **settings: Any) -> TerminalSession:
        session = TerminalSession(self.argv(*arguments, **settings), self.environment)
        self.sessions.append(session)
        return session

    def piped(
        self, *arguments: str, start_new_session: bool = False, **settings: Any
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.argv(*arguments, **settings),
            start_new_session=start_new_session,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def announced(self, run: object = "r") -> dict[str, Any]:
        with suppress(OSError):
            content: dict[str, Any] = json.loads(
                (self.folder / "runs.d" / f"{run}@trainer.json").read_bytes()
            )
            return content
        return {}

    def wait_until(self, **expected: object) -> dict[str, Any]:
        """Waits until the announcement has these values, and returns it."""
        run = expected.get("run", "r")
        wait_for(lambda: expected.items() <= self.announced(run).items())
        return self.announced(run)

    def log(self) -> bytes:
        path = self.folder / "logs" / "r@trainer.log"
        return path.read_bytes() if path.exists() else b""

    def request(self, **request: object) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(self.announced()["socket"])
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline())
        return answer

    def restart(self, **settings: object) -> dict[str, Any]:
        now = self.announced()
        meant = {name: now[name] for name in ("pid", "start_ticks")}
        return self.request(command="restart", **{**meant, **settings})

    def close(self) -> None:
        """Ends all processes of the runs, the launchers too."""
        marker = f"TRAINWARDEN_FOLDER={self.folder}".encode()
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        found = [(pid, read_start_ticks(pid)) for pid in pids if marker in environment_of(pid)]
        # stopped first: a launcher replaces a wrapper that is killed
        for number in (signal.SIGSTOP, signal.SIGKILL):
            send_signal(found, number)
        for session in self.sessions:
            session.close()
        for process in self.processes:
            process.kill()
            process.communicate()


def environment_of(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
