from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.inference.roster import Roster
from trainwarden_exporter.inference.verdict import ProcessFact
from trainwarden_exporter.processes.procfs import read_process, start_timestamp
from trainwarden_exporter.runs import RunConfig

if TYPE_CHECKING:
    from tests.exporter.conftest import FakeProc

SERVER = {"name": "server", "match": {"command": "sglang.launch_server|vllm serve"}}


def run(*inference: dict[str, Any], expected: int = 1, framework: str = "generic") -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "grpo",
            "framework": framework,
            "workers": [{**SERVER, "expected": expected}],
            "inference": list(inference),
        }
    )


BY_WORKER = {"name": "a", "worker": "server"}


def sglang(port: int) -> tuple[str, ...]:
    return ("python", "-m", "sglang.launch_server", "--port", str(port))


def seen(roster: Roster) -> dict[str, str | None]:
    return {target.server: target.url for target in roster.look().targets}


def test_a_server_is_found_in_its_worker_and_stays_known_when_it_is_gone(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    roster = Roster([run(BY_WORKER)], root=proc.root)
    (target,) = roster.look().targets
    assert target.labels == ("grpo", "a", "sglang")
    assert target.url == "http://127.0.0.1:31000"
    proc.remove(100)
    view = roster.look()
    assert view.targets == (target,)
    assert view.started == {target: None}


def test_one_that_starts_anew_at_another_port_is_the_same_server(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    roster = Roster([run(BY_WORKER)], root=proc.root)
    assert seen(roster) == {"a": "http://127.0.0.1:31000"}
    proc.remove(100)
    proc.add(101, sglang(31999), start=900)
    assert seen(roster) == {"a": "http://127.0.0.1:31999"}


def test_several_servers_of_one_worker_are_numbered(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    roster = Roster([run(BY_WORKER, expected=3)], root=proc.root)
    assert seen(roster) == {"a-0": "http://127.0.0.1:31000", "a-1": None, "a-2": None}
    proc.add(101, sglang(31001))
    assert seen(roster)["a-1"] == "http://127.0.0.1:31001"
    proc.remove(100)
    assert seen(roster)["a-0"] == "http://127.0.0.1:31000"


def test_without_a_process_there_is_a_server_that_is_nowhere(proc: FakeProc) -> None:
    view = Roster([run(BY_WORKER)], root=proc.root).look()
    (target,) = view.targets
    assert target.url is None
    assert view.started[target] is None


def test_a_server_with_an_address_has_the_process_that_serves_it(proc: FakeProc) -> None:
    proc.add(100, sglang(31000), start=100)
    proc.add(101, sglang(31001), start=200)
    server = {"name": "b", "engine": "sglang", "url": "http://127.0.0.1:31001", "worker": "server"}
    view = Roster([run(server, expected=2)], root=proc.root).look()
    (target,) = view.targets
    assert view.started[target] == pytest.approx(
        start_timestamp(read_process(101, proc.root).identity)  # type: ignore[union-attr]
    )


def test_after_a_reload_a_server_that_is_down_is_known_still(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    first = Roster([run(BY_WORKER)], root=proc.root)
    first.look()
    proc.remove(100)
    second = Roster([run(BY_WORKER)], root=proc.root)
    second.adopt(first)
    assert seen(second) == {"a": "http://127.0.0.1:31000"}


def test_servers_with_fixed_addresses_need_no_look_at_processes() -> None:
    server = {"name": "b", "engine": "vllm", "url": "http://10.0.0.1:8000"}
    roster = Roster([run(server)])
    (target,) = roster.view(patience=0).targets
    assert target.url == "http://10.0.0.1:8000"
    assert roster.process(target) is None


def test_two_servers_that_would_have_one_name_are_not_both_shown(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    proc.add(101, sglang(31001))
    other = {"name": "a-1", "engine": "vllm", "url": "http://10.0.0.1:8000"}
    names = [
        target.server for target in Roster([run(BY_WORKER, other)], root=proc.root).look().targets
    ]
    assert names == ["a", "a-1"]


def test_what_is_known_of_a_process_is_forgotten_when_nobody_looks(proc: FakeProc) -> None:
    now = 1000.0
    proc.add(100, sglang(31000))
    roster = Roster([run(BY_WORKER)], root=proc.root, now=lambda: now)
    (target,) = roster.view(patience=5).targets
    fact = roster.process(target)
    assert fact is not None
    assert fact.started is not None
    roster.close()
    now += 60
    assert roster.process(target) is None


PROGRAM = """
import socket, sys
one = socket.socket()
one.bind(("127.0.0.1", 0))
one.listen()
print(one.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_real_process_is_found_by_the_port_it_opened(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    config = RunConfig.model_validate(
        {
            "name": "grpo",
            "workers": [{"name": "server", "match": {"command": mark}}],
            "inference": [{"name": "a", "worker": "server", "engine": "vllm"}],
        }
    )
    program = start(PROGRAM, mark)
    roster = Roster([config])
    (target,) = roster.look().targets
    assert target.url is not None
    port = int(target.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    started = roster.look().started[target]
    assert started is not None
    assert abs(time.time() - started) < 60
    program.kill()
    program.wait()
    assert roster.look().started[target] is None
    assert ProcessFact() == ProcessFact(None, 0)
