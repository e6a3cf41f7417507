from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from trainwarden_exporter.discovery.box import (
    Server,
    engine_of,
    folders_of,
    frameworks_of,
    read_place,
    read_servers,
)
from trainwarden_exporter.discovery.programs import Program
from trainwarden_exporter.layouts import LAYOUTS

VLLM = '# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine="0"} 0.0\n'


@pytest.mark.parametrize(
    ("metrics", "engine"),
    [
        (VLLM, "vllm"),
        ("sglang:num_running_reqs 0\n", "sglang"),
        ("llamacpp:requests_processing 0\n", "llama_cpp"),
        ("# vllm: is not here\nhttp_requests_total 1\n", ""),
        ("", ""),
    ],
)
def test_an_engine_is_known_by_its_metrics(metrics: str, engine: str) -> None:
    assert engine_of(metrics) == engine


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(VLLM.encode())

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - as in the base


@pytest.fixture
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_open_port_is_asked_what_serves_there(port: int) -> None:
    serving = Program(os.getpid(), ("python3", "inference.py"))
    other = Program(os.getpid(), ("python3", "train.py"))
    clear = Program(os.getpid(), ("vllm", "serve", "m"))
    assert read_servers([serving]) == {os.getpid(): Server("vllm", port)}
    assert read_servers([other, clear]) == {}


def test_folders_are_those_that_programs_were_told_of_or_write_in(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    program = Program(
        7,
        ("python3", "t.py", "--out=./out", "--lr", "1/2", "--to", "absent/x"),
        folder=tmp_path,
        written=(tmp_path / "logs" / "a.log",),
    )
    assert folders_of([program]) == (tmp_path / "out", tmp_path / "logs", tmp_path)


def test_a_shared_engine_says_nothing_of_the_framework() -> None:
    assert not list(frameworks_of(Program(7, ("vllm", "serve", "m")), LAYOUTS))
    verl = Program(7, ("python3", "-m", "verl.trainer.main_ppo"))
    assert "verl" in set(frameworks_of(verl, LAYOUTS))


def test_weak_evidence_is_enough_where_the_frameworks_programs_run(tmp_path: Path) -> None:
    step = tmp_path / "step_10"
    step.mkdir()
    (step / "weights.bin").write_text("x")
    assert read_place(tmp_path).recognised is None
    found = read_place(tmp_path, running={"nemo_rl"}).recognised
    assert found is not None
    assert found.layout.name == "nemo_rl"
