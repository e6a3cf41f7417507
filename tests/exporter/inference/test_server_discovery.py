from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from trainwarden_exporter.inference import server_discovery
from trainwarden_exporter.inference.config import AnnouncedServer
from trainwarden_exporter.inference.health_model import ProcessInfo
from trainwarden_exporter.inference.local_sockets import WorkerSockets
from trainwarden_exporter.inference.server_discovery import ServerDiscovery
from trainwarden_exporter.processes.listening_ports import Listener
from trainwarden_exporter.processes.procfs import read_process
from trainwarden_exporter.processes.start_times import start_timestamp
from trainwarden_exporter.run_config import RunConfig

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


def seen(discovery: ServerDiscovery) -> dict[str, str | None]:
    return {target.server: target.url for target in discovery.discover().targets}


def test_a_server_is_found_in_its_worker_and_stays_known_when_it_is_gone(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    discovery = ServerDiscovery([run(BY_WORKER)], root=proc.root)
    (target,) = discovery.discover().targets
    assert target.labels == ("grpo", "a", "sglang")
    assert target.url == "http://127.0.0.1:31000"
    proc.remove(100)
    result = discovery.discover()
    assert result.targets == (target,)
    assert result.started == {target: None}


def test_a_server_that_restarts_at_another_port_is_the_same_server(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    discovery = ServerDiscovery([run(BY_WORKER)], root=proc.root)
    assert seen(discovery) == {"a": "http://127.0.0.1:31000"}
    proc.remove(100)
    proc.add(101, sglang(31999), start=900)
    assert seen(discovery) == {"a": "http://127.0.0.1:31999"}


def test_several_servers_of_one_worker_are_numbered(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    discovery = ServerDiscovery([run(BY_WORKER, expected=3)], root=proc.root)
    assert seen(discovery) == {"a-0": "http://127.0.0.1:31000", "a-1": None, "a-2": None}
    proc.add(101, sglang(31001))
    assert seen(discovery)["a-1"] == "http://127.0.0.1:31001"
    proc.remove(100)
    assert seen(discovery)["a-0"] == "http://127.0.0.1:31000"


def test_a_server_without_a_process_has_no_address(proc: FakeProc) -> None:
    result = ServerDiscovery([run(BY_WORKER)], root=proc.root).discover()
    (target,) = result.targets
    assert target.url is None
    assert result.started[target] is None


def test_a_program_of_ones_own_is_asked_at_the_address_that_its_start_names(proc: FakeProc) -> None:
    server = AnnouncedServer(name="a", worker="server", ready="http://127.0.0.1:18978/health")
    own = run(BY_WORKER).model_copy(update={"inference": (server,)})
    discovery = ServerDiscovery([own], root=proc.root)
    (target,) = discovery.discover().targets
    assert target.url is None, "no process"
    proc.add(100, ("python3", "server.py", "vllm serve"), start=100)
    (target,) = discovery.discover().targets
    assert target.labels == ("grpo", "a", "generic")
    assert target.url == "http://127.0.0.1:18978/health"
    assert discovery.discover().started[target] is not None
    proc.remove(100)
    proc.add(101, ("vllm", "serve", "--port", "8001"))
    (target,) = discovery.discover().targets
    assert (target.engine, target.url) == ("vllm", "http://127.0.0.1:8001")


def test_an_unknown_program_that_announced_no_address_is_not_taken_for_a_dead_server(
    proc: FakeProc,
) -> None:
    """Such as ssh, whose server is on another host: it never listens on this one."""
    server = AnnouncedServer(name="a", worker="server")
    own = run(BY_WORKER).model_copy(update={"inference": (server,)})
    discovery = ServerDiscovery([own], root=proc.root)
    proc.add(100, ("ssh", "gpu2", "vllm serve"))
    assert seen(discovery) == {}
    proc.remove(100)
    assert seen(discovery) == {"a": None}
    proc.add(101, ("vllm", "serve", "--port", "8001"))
    assert seen(discovery) == {"a": "http://127.0.0.1:8001"}


def test_a_server_whose_port_another_process_has_is_not_taken_for_a_dead_one(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the port of a container, which a process of Docker has."""
    sockets = WorkerSockets(other_ports=frozenset({18978}))
    monkeypatch.setattr(server_discovery, "read_sockets", lambda *_: sockets)
    server = AnnouncedServer(name="a", worker="server", ready="http://127.0.0.1:18978/health")
    own = run(BY_WORKER).model_copy(update={"inference": (server,)})
    discovery = ServerDiscovery([own], root=proc.root)
    proc.add(100, ("docker", "run", "vllm serve"))
    assert seen(discovery) == {}


def test_an_unknown_program_that_listens_somewhere_is_not_taken_for_a_dead_server(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an address it would count as starting, then as dead, and be restarted."""
    ports: tuple[Listener, ...] = ()
    monkeypatch.setattr(
        server_discovery, "read_listeners", lambda pids, _: dict.fromkeys(pids, ports)
    )
    discovery = ServerDiscovery([run(BY_WORKER)], root=proc.root)
    proc.add(100, ("python3", "server.py", "vllm serve"))
    assert seen(discovery) == {"a": None}
    ports = (Listener("127.0.0.1", 18978),)
    assert seen(discovery) == {}
    proc.remove(100)
    assert seen(discovery) == {"a": None}


def test_a_server_with_an_address_has_the_process_that_serves_it(proc: FakeProc) -> None:
    proc.add(100, sglang(31000), start=100)
    proc.add(101, sglang(31001), start=200)
    server = {"name": "b", "engine": "sglang", "url": "http://127.0.0.1:31001", "worker": "server"}
    result = ServerDiscovery([run(server, expected=2)], root=proc.root).discover()
    (target,) = result.targets
    assert result.started[target] == pytest.approx(
        start_timestamp(read_process(101, proc.root).identity)  # type: ignore[union-attr]
    )


def test_a_server_that_is_down_stays_known_after_a_reload(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    first = ServerDiscovery([run(BY_WORKER)], root=proc.root)
    first.discover()
    proc.remove(100)
    second = ServerDiscovery([run(BY_WORKER)], root=proc.root)
    second.take_over_from(first)
    assert seen(second) == {"a": "http://127.0.0.1:31000"}


def test_servers_with_configured_addresses_need_no_processes() -> None:
    server = {"name": "b", "engine": "vllm", "url": "http://10.0.0.1:8000"}
    discovery = ServerDiscovery([run(server)])
    (target,) = discovery.result(wait_seconds=0).targets
    assert target.url == "http://10.0.0.1:8000"
    assert discovery.process(target) is None


def test_only_one_of_two_servers_with_the_same_name_is_shown(proc: FakeProc) -> None:
    proc.add(100, sglang(31000))
    proc.add(101, sglang(31001))
    other = {"name": "a-1", "engine": "vllm", "url": "http://10.0.0.1:8000"}
    names = [
        target.server
        for target in ServerDiscovery([run(BY_WORKER, other)], root=proc.root).discover().targets
    ]
    assert names == ["a", "a-1"]


def test_a_process_that_is_no_longer_observed_is_forgotten(proc: FakeProc) -> None:
    now = 1000.0
    proc.add(100, sglang(31000))
    discovery = ServerDiscovery([run(BY_WORKER)], root=proc.root, now=lambda: now)
    (target,) = discovery.result(wait_seconds=60).targets
    fact = discovery.process(target)
    assert fact is not None
    assert fact.started is not None
    discovery.close()
    now += 60
    assert discovery.process(target) is None


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
    discovery = ServerDiscovery([config])
    (target,) = discovery.discover().targets
    assert target.url is not None
    port = int(target.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        pass
    started = discovery.discover().started[target]
    assert started is not None
    assert abs(time.time() - started) < 60
    program.kill()
    program.wait()
    assert discovery.discover().started[target] is None
    assert ProcessInfo() == ProcessInfo(None, 0)
