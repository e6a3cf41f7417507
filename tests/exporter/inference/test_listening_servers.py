from __future__ import annotations

import re

import pytest

from trainwarden_exporter.inference.command_lines import parse_server_command
from trainwarden_exporter.inference.server_discovery import (
    CandidateProcess,
    DiscoveredServer,
    assign_slots,
    find_servers,
    process_start,
)
from trainwarden_exporter.processes.listening_ports import Listener


def candidate(
    command: str, *ports: int, started: float = 1.0, root: bool = True
) -> CandidateProcess:
    arguments = tuple(command.split())
    listeners = tuple(Listener("127.0.0.1", port) for port in ports)
    return CandidateProcess(started, arguments, parse_server_command(arguments), listeners, root)


def test_servers_are_found_by_their_command_lines() -> None:
    found = find_servers(
        None,
        [
            candidate("python -m sglang.launch_server --port 31000", started=5),
            candidate("sglang::scheduler", root=False),
            candidate("vllm serve m --port 8000 --served-model-name policy", started=7),
        ],
    )
    assert found == (
        DiscoveredServer("sglang", "http://127.0.0.1:31000", 5),
        DiscoveredServer("vllm", "http://127.0.0.1:8000", 7, model="policy"),
    )


def test_a_wrapper_and_its_program_are_one_server() -> None:
    found = find_servers(
        None,
        [candidate("uv run vllm serve m", started=1), candidate("vllm serve m", started=2)],
    )
    assert found == (DiscoveredServer("vllm", "http://127.0.0.1:8000", 2),)


def test_only_servers_of_the_wanted_engine_count() -> None:
    both = [candidate("vllm serve m --port 1"), candidate("smg launch --port 2")]
    assert [one.engine for one in find_servers("vllm", both)] == ["vllm"]


def test_a_port_chosen_at_random_is_the_listening_port() -> None:
    (found,) = find_servers(None, [candidate("vllm serve m --port 0", 41234)])
    assert found.url == "http://127.0.0.1:41234"
    assert find_servers(None, [candidate("vllm serve m --port 0", 41234, 41235)]) == ()
    assert find_servers(None, [candidate("vllm serve m --port 0")]) == ()


@pytest.mark.parametrize(
    ("ports", "url"),
    [
        ((9000,), "http://127.0.0.1:9000"),
        ((8000, 9000), "http://127.0.0.1:8000"),
        ((9000, 9001), None),
        ((), None),
    ],
)
def test_the_port_of_an_unknown_command_must_be_unambiguous(
    ports: tuple[int, ...], url: str | None
) -> None:
    found = find_servers("vllm", [candidate("python serve.py", *ports)])
    assert [one.url for one in found] == ([] if url is None else [url])


def test_the_framework_knows_engines_by_their_process_titles() -> None:
    patterns = (("vllm", re.compile(r"PRIME-RL::Inference")),)
    (found,) = find_servers(None, [candidate("PRIME-RL::Inference", 8100)], patterns)
    assert (found.engine, found.url) == ("vllm", "http://127.0.0.1:8100")
    assert find_servers(None, [candidate("PRIME-RL::Trainer", 8100)], patterns) == ()


def test_the_process_of_a_url_is_the_one_whose_command_names_its_port() -> None:
    both = [
        candidate("vllm serve m --port 1", started=10),
        candidate("vllm serve m --port 2", started=20),
    ]
    assert process_start("http://127.0.0.1:1", both) == 10
    assert process_start("http://127.0.0.1:9", both) == 20
    assert process_start("http://127.0.0.1:9", []) is None


def found(port: int) -> DiscoveredServer:
    return DiscoveredServer("vllm", f"http://127.0.0.1:{port}", 1)


def test_a_server_keeps_its_slot_when_its_process_is_gone() -> None:
    assert assign_slots([found(1), found(2)], [found(2)], 2) == [found(1), found(2)]


def test_a_new_server_takes_the_slot_of_a_missing_server() -> None:
    assert assign_slots([found(1), found(2)], [found(2), found(3)], 2) == [found(3), found(2)]


def test_there_is_a_slot_for_each_expected_server() -> None:
    assert assign_slots([], [found(1)], 3) == [found(1), None, None]
    assert assign_slots([None], [found(1)], 1) == [found(1)]


def test_unexpected_servers_have_slots_too() -> None:
    assert assign_slots([], [found(1), found(2)], 1) == [found(1), found(2)]
    assert assign_slots([], [], 0) == []
