"""What `trainwarden run` costs beside the command that it runs, and beside programs like it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from results import Result

OURS = "trainwarden run"
MIB = 1 << 20
REST_SECONDS = 60.0
"""How long the CPU time at rest is measured; the kernel counts it by hundredths of a second."""
SETTLE_SECONDS = 3.0
DEADLINE_SECONDS = 120.0
OUTPUT_MIB = 200
SLEEP = ("sleep", "1000.5")
COMMAND_NAMES = ("sleep", "sh", "dash", "bash")
"""The command, and the shell in which `script` starts it."""
PRINT = ("head", "-c", str(OUTPUT_MIB * MIB), "/dev/zero")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of all processes of a wrapper, without the command: their number, bytes and seconds."""

    processes: int
    largest: int
    """Resident memory of its largest process."""
    shared: int
    """Memory of all of them, with each shared page counted once (PSS)."""
    at_rest: float
    """CPU time while the command prints nothing."""
    output: float | None
    """CPU time for OUTPUT_MIB of output; None for a program that keeps it elsewhere."""


def run_ours(folder: Path, command: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "trainwarden", "run", "--name", folder.name, "--", *command]


def run_script(_: Path, command: Sequence[str]) -> list[str]:
    return ["script", "-q", "-c", " ".join(command), "/dev/null"]


def run_supervisord(folder: Path, command: Sequence[str]) -> list[str]:
    configuration = folder / "supervisord.conf"
    configuration.write_text(
        f"[supervisord]\nnodaemon=true\nuser={psutil.Process().username()}\n"
        f"logfile={folder}/log\npidfile={folder}/pid\n"
        f"[program:command]\ncommand={' '.join(command)}\nstdout_logfile={folder}/out\n",
        encoding="utf-8",
    )
    program = Path(sys.executable).with_name("supervisord")
    return [str(program), "-s", "-c", str(configuration)]


Wrapped = Callable[[Path, Sequence[str]], list[str]]
WRAPPERS: dict[str, Wrapped] = {
    OURS: run_ours,
    "script -q": run_script,
    "supervisord": run_supervisord,
}


def wrapper_processes(root: psutil.Process) -> list[psutil.Process]:
    """The processes of a wrapper, once its command runs; without the command and its shell."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        members = [root, *root.children(recursive=True)]
        if any(one.name() == SLEEP[0] for one in members):
            return [one for one in members if one.name() not in COMMAND_NAMES]
        time.sleep(0.05)
    raise SystemExit("the command does not start")


def cpu_seconds(members: Sequence[psutil.Process]) -> float:
    return sum(one.cpu_times().user + one.cpu_times().system for one in members)


@contextmanager
def _started(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TRAINWARDEN_FOLDER": str(folder)}
    with subprocess.Popen(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)


def measure(wrapped: Wrapped, *, rest_seconds: float = REST_SECONDS, outputs: bool = True) -> Cost:
    """The cost of a wrapper, and without `outputs` none of output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _started(wrapped(folder, SLEEP), folder) as process:
            members = wrapper_processes(psutil.Process(process.pid))
            time.sleep(SETTLE_SECONDS)
            before = cpu_seconds(members)
            time.sleep(rest_seconds)
            at_rest = cpu_seconds(members) - before
            memory = [one.memory_full_info() for one in members]
        output = _output_seconds(wrapped(folder, PRINT), folder) if outputs else None
    largest, shared = max(one.rss for one in memory), sum(one.pss for one in memory)
    return Cost(len(members), largest, shared, at_rest, output)


def _output_seconds(arguments: Sequence[str], folder: Path) -> float:
    """CPU time of the whole, without that of the command alone."""

    def spent(command: Sequence[str]) -> float:
        before = os.times()
        environment = {**os.environ, "TRAINWARDEN_FOLDER": str(folder)}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        user = after.children_user - before.children_user
        return user + after.children_system - before.children_system

    return max(spent(arguments) - spent(PRINT), 0.0)


def bench() -> Result:
    """Each wraps the same two commands, one after the other."""
    rows = []
    for name, wrapped in WRAPPERS.items():
        cost = measure(wrapped, outputs=wrapped is not run_supervisord)
        rows.append(
            (
                name,
                f"{cost.largest / MIB:.1f} MiB",
                f"{cost.shared / MIB:.1f} MiB",
                f"{1000 * cost.at_rest:.0f} ms",
                "" if cost.output is None else f"{cost.output:.2f} s",
            )
        )
    return Result(
        "A command under `trainwarden run`",
        f"Memory of the processes beside the command `sleep`, CPU time in {REST_SECONDS:g} s in"
        f" which it prints nothing, and for {OUTPUT_MIB} MiB of output. `script` only passes the"
        " output on, supervisord only writes it to a file.",
        ("program", "largest process", "all, shared pages once", "CPU at rest", "CPU for output"),
        tuple(rows),
    )
