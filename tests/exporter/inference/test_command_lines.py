from __future__ import annotations

import shlex

import pytest

from trainwarden_exporter.inference.command_lines import (
    ServerCommand,
    local_url,
    parse_server_command,
)


@pytest.mark.parametrize(
    ("command", "engine", "url"),
    [
        ("vllm serve Qwen/Qwen3-8B", "vllm", "http://127.0.0.1:8000"),
        (
            "/venv/bin/python3.11 /venv/bin/vllm serve m --port 8123",
            "vllm",
            "http://127.0.0.1:8123",
        ),
        ("python -m vllm.entrypoints.openai.api_server --port=9", "vllm", "http://127.0.0.1:9"),
        ("python -m vllm.entrypoints.cli.main serve m --port 9", "vllm", "http://127.0.0.1:9"),
        ("vllm serve m --host 10.0.0.7 --port 1", "vllm", "http://10.0.0.7:1"),
        ("vllm serve m --host :: --port 1", "vllm", "http://127.0.0.1:1"),
        ("vllm serve m --host ::1 --port 1", "vllm", "http://[::1]:1"),
        ("vllm serve m --ssl-certfile c.pem --port 1", "vllm", "https://127.0.0.1:1"),
        ("vllm serve m --port 1 --port 2", "vllm", "http://127.0.0.1:2"),
        ("uv run vllm serve m --port 1", "vllm", "http://127.0.0.1:1"),
        ("numactl --cpunodebind=0 /opt/vllm serve m", "vllm", "http://127.0.0.1:8000"),
        (
            "python3 -m areal.engine.vllm_ext.areal_vllm_server --model m --port 14000",
            "vllm",
            "http://127.0.0.1:14000",
        ),
        ("python -m sglang.launch_server --model-path m", "sglang", "http://127.0.0.1:30000"),
        ("sglang serve --model-path m --port 1", "sglang", "http://127.0.0.1:1"),
        (
            "python3 -m sglang.launch_server --model-path m --host 172.17.0.2 --port 13231",
            "sglang",
            "http://172.17.0.2:13231",
        ),
        (
            "python -m areal.v2.inference_service.sglang.launch_server --port 1",
            "sglang",
            "http://127.0.0.1:1",
        ),
        ("trl vllm-serve --model m --port 8001", "generic", "http://127.0.0.1:8001/health/"),
        ("text-generation-launcher --model-id m -p 80", "tgi", "http://127.0.0.1:80"),
        ("text-generation-router --port 80 --hostname ::", "tgi", "http://127.0.0.1:80"),
        ("llama-server -m m.gguf", "llama_cpp", "http://127.0.0.1:8080"),
        ("/opt/tritonserver/bin/tritonserver --http-port 8100", "triton", "http://127.0.0.1:8100"),
        ("python -m sglang_router.launch_router --port 1", "sglang_router", "http://127.0.0.1:1"),
        ("smg launch --worker-urls http://a:1", "sglang_router", "http://127.0.0.1:30000"),
        ("vllm-router --worker-urls http://a:1", "vllm_router", "http://127.0.0.1:30000"),
    ],
)
def test_a_server_is_parsed(command: str, engine: str, url: str) -> None:
    serving = parse_server_command(shlex.split(command))
    assert serving is not None
    assert (serving.engine, serving.url()) == (engine, url)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python train.py --port 8000",
        "vllm bench serve",
        "vllm serve m --headless",
        "python -m sglang.launch_server --model-path m --nnodes 2 --node-rank 1",
        "bash -c 'exec vllm serve m --port 8000'",
        "tail -f vllm serve",
        "grep smg",
        "VLLM::EngineCore",
        "sglang::scheduler",
        "python -m vllm.entrypoints.cli.main bench",
    ],
)
def test_a_command_without_a_server_is_none(command: str) -> None:
    assert parse_server_command(shlex.split(command)) is None


def test_a_port_chosen_at_random_is_not_known() -> None:
    serving = parse_server_command(["vllm", "serve", "m", "--port", "0"])
    assert serving is not None
    assert serving.url() is None
    assert serving.url(4711) == "http://127.0.0.1:4711"


@pytest.mark.parametrize("port", ["x", "-1", "70000", "", "99999999999999999999"])
def test_an_invalid_port_is_replaced_by_the_default(port: str) -> None:
    serving = parse_server_command(["vllm", "serve", "m", "--port", port])
    assert serving is not None
    assert serving.port == 8000


def test_an_option_at_the_end_without_a_value_is_none() -> None:
    assert parse_server_command(["vllm", "serve", "m", "--port"]) == ServerCommand("vllm", "", 8000)


def test_the_name_of_the_model_and_the_port_of_the_metrics_are_read_too() -> None:
    serving = parse_server_command(["vllm", "serve", "m", "--served_model_name", "policy"])
    assert serving is not None
    assert serving.model == "policy"
    assert serving.metrics_url is None
    router = parse_server_command(["smg", "launch", "--prometheus-port", "29001"])
    assert router is not None
    assert router.metrics_url == "http://127.0.0.1:29001/metrics"


def test_a_server_on_all_addresses_is_probed_on_loopback() -> None:
    assert local_url("0.0.0.0", 1) == "http://127.0.0.1:1"
    assert local_url("fe80::1", 1) == "http://[fe80::1]:1"
