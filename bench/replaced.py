"""What one exporter with everything switched on costs, beside all the programs it stands for.

    python bench/replaced.py

One box (everything.py) is watched by all at once: 64 workers, eight simulated GPUs, a log, a disk,
checkpoints, heartbeats, ten inference servers. Each is scraped at the shipped interval, of
blackbox_exporter once for each server.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from everything import SERVERS, Everything, everything
from log_reading import patterns, programs
from peers import PeerMissing, peer, python_peer
from programs import Program, free_port, running
from results import Result, mebibytes, milliseconds
from scrapes import INTERVAL, Command, commands

WORKERS = 64
WARM, ROUNDS = 4, 6
OURS, SUM = "trainwarden", "the peers together"


@dataclass(frozen=True, slots=True)
class Watcher:
    """A running program, and the pages that are asked of it in one interval."""

    program: Program
    pages: tuple[str, ...]


def mtail(box: Everything, port: int) -> list[str | Path]:
    """The command of mtail, with the program that counts what ours counts in the same log."""
    program, _ = peer("mtail")
    progs = box.folder / "mtail"
    progs.mkdir()
    source = next(iter(programs(patterns("generic")).values()))
    (progs / "same.mtail").write_text(source)
    files: list[str | Path] = ["--progs", progs, "--logs", box.log, "--log_dir", progs]
    return [program, *files, "--address", "127.0.0.1", "--port", str(port)]


def blackbox(folder: Path, port: int) -> list[str | Path]:
    """The command of blackbox_exporter, which knows how to ask by HTTP."""
    program, _ = peer("prometheus-blackbox-exporter")
    config = folder / "blackbox.yml"
    config.write_text(yaml.safe_dump({"modules": {"http": {"prober": "http"}}}))
    return [program, f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}"]


def nvitop(port: int) -> list[str | Path]:
    command, _ = python_peer("nvitop-exporter")
    return [*command, "--bind-address", "127.0.0.1", "--port", str(port)]


def started(stack: ExitStack, box: Everything) -> tuple[dict[str, Watcher], list[str]]:
    """All programs that watch that box, ours first, and what could not be had."""
    content = yaml.safe_load((box.folder / "exporter.yml").read_text(encoding="utf-8"))
    servers = [one["url"] for one in content["runs"][0]["inference"]]
    probes = tuple(f"/probe?module=http&target={url}/health" for url in servers)
    found, missing = commands(box.folder, WORKERS, typical=False)
    del found[OURS]  # it runs already
    wanted: dict[str, tuple[Command, tuple[str, ...]]] = {
        name: (command, ("/metrics",)) for name, command in found.items()
    }
    wanted["mtail"] = (partial(mtail, box), ("/metrics",))
    wanted["blackbox_exporter"] = (partial(blackbox, box.folder), probes)
    wanted["nvitop-exporter"] = (nvitop, ("/metrics",))
    watchers = {OURS: Watcher(box.program, ("/metrics",))}
    for name, (command, pages) in wanted.items():
        port = free_port()
        try:
            words = command(port)
        except PeerMissing as error:
            missing.append(str(error))
            continue
        program = stack.enter_context(running(words, port, environment=box.box.environment))
        watchers[name] = Watcher(program, pages)
    return watchers, missing


def scrape(watchers: Mapping[str, Watcher], rounds: int) -> None:
    """Ask each for its pages, so many times, at the shipped interval."""
    for _ in range(rounds):
        began = time.monotonic()
        for one in watchers.values():
            for page in one.pages:
                one.program.scrape(page)
        time.sleep(max(0.0, began + INTERVAL - time.monotonic()))


def bench() -> Result:
    """Measure all at once."""
    with ExitStack() as stack:
        box = stack.enter_context(everything(WORKERS))
        watchers, missing = started(stack, box)
        scrape(watchers, WARM)
        before = {name: one.program.cpu() for name, one in watchers.items()}
        began = time.monotonic()
        scrape(watchers, ROUNDS)
        seconds = time.monotonic() - began
        cpu: dict[str, float] = {
            name: (one.program.cpu() - before[name]) / seconds for name, one in watchers.items()
        }
        resident: dict[str, float] = {
            name: one.program.resident() for name, one in watchers.items()
        }
    for amounts in (cpu, resident):
        amounts[SUM] = sum(amount for name, amount in amounts.items() if name != OURS)
    return Result(
        "Everything switched on, beside all that it replaces",
        f"One box with {WORKERS} workers, eight simulated GPUs, a log, a disk, checkpoints, "
        f"heartbeats and {SERVERS} inference servers, watched by all at once, each scraped every "
        f"{INTERVAL:g} s (blackbox_exporter once for each server): memory in use at the end, and "
        "CPU time that goes into scrapes and into what is done between them."
        + "".join(f" {one}." for one in missing),
        ("program", "resident", "CPU a second"),
        tuple((name, mebibytes(resident[name]), milliseconds(cpu[name])) for name in cpu),
    )


if __name__ == "__main__":
    print(bench().text())
