"""Another account starts a process with the command line of an inference server."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.hostile.accounts import STRANGER, needs_root, started

from trainwarden_exporter.inference.server_discovery import ServerDiscovery
from trainwarden_exporter.run_config import RunConfig

pytestmark = needs_root

RUN = RunConfig.model_validate(
    {
        "name": "demo",
        "workers": [{"name": "server", "match": {"command": "[s]glang.launch_server --hostile"}}],
        "inference": [{"name": "a", "worker": "server"}],
    }
)


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a program that is no part of the worker."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


def url_of(*options: str) -> str | None:
    """The address at which a process with these options would be asked."""
    arguments = ["python", "-c", "sleep 600; :", "-m", "sglang.launch_server", "--hostile"]
    with started([*arguments, *options], STRANGER, program="/bin/sh"):
        (target,) = ServerDiscovery([RUN]).discover().targets
    return target.url


def test_the_host_of_a_command_line_is_not_asked() -> None:
    port = 1  # no program listens on it
    assert url_of("--host", "192.0.2.1", "--port", str(port)) == f"http://127.0.0.1:{port}"


def test_the_port_of_another_program_is_not_asked(listener: int) -> None:
    assert url_of("--port", str(listener)) is None
