"""The programs of the demo by themselves: restartable, graceful, and with faults that bite."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ports import free_port
from trainwarden_exporter.processes.ancestry import descendants
from trainwarden_exporter.processes.procfs import read_processes, read_resident_bytes

PROGRAMS = Path(__file__).parent.parent.parent / "examples" / "demo"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program of the demo with its log in `tmp_path`; ends it with the test."""
    started = []

    def start_one(script: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, PROGRAMS / script, f"--name={name}", "--folder", tmp_path)
        with (tmp_path / f"{name}.log").open("ab") as log:
            process = subprocess.Popen((*command, *arguments), stdout=log, stderr=log)
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()


def wait_until(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def says(folder: Path, name: str, text: str) -> Callable[[], bool]:
    return lambda: text in (folder / f"{name}.log").read_text()


def switch_on(folder: Path, name: str, fault: str) -> Path:
    path = folder / "faults" / name
    wait_until(path.parent.exists)
    path.write_text(f"{fault}\n")
    return path


@pytest.fixture
def port() -> int:
    return free_port()


def get(port: int, path: str, body: str | None = None, *, timeout: float = 60) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST" if body else "GET", path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_trainer_goes_on_from_the_newest_complete_checkpoint(
    tmp_path: Path, start: Start
) -> None:
    for name, step, complete in (("step_000010", 10, True), ("step_000020", 20, False)):
        checkpoint = tmp_path / "checkpoints" / name
        checkpoint.mkdir(parents=True)
        (checkpoint / "state.json").write_text(json.dumps({"step": step, "loss": 1, "reward": 0}))
        if complete:
            (checkpoint / "COMPLETE").touch()
    trainer = start("trainer.py", "trainer")
    wait_until(says(tmp_path, "trainer", "resume from step 10\n"))
    wait_until(says(tmp_path, "trainer", "waiting for rollouts"))
    trainer.terminate()
    assert trainer.wait(60) == 0


def test_rollouts_flow_again_when_the_inference_server_is_back(
    tmp_path: Path, start: Start, port: int
) -> None:
    start("rollout.py", "rollout-0", f"--inference=http://127.0.0.1:{port}")
    start("trainer.py", "trainer")
    wait_until(says(tmp_path, "rollout-0", "inference server does not answer, retry 1:"))
    start("inference.py", "inference", f"--port={port}")
    wait_until(says(tmp_path, "rollout-0", "wrote rollout step_000001"))
    wait_until(says(tmp_path, "trainer", "trainer step 1/"))
    status, text = get(port, "/metrics")
    names = {family.name for family in parse_text(text)}
    assert status == 200
    assert {"vllm:num_requests_running", "vllm:request_success"} <= names
    assert json.loads(get(port, "/v1/models")[1])["data"][0]["id"] == "demo"
    assert get(port, "/v1/completions", "no JSON")[0] == 400
    assert get(port, "/nothing")[0] == 404


def test_a_leak_is_resident_and_its_successor_is_healthy(tmp_path: Path, start: Start) -> None:
    leaking = start("trainer.py", "trainer")
    fault = switch_on(tmp_path, "trainer", "leak")
    wait_until(lambda: not fault.exists())
    before = read_resident_bytes(leaking.pid) or 0
    wait_until(lambda: (read_resident_bytes(leaking.pid) or 0) > before + (8 << 20))
    leaking.terminate()
    assert leaking.wait(60) == 0
    start("trainer.py", "trainer")
    wait_until(says(tmp_path, "trainer", "start from step 0"))
    assert (tmp_path / "trainer.log").read_text().count("fault: leak") == 1


def test_dying_leaves_no_time_for_anything(tmp_path: Path, start: Start) -> None:
    trainer = start("trainer.py", "trainer")
    switch_on(tmp_path, "trainer", "die")
    assert trainer.wait(60) == -signal.SIGKILL


def test_what_is_left_behind_holds_a_gpu_and_has_no_parent(tmp_path: Path, start: Start) -> None:
    for name in ("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia1", "holders/0"):
        (tmp_path / "gpu" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "gpu" / name).touch()
    holders = tmp_path / "gpu" / "holders"
    trainer = start("trainer.py", "trainer")
    wait_until((holders / str(trainer.pid)).exists)
    switch_on(tmp_path, "trainer", "leftover")
    wait_until(says(tmp_path, "trainer", "leftover holds GPU 1"))
    (left,) = (int(file.name) for file in holders.glob("[1-9]*") if file.name != str(trainer.pid))
    process = os.pidfd_open(left)
    try:
        assert left not in descendants(read_processes(), [trainer.pid])
        files = {path.readlink().name for path in Path(f"/proc/{left}/fd").iterdir()}
        assert {"nvidiactl", "nvidia-uvm", "nvidia1"} <= files
        trainer.kill()
        trainer.wait()
        assert (holders / str(left)).read_text() == f"1 {6 << 30}\n"
        signal.pidfd_send_signal(process, signal.SIGTERM)
        assert select.select([process], [], [], 10)[0]
    finally:
        os.close(process)


def test_a_stalled_server_is_healthy_and_answers_nothing(
    tmp_path: Path, start: Start, port: int
) -> None:
    server = start("inference.py", "inference", f"--port={port}")
    switch_on(tmp_path, "inference", "stall")
    wait_until(says(tmp_path, "inference", "fault: stall"))
    assert get(port, "/health")[0] == 200
    with pytest.raises(TimeoutError):
        get(port, "/v1/completions", '{"prompt": "1 + 1"}', timeout=1)
    server.terminate()
    assert server.wait(60) == 0


def test_a_hung_server_answers_nothing_and_is_deaf_to_sigterm(
    tmp_path: Path, start: Start, port: int
) -> None:
    server = start("inference.py", "inference", f"--port={port}")
    switch_on(tmp_path, "inference", "hang")
    wait_until(says(tmp_path, "inference", "fault: hang"))
    server.terminate()
    with pytest.raises(TimeoutError):
        get(port, "/health", timeout=1)
    assert server.poll() is None


def test_an_unknown_fault_is_named(tmp_path: Path, start: Start) -> None:
    start("trainer.py", "trainer")
    switch_on(tmp_path, "trainer", "explode")
    wait_until(
        says(tmp_path, "trainer", "unknown fault 'explode': leak, die, hang, stall and leftover")
    )
