"""A run dies on a real GPU and leaves processes behind: the whole stack has to end exactly these.

    python bench/gpu_night.py FOLDER

Needs PyTorch with CUDA, and Prometheus and Alertmanager as `trainwarden up` does. Another run and a
process that only observes use the same GPU and must go on. Prints what happened when, and ends
with 1 when a leftover remains, another process has ended, or the memory is not back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from programs import free_port
from trainwarden_exporter.processes.procfs import Identity, read_process

SCRIPTS = Path(sys.executable).parent
RULE = "TrainingGpuHeldByLeftovers"
YOUNG_SECONDS = 32
"""A little more than `gpu_cleanup.min_age`: younger processes are no leftovers."""

RUNS = {"evening": "server", "night": "trainer"}
CHILDREN = ("--hold engine 4096", "--hold tokenizer 1", "--hold rank-1 2048 --ignores")
"""What the run leaves behind: size in MiB; the last one ignores SIGTERM."""

HELD_BYTES = (4096 + 1 + 2048) << 20
LONGEST_SECONDS = 120.0
LIFE_SECONDS = 420
"""Seconds after which a process of this script ends, also when the script was killed."""


def hold(
    folder: Path, name: str, size: int, *, ignores: bool, works: bool, children: Sequence[str]
) -> None:
    """Holds `size` MiB of the GPU, and says so with the pids of its children."""
    import torch  # noqa: PLC0415 - the script that watches needs no PyTorch

    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignores else signal.SIG_DFL)
    held = torch.ones(size << 20, dtype=torch.uint8, device="cuda")
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), *shlex.split(child)],
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        for child in children
    ]
    for child in started:
        words_of(child)
    print(name, *(child.pid for child in started), flush=True)
    matrix = torch.ones(2048, 2048, device="cuda")
    deadline = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < deadline:
        if works:
            matrix = (matrix @ matrix).clamp(-1, 1)
            torch.cuda.synchronize()
        time.sleep(0.01 if works else 0.5)
    del held


def part(folder: Path, name: str, size: str, *options: str) -> list[str]:
    return [sys.executable, __file__, str(folder), "--hold", name, size, *options]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A part of a run that is ready, and its children; only the part itself is ended afterwards."""
    with (folder / "parts.log").open("a") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield process, [int(word) for word in words_of(process)[1:]]
        finally:
            process.kill()
            process.communicate()


def words_of(process: subprocess.Popen[str]) -> list[str]:
    """The words of the line that a part prints once it is ready."""
    words = (process.stdout.readline() if process.stdout else "").split()
    if not words:
        raise SystemExit("a part of the run ended before it was ready; see parts.log")
    return words


def identity(pid: int) -> Identity:
    process = read_process(pid)
    if process is None:
        raise SystemExit(f"process {pid} has ended")
    return process.identity


def lives(one: Identity) -> bool:
    found = read_process(one.pid)
    return found is not None and found.alive and found.identity == one


def write_config(folder: Path) -> Mapping[str, str]:
    """Writes two runs and a remediator that may clean up; returns the addresses."""
    place = re.escape(str(folder))
    runs = [
        {
            "name": run,
            "workers": [{"name": name, "match": {"command": rf"{place} --hold {name} "}}],
        }
        for run, name in RUNS.items()
    ]
    url = {name: f"http://127.0.0.1:{free_port()}" for name in ("exporter", "alertmanager")}
    remediator = {
        "mode": "act",
        "token_file": "token",
        "exporter": {"url": url["exporter"], "config": "exporter.yml"},
        "alertmanager": {"url": url["alertmanager"]},
        "gpu_cleanup": {},
    }
    (folder / "exporter.yml").write_text(yaml.safe_dump({"runs": runs}))
    (folder / "remediator.yml").write_text(yaml.safe_dump(remediator))
    return url


def fetch(url: str) -> str:
    with suppress(OSError), urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - on loopback
        return str(response.read().decode())
    return ""


@dataclass(frozen=True)
class Gpu:
    """Memory in use, in bytes, and the number of leftovers, as the exporter reports them."""

    used: float
    leftovers: float

    def __str__(self) -> str:
        return f"{self.used / 2**30:.2f} GiB in use, {self.leftovers:.0f} leftovers"


