"""Who starts the programs again: nobody, systemd, supervisord, or Trainwarden."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

import ports
import supervision
from chaos.programs import Program, kept_environment

SCRIPTS = Path(sys.executable).parent
SYSTEMD = Path("/usr/lib/systemd/systemd")
BOOT = f"""
mount --make-rslave /
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system "$1/manager"
echo $$ >"$1/manager/cgroup.procs"
{SYSTEMD} --user --unit=programs.target || true
echo $$ >/sys/fs/cgroup/cgroup.procs
until find "$1" -depth -type d -exec rmdir {{}} + 2>/dev/null; do sleep 0.2; done
"""
READY_SECONDS = 300.0
SERVER_SECONDS = 900.0
POLL_SECONDS = 5.0


class Keeper(ABC):
    """Starts programs, and keeps them by its own lights until `end`."""

    name: str
    about: str
    restarts = True
    """Whether it starts what ends again."""

    def __init__(self, folder: Path, programs: Sequence[Program]) -> None:
        self.folder = folder
        self.programs = programs

    @classmethod
    def missing(cls) -> str:
        """What it needs and this host does not have, for a reader; empty if nothing."""
        return ""

    @abstractmethod
    def start(self) -> None:
        """Start all programs; returns once they may be watched."""

    def end(self) -> None:
        """End the keeper first, then what it kept."""
        self.stop()
        for part in self._parts():
            for process in part.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for child in part.children:
                child.wait()

    @abstractmethod
    def stop(self) -> None:
        """End what would start programs again."""

    def kill_part(self, part: str) -> str:
        """Kill a part of the keeper; returns what was killed, empty if nothing was."""
        return ""

    def found(self) -> dict[str, Any]:
        """What it has recorded itself."""
        return {}

    def _start_all(self) -> None:
        servers = [one.server for one in self.programs if one.server is not None]
        for server in servers:
            server.start()
        # before the others: among programs that load, a server needs minutes
        deadline = time.monotonic() + SERVER_SECONDS
        while not all(server.answers() for server in servers):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no server:\n{servers[0].log.read_text()[-2000:]}")
            time.sleep(1.0)
        for program in self.programs:
            program.start()

    def _parts(self) -> list[Program]:
        return [part for program in self.programs for part in program.parts]


class Nobody(Keeper):
    name = "nothing"
    about = "nobody starts a program again"
    restarts = False

    def start(self) -> None:
        self._start_all()

    def stop(self) -> None:
        pass


class Systemd(Keeper):
    name = "Restart=always"
    about = (
        "a real systemd, as a user's instance, whose units have `Restart=always` and its defaults "
        "(after 0.1 s; not more than 5 starts in 10 s)"
    )

    def __init__(self, folder: Path, programs: Sequence[Program]) -> None:
        super().__init__(folder, programs)
        self._group = f"/sys/fs/cgroup/{folder.parent.name}"
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str:
        return "" if os.getuid() == 0 and SYSTEMD.exists() else f"{SYSTEMD} and root"

    def start(self) -> None:
        units, runtime = self.folder / "units", self.folder / "runtime"
        units.mkdir(parents=True)
        runtime.mkdir(mode=0o700)
        for program in self.programs:
            (units / f"{program.name}.service").write_text(_unit(program))
        wanted = " ".join(f"{program.name}.service" for program in self.programs)
        (units / "programs.target").write_text(f"[Unit]\nWants={wanted}\n")
        own = {"XDG_RUNTIME_DIR": str(runtime), "SYSTEMD_UNIT_PATH": str(units)}
        with (self.folder / "systemd.out").open("wb") as output:
            self._child = subprocess.Popen(
                # mounts of its own: it wants a host that systemd has booted, and its cgroups
                ("unshare", "--mount", "sh", "-ec", BOOT, "boot", self._group),
                env=kept_environment() | own,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not all(program.processes() for program in self.programs):
            ended = self._child is None or self._child.poll() is not None
            if ended or time.monotonic() > deadline:
                text = (self.folder / "systemd.out").read_text()
                raise RuntimeError(f"systemd does not start the programs:\n{text}")
            time.sleep(0.5)

    def stop(self) -> None:
        if self._child is not None:
            for process in psutil.Process(self._child.pid).children():
                process.kill()

    def end(self) -> None:
        super().end()
        if self._child is not None:  # it removes the cgroups of what has ended
            self._child.wait()


def _unit(program: Program) -> str:
    lines = [
        "[Unit]",
        "DefaultDependencies=no",
        "[Service]",
        f"ExecStart={' '.join(map(_quoted, program.command))}",
        f"WorkingDirectory={program.folder}",
        *(f"Environment={_quoted(f'{k}={v}')}" for k, v in program.environment.items()),
        f"StandardOutput=append:{program.log}",
        "StandardError=inherit",
        "Restart=always",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """As in a unit (systemd.syntax(7))."""
    return json.dumps(text).replace("%", "%%").replace("$", "$$")


class Supervisord(Keeper):
    name = "supervisord"
    about = (
        "`autorestart=unexpected`, `startsecs=1`, `startretries=3`: its defaults, by which it "
        "starts again what ends with another status than 0"
    )

    def __init__(self, folder: Path, programs: Sequence[Program]) -> None:
        super().__init__(folder, programs)
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [
            "[supervisord]",
            f"directory={self.folder}",
            f"logfile={self.folder}/supervisord.log",
            f"pidfile={self.folder}/supervisord.pid",
            *(["user=root"] if os.getuid() == 0 else []),
        ]
        for program in self.programs:
            environment = ",".join(f'{k}="{v}"' for k, v in program.environment.items())
            # a shell, since supervisord would write to a log that was renamed under its own name
            script = f"exec {shlex.join(program.command)} >> {shlex.quote(str(program.log))} 2>&1"
            lines += [
                f"[program:{program.name}]",
                f"command=/bin/sh -c {shlex.quote(script)}",
                f"directory={program.folder}",
                f"environment={environment}",
            ]
        file = self.folder / "supervisord.conf"
        file.write_text("\n".join(lines) + "\n")
        self._child = subprocess.Popen(
            [SCRIPTS / "supervisord", "-n", "-s", "-c", file],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()


class Trainwarden(Keeper):
    name = "Trainwarden"
    about = (
        "`trainwarden up` in the mode `act`: exporter, Prometheus, Alertmanager and remediator as "
        "shipped, and a file that names the programs. All settings are defaults, but for four: the "
        "memory limit of each program; a low floor for the memory of the host, which others use "
        "too; `breaker: {actions: 1000}`, since so many faults in an hour are not what the "
        "breaker of a host expects; and `set_damaged_aside: true`, which lets it rename a "
        "checkpoint that is half or empty, so that the next start takes the one before"
    )

    def __init__(self, folder: Path, programs: Sequence[Program]) -> None:
        super().__init__(folder, programs)
        self._config = folder / "config"
        self._stack = folder / "stack"
        self._up: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}
        self._over = threading.Event()
        self.alerts: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        self._start_all()
        self._write()
        command = (SCRIPTS / "trainwarden", "up", "--any-free", "--folder", self._stack)
        with (self.folder / "up.out").open("wb") as output:
            self._up = subprocess.Popen(
                command,
                env={**os.environ, "CONFIG": str(self._config), "MODE": "act"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_SECONDS
        while "What happens:" not in (text := (self.folder / "up.out").read_text()):
            if self._up.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the stack is not up:\n{text}")
            time.sleep(0.5)
        self._ports = json.loads((self._stack / "ports.json").read_text())
        threading.Thread(target=self._poll, daemon=True).start()

    def _write(self) -> None:
        self._config.mkdir(parents=True)
        free = ports.choose(any_free=True)
        exporter = {
            "state_folder": "state",
            # the host has other work, which may take the memory
            "host": {"memory_available_floor": "256MiB"},
            "runs": [program.watched() for program in self.programs],
        }
        remediator = {
            "mode": "act",
            "token_file": "token",
            "exporter": {"url": f"http://127.0.0.1:{free['exporter']}", "config": "exporter.yml"},
            "alertmanager": {"url": f"http://127.0.0.1:{free['alertmanager']}"},
            "breaker": {"actions": 1000},
            "targets": [part.target() for part in self._parts()],
        }
        for name, content in {"exporter": exporter, "remediator": remediator}.items():
            (self._config / f"{name}.yml").write_text(yaml.safe_dump(content, sort_keys=False))

    def _poll(self) -> None:
        """Remember from when to when each alert that notifies the on-call was active."""
        query = "active=true&silenced=false&inhibited=false&receiver=on-call"
        while not self._over.wait(POLL_SECONDS):
            url = f"http://127.0.0.1:{self._ports['alertmanager']}/api/v2/alerts?{query}"
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    found = json.load(answer)
            except (OSError, ValueError):
                continue
            now = time.time()
            for one in found:
                labels = one["labels"]
                key = f"{one['fingerprint']} {one['startsAt']}"
                kept = {name: labels.get(name, "") for name in ("alertname", "run", "severity")}
                self.alerts.setdefault(key, {**kept, "from": now})["until"] = now

    def kill_part(self, part: str) -> str:
        try:
            programs = supervision.read_programs(self._stack / "supervisor.sock")
        except OSError as error:
            return f"not asked: {error}"
        pid = programs[part].pid
        if not pid:
            return ""
        os.kill(pid, signal.SIGKILL)
        return f"pid {pid}"

    def found(self) -> dict[str, Any]:
        command = (SCRIPTS / "trainwarden-remediator", "journal", "--json", "--config.file")
        file = self._config / "remediator.yml"
        output = subprocess.run([*command, file], capture_output=True, text=True, check=False)
        journal = [json.loads(line) for line in output.stdout.splitlines()]
        return {"journal": journal, "alerts": list(self.alerts.values())}

    def stop(self) -> None:
        self._over.set()
        if self._up is not None:
            self._up.send_signal(signal.SIGINT)
            try:
                self._up.wait(90)
            except subprocess.TimeoutExpired:
                self._up.kill()
                self._up.wait()


KEEPERS: tuple[type[Keeper], ...] = (Nobody, Systemd, Supervisord, Trainwarden)
