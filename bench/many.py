"""What much of one thing costs: 200 servers, 10,000 checkpoints, 1,000 heartbeats.

    python bench/many.py

Each is watched by an exporter of its own, in turn. The servers answer as vLLM does (see
inference_probes.py) and are asked each 5 s, as shipped; blackbox_exporter is asked about each of
them once in the same time. The heartbeats are files.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from inference_probes import serve
from peers import peer
from programs import COST_COLUMNS, cost_cells, exporter, free_port, running
from results import Result, milliseconds

SERVERS, CHECKPOINTS, BEATS = 200, 10_000, 1_000
SETTLE_SECONDS = 15.0
WATCHED_SECONDS = 20.0
"""For which the CPU time is measured that goes on without a scrape: a few rounds of each watch."""
ROUND = 5.0
"""Seconds in which each server is asked once."""
SCRAPES = 40
NAMES = ("program", "watches", "CPU a second, unasked", *COST_COLUMNS)


@contextmanager
def servers() -> Iterator[str]:
    """The address of a process that answers as any number of inference servers."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=[there], daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()


def many_servers(url: str, count: int) -> Mapping[str, Any]:
    """What exporter.yml says of so many."""
    found = [{"name": f"s{n}", "engine": "vllm", "url": url} for n in range(count)]
    return {"runs": [{"name": "bench", "inference": found}]}


def many_checkpoints(folder: Path, count: int) -> Mapping[str, Any]:
    """What exporter.yml says of so many, which it makes."""
    for number in range(count):
        one = folder / f"step_{number}"
        one.mkdir(parents=True)
        (one / "model.safetensors").touch()
        (one / "done").touch()
    found = {
        "name": "all",
        "folder": ".",
        "entry": r"step_(?P<step>\d+)",
        "complete": {"marker": ["done"]},
    }
    return {"runs": [{"name": "bench", "path": str(folder), "checkpoints": [found]}]}


def many_heartbeats(folder: Path, count: int) -> Mapping[str, Any]:
    """What exporter.yml says of so many, which have each beaten once."""
    folder.mkdir()
    names = [f"beat-{number}" for number in range(count)]
    for name in names:
        (folder / name).touch()
    found = [{"name": name, "file": str(folder / name), "interval": "1h"} for name in names]
    return {"heartbeats": found}


def measured(folder: Path, watches: str, content: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of what an exporter with that configuration costs."""
    config, port = folder / "exporter.yml", free_port()
    config.write_text(yaml.safe_dump(content))
    with running(exporter(config, port), port) as program:
        program.scrape()
        time.sleep(SETTLE_SECONDS)
        before, began = program.cpu(), time.monotonic()
        time.sleep(WATCHED_SECONDS)
        unasked = (program.cpu() - before) / (time.monotonic() - began)
        cost = program.measure(SCRAPES, seconds=10)
    return "trainwarden", watches, milliseconds(unasked), *cost_cells(cost)


def blackbox(folder: Path, url: str, count: int) -> tuple[str, ...]:
    """A row of what blackbox_exporter costs that is asked about so many servers in a round."""
    path, version = peer("prometheus-blackbox-exporter")
    config, port = folder / "blackbox.yml", free_port()
    config.write_text(yaml.safe_dump({"modules": {"http": {"prober": "http"}}}))
    command: list[str | Path] = [
        path,
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, port, path=f"/probe?module=http&target={url}/health") as program:
        cost = program.measure(count, seconds=20)
    name, what = f"blackbox_exporter {version}", f"{count} servers, a scrape each"
    return name, what, milliseconds(cost.cpu * count / ROUND), *cost_cells(cost)


def bench() -> Result:
    rows = list[tuple[str, ...]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        things: dict[str, Callable[[], Mapping[str, Any]]] = {
            f"{CHECKPOINTS} checkpoints": lambda: many_checkpoints(folder / "all", CHECKPOINTS),
            f"{BEATS} heartbeats": lambda: many_heartbeats(folder / "beats", BEATS),
        }
        with servers() as url:
            content = many_servers(url, SERVERS)
            rows.append(measured(folder, f"{SERVERS} servers", content))
            rows.append(blackbox(folder, url, SERVERS))
        rows += [measured(folder, watches, content()) for watches, content in things.items()]
    return Result(
        "Much of one thing",
        "CPU time that watching takes each second, scrapes aside (of blackbox_exporter, that its "
        "scrapes take, each server once in 5 s), and what a scrape then costs.",
        NAMES,
        tuple(rows),
    )


if __name__ == "__main__":
    print(bench().text())
