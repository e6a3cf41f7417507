"""The exporter as it is installed: without docstrings, and compiled like that once for all."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from stack import PROJECT

SYSTEMD = PROJECT / "deploy" / "systemd"
EXPORTER = Path(sys.executable).with_name("trainwarden-exporter")

MISSING = """
import json, pathlib, sys
from trainwarden_exporter import __main__, core

kept = [vars(one).get("__cached__") for one in list(sys.modules.values())]
print(json.dumps([
    core.__doc__,
    sum(1 for one in kept if one),
    [one for one in kept if one and not pathlib.Path(one).exists()],
]))
"""


def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("installer", SYSTEMD / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["installer"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the unit sets, of an installation of which the programs are those under test."""
    install, root = installer(), tmp_path_factory.mktemp("root")
    places = install.Places(root)
    (places.programs / "bin").mkdir(parents=True)
    python = places.programs / "bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (places.programs / "bin" / EXPORTER.name).symlink_to(EXPORTER)
    install.compile_exporter(places)

    unit = (SYSTEMD / "trainwarden-exporter.service").read_text(encoding="utf-8")
    words = [
        word
        for line in unit.splitlines()
        if line.startswith("Environment=")
        for word in shlex.split(line.removeprefix("Environment="))
    ]
    told = dict(word.split("=", 1) for word in words)
    assert told["PYTHONPYCACHEPREFIX"] == str(install.Places(Path("/")).compiled)
    return {**told, "PYTHONPYCACHEPREFIX": str(places.compiled)}


def run(
    command: Sequence[str | Path], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    plain = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command,
        env={**plain, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_unit_finds_all_that_it_imports_compiled(environment: dict[str, str]) -> None:
    done = run([sys.executable, "-c", MISSING], environment)
    docstring, modules, missing = json.loads(done.stdout)
    assert docstring is None
    assert modules > 300
    assert missing == []


def test_a_run_compiles_nothing_more(environment: dict[str, str], tmp_path: Path) -> None:
    compiled = Path(environment["PYTHONPYCACHEPREFIX"])
    before = set(compiled.rglob("*.pyc"))
    config = tmp_path / "exporter.yml"
    config.write_text("runs: [{name: one, workers: [{name: a, match: {command: none-such}}]}]\n")
    plain = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"--web.listen-address=localhost:{port}"
    program = subprocess.Popen(
        [EXPORTER, "run", f"--config.file={config}", address], env={**plain, **environment}
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=10) as page:
                    assert b"trainwarden_worker_processes" in page.read()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        program.terminate()
        assert program.wait(60) == 0
    assert set(compiled.rglob("*.pyc")) == before


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["preflight", "--help"], ["check", "good"], ["check", "bad"]],
    ids=" ".join,
)
def test_it_says_the_same_without_docstrings(
    arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "good").write_text("runs: [{name: one, workers: [{name: a, pid_file: a.pid}]}]\n")
    (tmp_path / "bad").write_text("disks: [{pat: /}]\nhost: {memory_available_floor: much}\n")
    command = [EXPORTER, *(tmp_path / one if one in ("good", "bad") else one for one in arguments)]
    one, other = run(command, {}), run(command, environment)
    assert one.stdout + one.stderr
    assert (one.returncode, one.stdout, one.stderr) == (
        other.returncode,
        other.stdout,
        other.stderr,
    )
