"""A box on which runs of real processes are watched by the whole stack, for the nights of runs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.waiting import connected

import children
import ports
from running import Up, fetch
from trainwarden_exporter.processes.procfs import (
    Identity,
    read_command_line,
    read_process,
    read_processes,
)


@dataclass(frozen=True)
class Part:
    """A worker of a run: what it is called, is for, and is started by."""

    name: str
    role: str
    command: Sequence[object]
    match: str
    """Regular expression for its command line, that no other's fits."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More of its entry in exporter.yml."""

    @property
    def start(self) -> list[str]:
        return [str(argument) for argument in self.command]

    def watched(self) -> dict[str, Any]:
        """Its entry in exporter.yml."""
        match = {"command": self.match}
        return {"name": self.name, "role": self.role, "match": match, **self.options}


@dataclass(frozen=True)
class Run:
    """A run, as its operator describes it; the first part is started first."""

    name: str
    parts: Sequence[Part]
    watched: Mapping[str, Any]
    """Its entry in exporter.yml, beside name and workers."""


class Box:
    """Runs in a folder, and the configuration that watches and heals them."""

    def __init__(self, folder: Path, runs: Sequence[Run]) -> None:
        self.folder = folder
        self.config = folder / "config"
        self.runs = {run.name: run for run in runs}
        self.started: dict[tuple[str, str], Identity] = {}
        self._children: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def write(self) -> None:
        """Write the configuration, with all defaults that heal."""
        self.config.mkdir()
        free = ports.choose(any_free=True)
        exporter = {
            "state_folder": "state",
            "runs": [
                {
                    "name": run.name,
                    **run.watched,
                    "workers": [part.watched() for part in run.parts],
                }
                for run in self.runs.values()
            ],
        }
        targets = [
            {
                "run": run.name,
                "worker": part.name,
                "process": {"start": part.start, "log": str(self.output(run.name, part.name))},
            }
            for run in self.runs.values()
            for part in run.parts
        ]
        remediator = {
            "mode": "act",
            "token_file": "token",
            "exporter": {"url": f"http://127.0.0.1:{free['exporter']}", "config": "exporter.yml"},
            "alertmanager": {"url": f"http://127.0.0.1:{free['alertmanager']}"},
            "targets": targets,
        }
        for name, content in {"exporter": exporter, "remediator": remediator}.items():
            (self.config / f"{name}.yml").write_text(yaml.safe_dump(content))

    def output(self, run: str, part: str) -> Path:
        """What it prints."""
        return self.folder / f"{run}-{part}.out"

    def start(self, run: str, name: str) -> None:
        """Start a part as its operator would."""
        part = next(part for part in self.runs[run].parts if part.name == name)
        with self.output(run, name).open("ab") as output:
            child = subprocess.Popen(
                part.start, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._children[run, name] = child
        process = read_process(child.pid)
        assert process is not None
        self.started[run, name] = process.identity

    def kill(self, run: str, name: str) -> None:
        """End a part that was started here, as nothing that ends well does."""
        child = self._children[run, name]
        child.kill()
        child.wait()

    def unchanged(self, run: str) -> bool:
        """Whether all parts of a run are the processes that were started here."""
        return all(
            child.poll() is None for (owner, _), child in self._children.items() if owner == run
        )

    def close(self) -> None:
        """End whatever of this box still runs: what was started here, and what was restarted."""
        for child in self._children.values():
            child.kill()
            child.wait()
        place = str(self.folder)
        for process in read_processes().values():
            if any(place in argument for argument in read_command_line(process.pid) or ()):
                children.send(process.identity, signal.SIGKILL)


@contextmanager
def a_box(folder: Path, runs: Sequence[Run]) -> Iterator[Box]:
    """The host with all its runs going; all of its processes end afterwards."""
    box = Box(folder, runs)
    with ExitStack() as stack:
        stack.callback(box.close)
        box.write()
        for run in runs:
            for part in run.parts:
                box.start(run.name, part.name)
        yield box


def listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def values(stack: Up, metric: str, /, **labels: str) -> list[float]:
    """The samples of `metric` that have these labels, as the exporter shows them now."""
    return [
        sample.value
        for family in parse_text(fetch(f"{stack.url('exporter')}/metrics")[1])
        for sample in family.samples
        if sample.name == f"trainwarden_{metric}" and labels.items() <= sample.labels.items()
    ]


def value(stack: Up, metric: str, /, **labels: str) -> float | None:
    """The one sample with these labels; None while there is none."""
    found = values(stack, metric, **labels)
    assert len(found) < 2, f"{metric} {labels}: {found}"
    return found[0] if found else None


class Watcher:
    """Remembers which alerts page the on-call for each run, and since when; muted ones on demand.

    Warnings are left out: Alertmanager sends them after five minutes, if they still fire.
    """

    def __init__(self, run: Up, *, muted: bool = False) -> None:
        query = "active=true&silenced=false" + ("" if muted else "&inhibited=false")
        self._url = f"{run.url('Alertmanager')}/api/v2/alerts?{query}"
        self.seen: dict[str, dict[str, float]] = {}
        self.now: dict[str, list[Mapping[str, Any]]] = {}
        """All alerts of the last look, by run."""

    def look(self) -> None:
        self.now = {}
        for alert in json.loads(fetch(self._url)[1]):
            run, name = alert["labels"].get("run", ""), alert["labels"]["alertname"]
            if alert["labels"]["severity"] == "critical":
                self.seen.setdefault(run, {}).setdefault(name, time.time())
            self.now.setdefault(run, []).append(alert)


def post(url: str) -> None:
    request = urllib.request.Request(url, method="POST", data=b"")  # noqa: S310 - on loopback
    connected(lambda: urllib.request.urlopen(request, timeout=60).close())  # noqa: S310 - as above


def events(journal: Sequence[Mapping[str, Any]], run: str, *kinds: str) -> list[Mapping[str, Any]]:
    """What a remediator's journal tells of a run."""
    return [event for event in journal if event["run"] == run and event["kind"] in kinds]
