"""A real vLLM on the CPU beside a trainer that uses it: found, watched, frozen and killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import yaml
from tests.real.cases import Case
from tests.real.watching import (
    PATIENCE,
    PROGRAMS,
    PYTHON,
    Program,
    Watched,
    record_seen,
    require,
    watched,
)
from tests.waiting import until

from running import fetch

VLLM = PYTHON.parents[1] / "vllm" / "bin" / "vllm"
START_SECONDS = 900.0
CASE = Case("served", "torch", "generic", steps=3000)


def is_ready(address: str) -> bool:
    try:
        return fetch(f"{address}/health")[0] == 200
    except OSError:
        return False


def end(server: subprocess.Popen[bytes]) -> None:
    """Kills the server and all below it."""
    if server.poll() is None:
        for child in psutil.Process(server.pid).children(recursive=True):
            child.kill()
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a running server, and its address."""
    if not VLLM.exists():
        pytest.skip("vLLM is not installed")
    require(Case("transformers_trainer", "transformers", "trl"))
    folder = tmp_path_factory.mktemp("served")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ExitStack() as ending:
        log = ending.enter_context((folder / "vllm.log").open("wb"))
        process = subprocess.Popen(
            [PYTHON, PROGRAMS / "vllm_server.py", "1", "0", str(port)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(PROGRAMS)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        ending.callback(end, process)
        address = f"http://127.0.0.1:{port}"
        until(lambda: is_ready(address) or process.poll() is not None, START_SECONDS)
        assert process.poll() is None, (folder / "vllm.log").read_text()[-3000:]
        yield folder, address


@pytest.fixture(scope="module")
def run(server: tuple[Path, str]) -> Iterator[tuple[Program, Watched]]:
    folder, address = server
    program = Program(CASE, folder / "served", arguments=(address,))
    program.folder.mkdir()
    try:
        program.start(CASE.steps)
        program.wait_for("step", 22)
        with watched([program], folder) as seen:
            yield program, seen
    finally:
        program.end()


def test_the_server_of_a_run_is_found_and_its_tokens_are_counted(
    run: tuple[Program, Watched],
) -> None:
    program, seen = run
    (proposed,) = yaml.safe_load((seen.config / "exporter.yml").read_text())["runs"]
    assert {one["role"] for one in proposed["workers"]} == {"trainer", "inference"}
    assert len(proposed["inference"]) == 1
    until(lambda: seen.value(program.name, "inference_up", engine="vllm") == 1, PATIENCE)
    until(lambda: seen.value(program.name, "inference_deep_probe_success") == 1, PATIENCE)

    def counted() -> bool:
        known = sum(int(event["count"]) for event in program.truth("tokens"))
        return (seen.value(program.name, "inference_generated_tokens_total") or 0) >= known > 0

    until(counted, PATIENCE)
    assert seen.firing(program.name, "critical|warning") == set()
    record_seen(CASE, "vLLM 0.32.0: found, tokens, deep probe")


def test_a_frozen_engine_is_not_up_until_it_continues(run: tuple[Program, Watched]) -> None:
    program, seen = run
    (worker,) = (
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if "EngineCore" in "".join(process.info["cmdline"] or ()) and _is_of(process, seen)
    )
    worker.send_signal(signal.SIGSTOP)
    try:
        until(lambda: seen.value(program.name, "inference_up") == 0, PATIENCE)
        hung = "TrainingInferenceHung", "TrainingInferenceDown"
        until(lambda: seen.firing(program.name, "critical") & set(hung), PATIENCE)
    finally:
        worker.send_signal(signal.SIGCONT)
    until(lambda: seen.value(program.name, "inference_up") == 1, PATIENCE)
    record_seen(CASE, "frozen engine")


def test_a_killed_server_is_down(run: tuple[Program, Watched]) -> None:
    program, seen = run
    root = next(
        process
        for process in psutil.process_iter(["cmdline"])
        if str(VLLM) in (process.info["cmdline"] or ()) and _is_of(process, seen)
    )
    for one in [*root.children(recursive=True), root]:
        one.kill()
    until(lambda: seen.value(program.name, "inference_reason", reason="refused") == 1, PATIENCE)
    alerts = {"TrainingInferenceDown", "TrainingWorkerGone"}
    until(lambda: seen.firing(program.name, "critical") & alerts, PATIENCE)
    record_seen(CASE, "killed server")


def _is_of(process: psutil.Process, seen: Watched) -> bool:
    """Whether the process belongs to this test: it was started in its folder."""
    return bool(process.cwd() == str(seen.config.parent))