@dataclass
class Stack:
    """`trainwarden up` with the configuration in `folder`."""

    folder: Path
    process: subprocess.Popen[bytes]
    url: Mapping[str, str]

    def metric(self, name: str) -> float:
        """The sum of the samples of `trainwarden_<name>`, 0 where there is none."""
        page = fetch(f"{self.url['exporter']}/metrics")
        lines = re.findall(rf"^trainwarden_{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        return sum(map(float, lines))

    def gpu(self) -> Gpu:
        return Gpu(self.metric("gpu_memory_used_bytes"), self.metric("gpu_orphan_holders"))

    def fires(self) -> bool:
        alerts = json.loads(fetch(f"{self.url['alertmanager']}/api/v2/alerts") or "[]")
        return any(alert["labels"]["alertname"] == RULE for alert in alerts)

    def events(self, kind: str) -> list[dict[str, Any]]:
        command = [str(SCRIPTS / "trainwarden-remediator"), "journal", "--json", "--config.file"]
        text = subprocess.run(
            [*command, str(self.folder / "remediator.yml")],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        found = [json.loads(line) for line in text.splitlines()]
        return [one for one in found if one["kind"] == kind and one["alert"] == RULE]

    def wait(self, seen: Callable[[], object], what: str) -> float:
        """Returns the seconds until `seen`; ends the script when that takes too long."""
        began = time.monotonic()
        while not seen():
            if time.monotonic() - began > LONGEST_SECONDS or self.process.poll() is not None:
                raise SystemExit(f"not seen: {what}; see {self.folder / 'stack.log'}")
            time.sleep(0.2)
        return time.monotonic() - began


@contextmanager
def stack(folder: Path) -> Iterator[Stack]:
    url = write_config(folder)
    with (folder / "stack.log").open("w") as log:
        process = subprocess.Popen(
            [
                str(SCRIPTS / "trainwarden"),
                "up",
                "--config",
                str(folder),
                "--mode",
                "act",
                "--folder",
                str(folder / "stack"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Stack(folder, process, url)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def night(folder: Path) -> int:
    """Plays the night; 0 when exactly the leftovers have ended."""
    with ExitStack() as exits:
        own = exits.enter_context(stack(folder))
        server, _ = exits.enter_context(started(part(folder, "server", "1024", "--works"), folder))
        reader = ["sh", "-c", "exec 9</dev/nvidiactl; echo observer; read _"]
        observer, _ = exits.enter_context(started(reader, folder))
        options = [word for child in CHILDREN for word in ("--child", child)]
        trainer = part(folder, "trainer", "512", *options)
        launcher, pids = exits.enter_context(started(trainer, folder))
        leftovers = [identity(pid) for pid in pids]
        for one in leftovers:
            exits.callback(_end, one)
        others = {"server": identity(server.pid), "observer": identity(observer.pid)}
        own.wait(lambda: own.metric("gpu_up") >= 1, "the GPU")
        own.wait(lambda: own.metric("worker_processes") >= len(RUNS), "both runs")
        time.sleep(YOUNG_SECONDS)
        return watch(own, launcher, leftovers, others)


def watch(
    own: Stack,
    launcher: subprocess.Popen[str],
    leftovers: Sequence[Identity],
    others: Mapping[str, Identity],
) -> int:
    """Ends the launcher and prints what follows; as `night`."""
    before = own.gpu()
    launcher.kill()
    launcher.wait()
    died = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - died:6.1f} s  {what}", flush=True)

    tell(f"the run has died; before: {before}")
    own.wait(own.fires, "the alert")
    tell(f"the alert fires: {own.gpu()}")
    own.wait(lambda: not any(map(lives, leftovers)), "the end of the leftovers")
    tell("the leftovers have ended")
    own.wait(lambda: own.events("outcome"), "the outcome")
    after = own.gpu()
    tell(f"{own.events('outcome')[0]['facts']['outcome']}: {after}")
    (own.folder / "page.txt").write_text(fetch(f"{own.url['exporter']}/metrics"))
    facts = own.events("result")[0]["facts"]
    ended = {one["pid"] for one in facts["ended"]}
    checks = {
        "exactly the leftovers were ended": ended == {one.pid for one in leftovers},
        "only the process that ignores SIGTERM by force": facts["killed"] == [leftovers[-1].pid],
        "their memory is back": before.used - after.used > HELD_BYTES,
        **{f"the {name} goes on": lives(one) for name, one in others.items()},
    }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO':>8}  {what}")
    return int(not all(checks.values()))


def _end(one: Identity) -> None:
    if lives(one):
        os.kill(one.pid, signal.SIGKILL)


def main() -> int:
    """0 when all went as it must."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="an empty folder for configuration and logs")
    parser.add_argument("--hold", nargs=2, metavar=("NAME", "MIB"), help="be a part of a run")
    parser.add_argument("--ignores", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--works", action="store_true", help="keep the GPU busy")
    parser.add_argument("--child", action="append", default=[], help="arguments of a child")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.hold is None:
        return night(folder)
    name, size = options.hold
    flags = {"ignores": options.ignores, "works": options.works}
    hold(folder, name, int(size), children=options.child, **flags)
    return 0


if __name__ == "__main__":
    sys.exit(main())
