"""Programs as their users run them, and the stack that watches them with the proposed file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.real.cases import Case
from tests.waiting import until

from running import SCRIPTS, Up, fetch, up

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
VERSIONS = HERE.parents[1] / "docs" / "real_versions.json"
PYTHON = Path(os.environ.get("TRAINWARDEN_REAL_PYTHON", ".venv-real/bin/python")).absolute()
EXPORTER = SCRIPTS / "trainwarden-exporter"
PATIENCE = 300.0
"""Imports of a framework take long on a loaded machine, and alerts their time."""


@cache
def version(package: str, python: Path = PYTHON) -> str:
    """Returns the installed version; empty without one."""
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"{python}: {error.strerror}; run make test-real")
    return done.stdout.strip()


def require(case: Case) -> None:
    """Skips the test, and says so in the table, if the package is not installed."""
    if not version(case.package):
        reason = f"{case.package} is not installed"
        _record(case.program, _row(case) | {"skipped": reason})
        pytest.skip(reason)


def record_seen(case: Case, *what: str) -> None:
    """Adds to the table of docs/frameworks.md what this version showed."""
    _record(case.program, _row(case) | {"version": version(case.package), "shown": list(what)})


def _row(case: Case) -> dict[str, Any]:
    return {"package": case.package, "framework": case.framework}


def _record(name: str, row: dict[str, Any]) -> None:
    with VERSIONS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        table = json.load(file)
        before = table.get(name, {})
        if before.get("version") == row.get("version"):
            row["shown"] = sorted({*before.get("shown", ()), *row.get("shown", ())})
        file.seek(0)
        file.truncate()
        file.write(json.dumps(table | {name: row}, indent=2, sort_keys=True) + "\n")


@dataclass
class Program:
    """A program of a framework in its own folder."""

    case: Case
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    name: str = ""
    """Of its run in the proposed file."""

    arguments: tuple[str, ...] = ()
    """In addition to steps and seconds."""

    def start(self, steps: int) -> None:
        environment = {key: value for key, value in os.environ.items() if "PYTHON" not in key}
        environment |= {
            "PYTHONPATH": str(PROGRAMS),
            "PWD": str(self.folder),
            "TRUTH_FOLDER": str(self.folder),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            # Ray would end its worker for the memory of others, and give up on a slow machine.
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_raylet_start_wait_time_s": str(int(PATIENCE)),
        }
        numbers = (str(steps), str(self.case.seconds), *self.arguments)
        with (self.folder / "trainer.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, PROGRAMS / f"{self.case.program}.py", *numbers],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        # Its shell would reap it at once.
        threading.Thread(target=self.process.wait, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """Returns the process and all below it, the lowest last."""
        if self.process is None or not self.alive:
            return []
        try:
            root = psutil.Process(self.process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: signal.Signals) -> int:
        """Signals the process and all below it; returns how many that were."""
        tree = self.tree()
        for one in tree:
            try:
                one.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        return len(tree)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def truth(self, kind: str) -> list[dict[str, Any]]:
        path = self.folder / "truth.jsonl"
        # the last line may be half written
        lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
        return [event for line in lines if (event := json.loads(line))["kind"] == kind]

    @property
    def last_step(self) -> int:
        return int(self.truth("step")[-1]["step"])

    @property
    def written_step(self) -> int:
        """The last step in its files; while it runs, it may be further."""
        if not self.case.reports or not self.alive:
            return self.last_step
        newest = max(self.folder.glob(self.case.reports), key=lambda path: path.stat().st_mtime)
        # the last line may be half copied
        line = newest.read_text().rpartition("\n")[0].splitlines()[-1]
        return int(json.loads(line)["training_iteration"])

    def wait_for(self, kind: str, count: int) -> None:
        """Waits until the program has recorded `count` events."""
        until(lambda: len(self.truth(kind)) >= count or not self.alive, PATIENCE)
        assert self.alive, self.log()

    def log(self) -> str:
        return (self.folder / "trainer.log").read_text(errors="replace")[-3000:]

    @contextmanager
    def order(self, what: str) -> Iterator[None]:
        """Has the program do something until the end of the block."""
        file = self.folder / f"do.{what}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()


@dataclass
class Watched:
    """The stack, with an exporter beside it that has an old kernel."""

    stack: Up
    config: Path
    old_port: int
    ports: dict[str, str] = field(default_factory=dict)

    def samples(self, run: str, *, old_kernel: bool = False) -> dict[str, list[Any]]:
        """Returns the samples of a run by name, as the exporter shows them now."""
        url = f"http://127.0.0.1:{self.old_port}" if old_kernel else self.stack.url("exporter")
        found: dict[str, list[Any]] = {}
        for family in text_string_to_metric_families(fetch(f"{url}/metrics")[1]):
            for sample in family.samples:
                if sample.labels.get("run") == run:
                    found.setdefault(sample.name.removeprefix("trainwarden_"), []).append(sample)
        return found

    def value(
        self, run: str, metric: str, *, old_kernel: bool = False, **labels: str
    ) -> float | None:
        """Returns the sum of the samples with these labels; None without any."""
        samples = self.samples(run, old_kernel=old_kernel).get(metric, [])
        values = [one.value for one in samples if labels.items() <= one.labels.items()]
        return sum(values) if values else None

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        url = f"{self.stack.url('Prometheus')}/api/v1/query?query={quote(expression)}"
        return list(json.loads(fetch(url)[1])["data"]["result"])

    def firing(self, run: str, severity: str = ".*") -> set[str]:
        """Returns the alerts of the run that fire now."""
        return self._alerts(f'ALERTS{{alertstate="firing",run="{run}",severity=~"{severity}"}}')

    def fired(self, run: str, severity: str, since: float) -> set[str]:
        """Returns the alerts of the run that fired at any moment of the last seconds."""
        what = f'ALERTS{{alertstate="firing",run="{run}",severity=~"{severity}"}}'
        return self._alerts(f"max_over_time({what}[{int(since)}s])")

    def _alerts(self, expression: str) -> set[str]:
        return {one["metric"]["alertname"] for one in self.query(expression)}


def propose(programs: list[Program], config: Path) -> None:
    """Lets `discover` look at the programs' folder, or at the host, and `check` what it writes."""
    (only,) = programs if len(programs) == 1 else (None,)
    where = [] if only is None else [only.folder]
    command: list[str | Path] = [EXPORTER, "discover", *where, "--output", config]
    subprocess.run(command, check=True)
    file = config / "exporter.yml"
    content = yaml.safe_load(file.read_text())
    for program in programs:
        own = [run for run in content["runs"] if _is_in(run, program.folder)]
        assert len(own) == 1, file.read_text()
        program.name = own[0]["name"]
        assert own[0].get("framework", "generic") == program.case.framework, file.read_text()
    if only is None:  # others may run on this host: delete theirs, as the head of the file says
        names = {program.name for program in programs}
        content["runs"] = [run for run in content["runs"] if run["name"] in names]
        file.write_text(yaml.safe_dump(content))
    subprocess.run([EXPORTER, "check", file], check=True)
    # Its ports are the usual ones, which may be in use here: `make up` makes one with free ports.
    (config / "remediator.yml").unlink()


def _is_in(run: Mapping[str, Any], folder: Path) -> bool:
    return (Path(run["path"]) / ".").is_relative_to(folder)


@contextmanager
def watched(programs: list[Program], folder: Path) -> Iterator[Watched]:
    """Watches running programs with the proposed file, on this kernel and on an old one."""
    config, old = folder / "config", folder / "old"
    propose(programs, config)
    old.mkdir()
    (old / "exporter.yml").write_text((config / "exporter.yml").read_text())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    with ExitStack() as ending:
        beside = subprocess.Popen(
            [
                *(sys.executable, HERE / "old_kernel.py", "run"),
                f"--config.file={old / 'exporter.yml'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=ending.enter_context((folder / "old.log").open("wb")),
            stderr=subprocess.STDOUT,
        )
        ending.callback(beside.wait)
        ending.callback(beside.kill)
        stack = ending.enter_context(up(folder / "stack", CONFIG=str(config), MODE="observe"))
        stack.wait_until_up()
        seen = Watched(stack, config, port)
        for program in programs:
            until(lambda name=program.name: seen.samples(name), PATIENCE)  # type: ignore[misc]
            until(lambda name=program.name: seen.samples(name, old_kernel=True), PATIENCE)  # type: ignore[misc]
        yield seen
