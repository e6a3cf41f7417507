"""Makes the demo's simulated GPUs, where there is a C compiler, and keeps them moving."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rendering
from stack import PROJECT

NAME = "simulated-gpus"
"""What supervisord knows the program by."""

_ANIMATE = PROJECT / "examples" / "simulated-gpu" / "animate.py"


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated GPUs, or the reason why there are none."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What leads a program to them; empty where there are none."""
    missing: str = ""

    @property
    def present(self) -> bool:
        return bool(self.environment)

    def seen_by(self, command: Sequence[str | Path]) -> Sequence[str | Path]:
        """`command`, so that it sees these GPUs; itself where there are none."""
        if not self.present:
            return command
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), *command]


def prepare(folder: Path) -> Simulation:
    """Make simulated GPUs in `folder`, as far as they are needed before the programs that look."""
    (folder / "holders").mkdir(parents=True)
    result = subprocess.run(
        [*_command(folder), "--prepare"], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["it does not say why"]
        return Simulation(folder, missing=lines[-1].removeprefix("animate: "))
    pairs = (line.partition("=")[::2] for line in result.stdout.splitlines())
    return Simulation(folder, dict(pairs))


def program(simulation: Simulation, folder: Path) -> str:
    """The section of supervisord.conf that keeps the GPUs moving; empty where there are none.

    `folder` is that of the whole run. First to start and last to stop: the others look at it.
    """
    if not simulation.present:
        return ""
    return (
        f"\n[program:{NAME}]\n"
        f"command={rendering.command(_command(simulation.folder))}\n"
        "priority=5\n"
        "startsecs=1\n"
        "autorestart=true\n"
        f"stdout_logfile={rendering.escaped(str(folder / 'logs' / NAME))}.log\n"
        "stdout_logfile_maxbytes=1MB\n"
        "stdout_logfile_backups=1\n"
        "redirect_stderr=true\n"
    )


def _command(folder: Path) -> list[str | Path]:
    return [sys.executable, _ANIMATE, "--folder", folder, "--devices", "2"]
