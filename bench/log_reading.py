"""Reading files that are there, once: as a follower of ours does, and mtail.

mtail is given a program that counts what the exporter's patterns count.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden_exporter.frameworks import get_framework
from trainwarden_exporter.frameworks.base import LinePattern
from trainwarden_exporter.frameworks.error_lines import COMMON_ERROR_PATTERNS
from trainwarden_exporter.logs.follower import LogFollower
from trainwarden_exporter.logs.specs import LogSpec
from trainwarden_exporter.logs.state import LogState

MTAIL_LONGEST = 900
"""Characters that mtail, which takes no more than 1024, is given in one expression."""
TIMES = 3
"""That the same is read, as what a program takes to begin is not always the same."""
POLL_SECONDS = 0.005
"""Seconds between two memory readings of the measured process."""


def patterns(framework: str) -> tuple[LinePattern, ...]:
    """All that is looked for in a log of `framework`."""
    found = {
        pattern.name: pattern
        for pattern in (*COMMON_ERROR_PATTERNS, *get_framework(framework).lines)
    }
    return tuple(found.values())


def used_by(call: Callable[..., None], *arguments: object) -> tuple[float, float]:
    """CPU seconds and MiB at most that `call` takes in a process of its own.

    Memory is sampled while it runs: the value at its end (ru_maxrss of getrusage(2))
    counts what it had before it became another program.
    """
    process = multiprocessing.get_context("spawn").Process(target=call, args=arguments)
    process.start()
    pid, most = process.pid or 0, 0.0
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        most = _most_memory(pid) or most
        time.sleep(POLL_SECONDS)
    if status:
        raise SystemExit("it failed")
    return usage.ru_utime + usage.ru_stime, most


def _most_memory(pid: int) -> float | None:
    """MiB that the program had at most until now (proc(5), VmHWM); None where it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return None if found is None else int(found[1]) / 1024


def read_all(folder: Path, names: Sequence[str], size: int, found: tuple[LinePattern, ...]) -> None:
    """Read the files as a follower does that finds them new."""
    spec = LogSpec("run", "log", folder, tuple(names), found)
    follower = LogFollower(spec, LogState(listed=time.time() - 60))
    while follower.poll().read_bytes < size:
        pass


def programs(found: Sequence[LinePattern]) -> dict[str, str]:
    """Programs of mtail that count the same, by how they do it."""
    regexes = {
        pattern.name: re.sub(r"\(\?P<\w+>", "(?:", pattern.regex).replace("/", r"\/")
        for pattern in found
    }
    counters = "".join(f"counter n_{name}\n" for name in regexes)
    actions = {name: f"/{regex}/ {{\n  n_{name}++\n}}\n" for name, regex in regexes.items()}
    groups: list[dict[str, str]] = [{}]
    for name, regex in regexes.items():
        if sum(map(len, groups[-1].values())) + len(regex) > MTAIL_LONGEST:
            groups.append({})
        groups[-1][name] = f"(?:{regex})|"
    guarded = (
        f"/{''.join(group.values())[:-1]}/ {{\n{''.join(actions[name] for name in group)}}}\n"
        for group in groups
    )
    return {
        "one expression after the other": counters + "".join(actions.values()),
        "first some in one": counters + "".join(guarded),
    }


def run_mtail(folder: Path, names: Sequence[str], _: int, mtail: str, progs: str) -> None:
    """Let mtail read the files once, in place of this process."""
    logs = ",".join(str(folder / name) for name in names)
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - it has to have a descriptor
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    command = [mtail, "--one_shot", "--progs", progs, "--logs", logs]
    os.execv(mtail, command)  # noqa: S606 - it is the program to be measured


@dataclass(frozen=True)
class Reading:
    """What reading files once takes: CPU seconds (per GB too) beyond those for nothing, MiB."""

    cpu: float
    per_gb: float
    most: float
    least: float
    """MiB where there is nothing to read."""


def measured(paths: Sequence[Path], read: Callable[..., None], *more: object) -> Reading:
    """What `read` takes for `paths`: CPU by the median of some times, memory at most."""
    folder, size = paths[0].parent, sum(path.stat().st_size for path in paths)
    (folder / "empty.log").touch()

    def take(names: Sequence[str], size: int) -> tuple[float, float]:
        taken = [used_by(read, folder, names, size, *more) for _ in range(TIMES)]
        return statistics.median(cpu for cpu, _ in taken), max(memory for _, memory in taken)

    idle, least = take(["empty.log"], 0)
    used, most = take([path.name for path in paths], size)
    return Reading(used - idle, (used - idle) / size * 1e9, most, least)
