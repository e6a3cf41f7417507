"""The snippets of docs/heartbeat.md work against the real exporter."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer, unused_port

from trainwarden_exporter.api.server import build_app
from trainwarden_exporter.app import Exporter
from trainwarden_exporter.config import Config
from trainwarden_exporter.config_file import loader
from trainwarden_exporter.frameworks.base import Phase
from trainwarden_exporter.heartbeats.registry import HeartbeatKey, HeartbeatState
from trainwarden_exporter.progress.beats import read_beats

PAGE = (Path(__file__).parents[2] / "docs" / "heartbeat.md").read_text(encoding="utf-8")
CALL = "\nheartbeat('trainer', 1501)\nheartbeat('trainer')\nheartbeat('nobody', 5)\nprint('done')\n"


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    (text,) = snippets("yaml")
    path = tmp_path / "exporter.yml"
    path.write_text(text.replace("/run/", f"{tmp_path}/"))
    return Exporter(path)


@pytest.fixture
async def address(exporter: Exporter) -> AsyncIterator[str]:
    async with TestServer(build_app(exporter), host="127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.port}"


async def run(*command: str, trainwarden: str, beats: str = "/nowhere") -> str:
    """Runs a program of the page; returns its output. It must succeed within a minute."""
    proxy = "http://127.0.0.1:9"  # a request through it fails
    environment = {"PATH": os.environ["PATH"], "http_proxy": proxy, "all_proxy": proxy}
    environment |= {"TRAINWARDEN": trainwarden, "BEATS": beats}
    program = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    printed, _ = await asyncio.wait_for(program.communicate(), timeout=60)
    assert program.returncode == 0
    return printed.decode()


def beats(exporter: Exporter, run: str, name: str) -> HeartbeatState:
    return exporter.heartbeats.all()[HeartbeatKey(run, name)]


def test_the_configuration_is_one() -> None:
    (text,) = snippets("yaml")
    config = loader.parse(text, Path("/etc/exporter.yml"), Config)
    assert [one.name for one in config.heartbeats] == ["backup", "trainer"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_sends_a_beat(exporter: Exporter, address: str) -> None:
    command, _ = snippets("sh")
    assert await run("sh", "-ec", command, trainwarden=address) == ""
    assert beats(exporter, "", "backup").count == 1


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_a_job_does_not_fail_because_nobody_listens() -> None:
    nobody = f"http://127.0.0.1:{unused_port()}"
    for command in snippets("sh"):
        assert await run("sh", "-ec", command, trainwarden=nobody) == ""


async def test_touch_is_a_beat(exporter: Exporter, tmp_path: Path) -> None:
    _, command = snippets("sh")
    await run("sh", "-ec", command, trainwarden="", beats=str(tmp_path))
    await exporter.scraper.scrape(10, ["heartbeats"])
    assert beats(exporter, "", "backup").count == 1


async def test_python_sends_steps(exporter: Exporter, address: str) -> None:
    *_, code = snippets("python")
    assert await run(sys.executable, "-Sc", code + CALL, trainwarden=address) == "done\n"
    sent = beats(exporter, "grpo", "trainer")
    assert (sent.count, sent.step) == (2, 1501)


@pytest.mark.parametrize("trainwarden", ["http://127.0.0.1:{port}", "http://", "nonsense"])
async def test_python_never_raises_into_the_trainer(trainwarden: str) -> None:
    *_, code = snippets("python")
    nobody = trainwarden.format(port=unused_port())
    assert await run(sys.executable, "-Sc", code + CALL, trainwarden=nobody) == "done\n"


async def test_python_waits_a_second_at_most() -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    *_, code = snippets("python")
    once = "\nimport time\nbegan = time.monotonic()\nheartbeat('trainer', 1)\n"
    once += "print(time.monotonic() - began)\n"
    waited = float(
        await run(sys.executable, "-Sc", code + once, trainwarden=f"http://127.0.0.1:{port}")
    )
    server.close()
    assert 0.9 < waited < 60


def test_a_training_reports_as_the_page_shows(tmp_path: Path) -> None:
    code, *_ = snippets("python")
    setup = """
from types import SimpleNamespace
batches = range(1000)
train = lambda batch: SimpleNamespace(item=lambda: 0.5)
evaluate = lambda: None
"""
    environment = os.environ | {"TRAINWARDEN_FOLDER": str(tmp_path)}
    environment.pop("RANK", None)
    subprocess.run([sys.executable, "-c", setup + code], env=environment, check=True, timeout=60)
    (beat,) = read_beats(tmp_path / "beats")
    assert (beat.step, beat.total, beat.phase) == (1000, 1000, Phase.FINISHED)
    assert beat.numbers == {"loss": 0.5}


def test_each_rank_reports_as_the_page_shows(tmp_path: Path) -> None:
    _, code, _ = snippets("python")
    setup = """
from types import SimpleNamespace
import trainwarden
batches = range(20)
loss = SimpleNamespace(item=lambda: 0.5, backward=lambda: None)
model, optimizer = lambda batch: loss, SimpleNamespace(step=lambda: None)
"""
    for rank in ("0", "1"):
        environment = os.environ | {"TRAINWARDEN_FOLDER": str(tmp_path), "RANK": rank}
        subprocess.run(
            [sys.executable, "-c", setup + code], env=environment, check=True, timeout=60
        )
    assert {beat.rank for beat in read_beats(tmp_path / "beats")} == {0, 1}
