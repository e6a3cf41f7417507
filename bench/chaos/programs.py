"""The real programs that faults befall: those of tests/real, several of each."""

from __future__ import annotations

import json
import os
import re
import subprocess
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


DEADLY = ("kill", "stop", "hang", "leak")
OF_LOGS = ("renamed", "truncated")
TRAINER = (*DEADLY, "half", "disk", "nan", *OF_LOGS)
MODEL = {
    "name": "model",
    "folder": ".",
    "entry": r"step_(?P<step>\d+)\.pt",
    "complete": {"settled": ["*"]},
}
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
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def out(self) -> Path:
        """The folder of its checkpoints: a disk of its own."""
        return self.folder / "out"

    @property
    def log(self) -> Path:
        return self.folder / "trainer.log"

    @property
    def faults(self) -> Sequence[str]:
        return () if self.is_spared else self.kind.faults

    @property
    def command(self) -> list[str]:
        # an argument that it does not read: by this it is found, and no other
        mark = f"of={self.folder}"
        arguments = (self.kind.script, self.steps, SECONDS, mark)
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
        return own | ({"LAUNCHED_PORT": str(self.port)} if self.port else {})

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

    def close(self) -> None:
        """Give its disk back."""
        if self.out.is_mount():
            subprocess.run(("umount", "--lazy", self.out), check=True)

    def start(self) -> subprocess.Popen[bytes]:
        """Start it as its operator would; the caller reaps it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept_environment() | self.environment | {"PWD": str(self.folder)},
                start_new_session=True,
            )

    def watched(self) -> dict[str, Any]:
        """Its run in exporter.yml."""
        worker = {
            "name": "trainer",
            "role": "trainer",
            "match": {"command": re.escape(f"of={self.folder}") + "$"},
            "memory_limit": f"{self.kind.limit}MiB",
            "finishes": True,
        }
        # the journal of a search lies beside its log, on no disk of its own
        path = self.folder if self.kind.script == "optuna_search" else self.out
        log = {"name": self.kind.log, "files": [str(self.log)], "role": "trainer"}
        own = {"name": self.name, "path": str(path), "logs": [log], "workers": [worker]}
        return own | dict(self.kind.watched)

    def target(self) -> dict[str, Any]:
        """Its target in remediator.yml."""
        process = {
            "start": self.command,
            "cwd": str(self.folder),
            "log": str(self.log),
            "environment": self.environment,
            "set_damaged_aside": True,
        }
        return {"run": self.name, "worker": "trainer", "process": process}

    def processes(self) -> list[psutil.Process]:
        """All that belong to it now, found by its folder; the launcher's first."""
        mark = f"of={self.folder}"
        roots = [
            one for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or ())
        ]
        found: dict[int, psutil.Process] = {}
        for root in roots:
            try:
                found |= {one.pid: one for one in (root, *root.children(recursive=True))}
            except psutil.NoSuchProcess:
                continue
        return list(found.values())


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
