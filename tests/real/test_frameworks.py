"""Real frameworks, as their users run them: discover, check, an unedited watch, and what it shows.

`make test-real` installs the frameworks into a virtual environment of their own and writes the
versions that passed to docs/real_versions.json, from which docs/frameworks.md is made.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.waiting import until

PROGRAMS = Path(__file__).parent / "programs"
VERSIONS = Path(__file__).resolve().parents[2] / "docs" / "real_versions.json"
PYTHON = Path(os.environ.get("TRAINWARDEN_REAL_PYTHON", ".venv-real/bin/python")).absolute()
EXPORTER = Path(sys.executable).with_name("trainwarden-exporter")
STEPS = 200
START_SECONDS = 180.0
"""Imports of a framework take long on a loaded machine."""


@dataclass(frozen=True)
class Case:
    """A program, its package, and what `discover` should recognise."""

    program: str
    package: str
    framework: str
    complete: str = ""
    """Glob of the checkpoints; empty if it makes none."""

    has_live_log: bool = True
    """Whether its log shows steps live: a bar of Rich writes nothing into a file."""

    @property
    def has_steps(self) -> bool:
        return bool(self.complete)


CASES = (
    Case("plain", "torch", "generic", "step_*"),
    Case("transformers_trainer", "transformers", "trl", "checkpoint-*"),
    Case("lightning_trainer", "lightning", "lightning", "step=*", has_live_log=False),
    Case("optuna_search", "optuna", "optuna"),
)


def version(package: str) -> str:
    """Returns the installed version; skips the test without one."""
    script = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"{PYTHON}: {error.strerror}; run make test-real")
    if done.returncode:
        pytest.skip(f"{package} is not installed in {PYTHON.parents[1]}")
    return done.stdout.strip()


@dataclass
class Run:
    """A running program in its folder, with an exporter that watches it unedited."""

    case: Case
    folder: Path
    program: subprocess.Popen[bytes]
    port: int = 0
    name: str = ""

    def truth(self, kind: str) -> list[dict[str, Any]]:
        path = self.folder / "truth.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for line in lines if (event := json.loads(line))["kind"] == kind]

    def metrics(self) -> dict[str, float]:
        """Returns the samples of this run by series name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if f'run="{self.name}"' in line)
        return {series: float(value) for series, _, value in found}

    def value(self, metric: str, *labels: str) -> float | None:
        for series, number in self.metrics().items():
            if series.startswith(f"trainwarden_{metric}{{") and all(x in series for x in labels):
                return number
        return None


def discovered(folder: Path, pid: int) -> Mapping[str, Any]:
    """Returns the file that `discover` prints, with the run of `pid` only."""
    done = subprocess.run([EXPORTER, "discover"], capture_output=True, text=True, check=False)
    config: dict[str, Any] = yaml.safe_load(done.stdout)
    (folder / "discovered.yml").write_text(done.stdout)
    assert f"pid {pid}: " in done.stdout
    own = [run for run in config["runs"] if run["path"].startswith(str(folder))]
    assert len(own) == 1, done.stdout
    return {"state_folder": str(folder / "state"), "runs": own}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def start(case: Case, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONPATH": str(PROGRAMS), "PWD": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    with (folder / "trainer.log").open("ab") as log:
        return subprocess.Popen(
            [PYTHON, PROGRAMS / f"{case.program}.py", *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


@pytest.fixture(params=CASES, ids=lambda case: case.program)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    case: Case = request.param
    version(case.package)
    program = start(case, tmp_path, str(STEPS), "0.5")
    run = Run(case, tmp_path, program)
    exporter: subprocess.Popen[bytes] | None = None
    try:
        kind = "step" if case.has_steps else "trial"
        until(lambda: len(run.truth(kind)) > 12 or program.poll() is not None, START_SECONDS)
        assert program.poll() is None, (tmp_path / "trainer.log").read_text()[-2000:]
        config = discovered(tmp_path, program.pid)
        run.name = config["runs"][0]["name"]
        assert config["runs"][0].get("framework", "generic") == case.framework
        file = tmp_path / "exporter.yml"
        file.write_text(yaml.safe_dump(config))
        subprocess.run([EXPORTER, "check", file], check=True)
        run.port = free_port()
        address = f"--web.listen-address=127.0.0.1:{run.port}"
        exporter = subprocess.Popen([EXPORTER, "run", f"--config.file={file}", address])
        until(lambda: _answers(run))
        yield run
    finally:
        for process in (program, exporter):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def _answers(run: Run) -> bool:
    try:
        return bool(run.metrics())
    except OSError:
        return False


def seen(run: Run, *what: str) -> None:
    """Adds to the table of docs/frameworks.md what this version showed."""
    table = json.loads(VERSIONS.read_text()) if VERSIONS.exists() else {}
    row = table.setdefault(run.case.package, {"framework": run.case.framework})
    installed = version(run.case.package)
    if row.get("version") != installed:
        row["shown"] = []
    row["version"] = installed
    row["shown"] = sorted({*row["shown"], *what})
    VERSIONS.write_text(json.dumps(table, indent=2, sort_keys=True) + "\n")


def test_the_live_step_the_total_and_the_end_are_those_of_the_program(run: Run) -> None:
    if not run.case.has_steps:
        pytest.skip("a search has no step")

    def follows() -> bool:
        before = run.truth("step")[-1]["step"]
        shown = run.value("training_step")
        after = run.truth("step")[-1]["step"]
        return shown is not None and before - 2 <= shown <= after + 1

    until(follows)
    if run.case.has_live_log:
        assert run.value("training_total_steps") == STEPS
    assert run.value("worker_processes") == 1
    run.program.wait(timeout=START_SECONDS)
    assert run.program.returncode == 0
    until(lambda: run.value("training_step") == STEPS)
    until(lambda: run.value("training_finished") == 1 or run.value("run_workers_finished") == 1)
    live = ("live step", "total") if run.case.has_live_log else ("step at each checkpoint",)
    seen(run, *live, "normal end")


def test_trials_are_progress(run: Run) -> None:
    if run.case.has_steps:
        pytest.skip("it has steps")
    before = run.value("training_progress_timestamp_seconds")
    until(lambda: (run.value("training_progress_timestamp_seconds") or 0) > (before or 0))
    count = len(run.truth("trial"))
    until(lambda: (run.value("log_matches_total", 'pattern="trial_finished"') or 0) >= count)
    seen(run, "trials")


def test_a_killed_run_shows_its_newest_whole_checkpoint(run: Run) -> None:
    if not run.case.has_steps:
        pytest.skip("it makes no checkpoints")
    until(lambda: list((run.folder).rglob(run.case.complete)))
    os.kill(run.program.pid, signal.SIGKILL)
    run.program.wait()
    until(lambda: run.value("worker_processes") == 0)
    saves = [event["step"] for event in run.truth("save_end")]
    newest = run.value("checkpoint_step")
    deadline = time.monotonic() + START_SECONDS
    while newest is None and time.monotonic() < deadline:
        time.sleep(0.5)
        newest = run.value("checkpoint_step")
    assert newest is not None
    assert newest % 10 == 0
    assert not saves or newest >= saves[-1]
    seen(run, "checkpoint after kill -9")
