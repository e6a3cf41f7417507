"""The real programs that faults befall: those of tests/real, several of each."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import ports
from stack import PROJECT

SCRIPTS = PROJECT / "tests" / "real" / "programs"
LAUNCHER = SCRIPTS / "launched.py"
PYTHON = Path(os.environ.get("TRAINWARDEN_REAL_PYTHON", PROJECT / ".venv-real/bin/python"))
VLLM = PYTHON.parents[1] / "vllm" / "bin" / "vllm"
SECONDS = 1.0
"""Of a step, beside what the framework needs for it."""
ENDLESS = 100_000
OWN_DISK = 96 << 20
"""Bytes. A real file system: of one in memory, a reader cannot tell that it needs no disk."""


@dataclass(frozen=True)
class Kind:
    """A program of a framework."""

    script: str
    faults: tuple[str, ...]
    limit: int
    """Its memory limit in MiB: some hundred more than it needs."""
    watched: Mapping[str, Any]
    """Its run in exporter.yml, beside name, path, log and worker."""
    log: str = "trainer"
    """The name of its log in the layout of the framework."""
    listens: bool = False
    role: str = "trainer"
    """The role and the name of its worker."""
    server: Kind | None = None
    """Its inference server."""


DEADLY = ("kill", "stop", "hang", "leak")
OF_LOGS = ("renamed", "truncated")
TRAINER = (*DEADLY, "half", "disk", "nan", *OF_LOGS)
MODEL = {
    "name": "model",
    "folder": ".",
    "entry": r"step_(?P<step>\d+)\.pt",
    "complete": {"settled": ["*"]},
}
SERVER = Kind("vllm_server", (), 4500, {}, listens=True, role="inference")
KINDS: Mapping[str, Kind] = {
    "trainer": Kind("transformers_trainer", TRAINER, 800, {"framework": "trl"}),
    "sft": Kind("trl_sft", TRAINER, 900, {"framework": "trl"}),
    "plain": Kind(
        "plain",
        (*DEADLY, "half", "disk", "port", *OF_LOGS),
        500,
        {"checkpoints": [MODEL]},
        listens=True,
    ),
    "search": Kind(
        "optuna_search",
        (*DEADLY, *OF_LOGS),
        500,
        {"framework": "optuna"},
        log="workers",
    ),
    "ray": Kind(
        "ray_train",
        ("kill", "hang", "stop", *OF_LOGS),
        2600,
        {"framework": "ray_train"},
        log="driver",
    ),
    "served": Kind(
        "served",
        ("server_kill", "server_hang", "kill", *OF_LOGS),
        500,
        {"checkpoints": [MODEL]},
        server=SERVER,
    ),
}


@dataclass
class Program:
    """One of them, in a folder of its own."""

    name: str
    kind: Kind
    folder: Path
    steps: int = ENDLESS
    is_spared: bool = False
    """Whether no fault befalls it."""
    port: int = 0
    server: Program | None = None
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def parts(self) -> Sequence[Program]:
        """What is started, watched and ended: its server, if it has one, and itself."""
        return (self,) if self.server is None else (self.server, self)

    @property
    def out(self) -> Path:
        """The folder of its checkpoints: a disk of its own."""
        return self.folder / "out"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.kind.role}.log"

    @property
    def faults(self) -> Sequence[str]:
        return () if self.is_spared else self.kind.faults

    @property
    def command(self) -> list[str]:
        # an argument that it does not read: by this it is found, and no other
        mark = f"of={self.folder}"
        own: tuple[object, ...] = ()
        if self.kind is SERVER:
            own = (self.port,)
        elif self.server is not None:
            own = (self.server.address,)
        arguments = (self.kind.script, self.steps, SECONDS, *own, mark)
        return [str(PYTHON), str(LAUNCHER), *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PYTHONPATH": str(SCRIPTS),
            "TRUTH_FOLDER": str(self.folder),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        }
        joins = self.port and self.kind is not SERVER
        return own | ({"LAUNCHED_PORT": str(self.port)} if joins else {})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether it is a server that is ready."""
        try:
            url = f"http://127.0.0.1:{self.port}/health"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == http.client.OK)
        except OSError:
            return False

    def prepare(self, *, own_disk: bool) -> None:
        """Make its folder; with its own disk if this account may mount one."""
        self.out.mkdir(parents=True)
        if own_disk:
            image = self.folder / "disk.img"
            with image.open("wb") as file:
                file.truncate(OWN_DISK)
            make = ("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
            for command in (make, ("mount", "-o", "loop", image, self.out)):
                subprocess.run(command, check=True)
        if self.kind.listens:
            self.port = ports.free_port()
        if self.kind.server is not None:
            self.server = Program(self.name, self.kind.server, self.folder / "server")
            self.server.prepare(own_disk=False)

    def close(self) -> None:
        """Give its disk back."""
        if self.out.is_mount():
            subprocess.run(("umount", "--lazy", self.out), check=True)

    def start(self) -> None:
        """Start it as its operator would, without its server, and reap it when it ends."""
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept_environment() | self.environment | {"PWD": str(self.folder)},
                start_new_session=True,
            )
        self.children.append(child)
        threading.Thread(target=child.wait, daemon=True).start()

    def watched(self) -> dict[str, Any]:
        """Its run in exporter.yml."""
        # the journal of a search lies beside its log, on no disk of its own
        path = self.folder if self.kind.script == "optuna_search" else self.out
        log = {"name": self.kind.log, "files": [str(self.log)], "role": "trainer"}
        workers = [part.worker() for part in self.parts]
        own = {"name": self.name, "path": str(path), "logs": [log], "workers": workers}
        if self.server is not None:
            own["inference"] = [{"name": "vllm", "worker": self.server.kind.role}]
        return own | dict(self.kind.watched)

    def worker(self) -> dict[str, Any]:
        """Its worker in its run."""
        return {
            "name": self.kind.role,
            "role": self.kind.role,
            "match": {"command": re.escape(f"of={self.folder}") + "$"},
            "memory_limit": f"{self.kind.limit}MiB",
            "finishes": self.kind is not SERVER,
        }

    def target(self) -> dict[str, Any]:
        """Its target in remediator.yml."""
        process = {
            "start": self.command,
            "cwd": str(self.folder),
            "log": str(self.log),
            "environment": self.environment,
            "set_damaged_aside": True,
        }
        return {"run": self.name, "worker": self.kind.role, "process": process}

    def processes(self) -> list[psutil.Process]:
        """All that belong to it now, found by its folder; the launcher's first."""
        mark = f"of={self.folder}"
        roots = [one for one in psutil.process_iter() if self._owns(one, mark)]
        found: dict[int, psutil.Process] = {}
        for root in roots:
            try:
                found |= {one.pid: one for one in (root, *root.children(recursive=True))}
            except psutil.NoSuchProcess:
                continue
        return list(found.values())

    def _owns(self, process: psutil.Process, mark: str) -> bool:
        try:
            # the engine of a server outlives it, without its command line
            is_engine = self.kind is SERVER and process.cwd() == str(self.folder)
            return is_engine or mark in process.cmdline()
        except psutil.Error:
            return False


def kept_environment() -> dict[str, str]:
    """What a program is given of the environment of the bench."""
    return {key: value for key, value in os.environ.items() if "PYTHON" not in key}


class Truth:
    """What a program has recorded of itself, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "truth.jsonl"
        self._read = 0
        self.events: list[dict[str, Any]] = []

    def look(self) -> list[dict[str, Any]]:
        """All events so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(newline)
            self.events += [json.loads(line) for line in whole.splitlines()]
        return self.events

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind so far."""
        return [event for event in self.look() if event["kind"] == kind]


def make(names: Mapping[str, str], folder: Path, *, own_disk: bool) -> list[Program]:
    """Programs of these names and roles, ready to be started.

    The name up to the dash is the kind. Roles: `faulty`, `spared`, or `ends:STEPS`.
    """
    made = []
    for name, role in names.items():
        kind = KINDS[name.partition("-")[0]]
        steps = int(role.partition(":")[2] or ENDLESS)
        program = Program(name, kind, folder / name, steps, is_spared=role != "faulty")
        program.prepare(own_disk=own_disk and not program.is_spared)
        made.append(program)
    return made
