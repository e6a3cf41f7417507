"""The parts of the stack as children of a test, each alone, and an on-call who gets pages."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

import ports
import runfolder
import stack
from readiness import READY_PATH, tail
from running import fetch, read_journal

Part = Literal["exporter", "prometheus", "alertmanager", "remediator"]
PARTS: tuple[Part, ...] = ("exporter", "prometheus", "alertmanager", "remediator")
READY_SECONDS = 60


class Person:
    """The on-call of the shipped Alertmanager configuration; only the kind of receiver differs."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Mapping[str, Any]]] = []
        """When each call came, in unix seconds, and its body."""
        person = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                person.calls.append((time.time(), json.loads(body)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((ports.LOOPBACK, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://{ports.LOOPBACK}:{self._server.server_port}/"

    def calls_about(self, rule: str) -> list[tuple[float, Mapping[str, Any]]]:
        """The calls that say that `rule` fires."""
        return [
            (moment, call)
            for moment, call in self.calls
            if call["status"] == "firing" and call["groupLabels"].get("alertname") == rule
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Parts:
    """The stack for the configuration in the folder `config`, none of it started yet."""

    def __init__(self, folder: Path, config: Path, *, mode: Literal["observe", "act"]) -> None:
        binaries = stack.find_binaries()
        self.config = config
        self.run = runfolder.prepare_own(folder, config, binaries, mode=mode, any_free=True)
        self.person = Person()
        file = folder / "alertmanager.yml"
        settings = yaml.safe_load(file.read_text())
        (receiver,) = (one for one in settings["receivers"] if one["name"] == "on-call")
        receiver["webhook_configs"] = [{"url": self.person.url, "send_resolved": True}]
        file.write_text(yaml.safe_dump(settings))
        self._commands = runfolder._commands(self.run, binaries, mode)
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *parts: Part) -> None:
        """Start them, and wait until they say that they are ready."""
        for part in parts:
            with self.run.log(part).open("ab") as log:
                self._children[part] = subprocess.Popen(
                    self._commands[part],
                    cwd=self.run.path,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for part in parts:
            self.wait_until(lambda part=part: self._is_ready(part), READY_SECONDS)  # type: ignore[misc]

    def command(self, part: Part) -> list[str]:
        """How it is started."""
        return [str(word) for word in self._commands[part]]

    def kill(self, part: Part) -> None:
        """End it as an OOM kill does."""
        child = self._children.pop(part)
        child.kill()
        child.wait()

    def close(self) -> None:
        """End what was started, the remediator first: it must not start what is being ended."""
        for part in reversed(PARTS):
            child = self._children.pop(part, None)
            if child is not None:
                child.terminate()
                try:
                    child.wait(60)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        self.person.close()

    def wait_until(self, seen: Callable[[], object], seconds: float) -> None:
        """Until `seen` returns something true; fails the test when that takes too long."""
        deadline = time.monotonic() + seconds
        while not seen():
            dead = [name for name, child in self._children.items() if child.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = [f"{part}:\n{tail(self.run.log(part))}" for part in dead or PARTS]
                pytest.fail("\n".join([f"not seen within {seconds} s", *logs]))
            time.sleep(0.2)

    def firing(self, rule: str) -> list[Mapping[str, Any]]:
        """The alerts of a rule that fire, as Prometheus has them."""
        answer = json.loads(fetch(f"{self.run.url('prometheus')}/api/v1/alerts")[1])
        alerts: list[Mapping[str, Any]] = answer["data"]["alerts"]
        return [
            alert
            for alert in alerts
            if alert["labels"]["alertname"] == rule and alert["state"] == "firing"
        ]

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """What Prometheus answers to an instant query."""
        url = f"{self.run.url('prometheus')}/api/v1/query"
        body = f"query={_quoted(expression)}".encode()
        return list(json.loads(fetch(url, data=body)[1])["data"]["result"])

    def journal(self) -> list[dict[str, Any]]:
        """All that the remediator has written down."""
        return read_journal(self.run.remediator_file)

    def _is_ready(self, part: Part) -> bool:
        try:
            return fetch(f"{self.run.url(part)}{READY_PATH}")[0] == 200
        except OSError:
            return False


@contextmanager
def parts(
    folder: Path, config: Path, *, mode: Literal["observe", "act"] = "act"
) -> Iterator[Parts]:
    made = Parts(folder, config, mode=mode)
    try:
        yield made
    finally:
        made.close()


def write_config(
    folder: Path, exporter: Mapping[str, Any], remediator: Mapping[str, Any] | None = None
) -> Path:
    """Files in a folder of configuration that talk to each other on free ports; the folder."""
    folder.mkdir(parents=True)
    free = ports.choose(any_free=True)
    shared = {
        "mode": "act",
        "token_file": "token",
        "exporter": {
            "url": f"http://{ports.LOOPBACK}:{free['exporter']}",
            "config": "exporter.yml",
        },
        "alertmanager": {"url": f"http://{ports.LOOPBACK}:{free['alertmanager']}"},
    }
    (folder / "exporter.yml").write_text(yaml.safe_dump(dict(exporter)))
    (folder / "remediator.yml").write_text(yaml.safe_dump({**shared, **(remediator or {})}))
    return folder


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
