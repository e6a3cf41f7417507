"""Both programs as processes on a port of the loopback interface, and raw requests to them."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.remediator.samples import TOKEN
from tests.waiting import until

import ports

LIMIT_OF_DESCRIPTORS = 1024
EXPORTER, REMEDIATOR = "exporter", "remediator"
PATIENCE = 60.0


@dataclass
class Answer:
    status: int
    head: str
    closed: bool
    """Whether the server closed the connection after it."""


class Program:
    """The exporter, or the remediator with the token of the samples, in `folder`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *options: str,
        descriptors: int = LIMIT_OF_DESCRIPTORS,
        within: Sequence[str] = (),
        waits: bool = True,
    ) -> None:
        """`within` is the start of its command line; `waits`: until it is ready."""
        self.name = name
        self.token = TOKEN if name == REMEDIATOR else ""
        self.address = (ports.LOOPBACK, ports.free_port())
        self.log_file = folder / f"{name}.log"
        config = folder / f"{name}.yml"
        if not config.exists():
            write_config(name, config)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*within, sys.executable, "-m", f"trainwarden_{name}", "run"),
                    f"--config.file={config}",
                    f"--web.listen-address=127.0.0.1:{self.address[1]}",
                    *options,
                ],
                stdout=log,
                stderr=log,
                preexec_fn=limit,  # noqa: PLW1509 - the tests that start programs have one thread
            )
        if waits:
            until(lambda: self.process.poll() is not None or self.is_ready())
            assert self.process.poll() is None, self.log

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/-/ready").status == 200
        except OSError:
            return False

    @property
    def log(self) -> list[str]:
        return self.log_file.read_text().splitlines()

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def memory(self, key: str = "VmRSS") -> int:
        """Bytes of resident memory now, or with `VmHWM` at most so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{key}:"))
        return int(line.split()[1]) * 1024

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, *, receive_buffer: int | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE)
        try:
            sock.connect(self.address)
        except OSError:
            sock.close()
            raise
        return sock

    def ask(
        self, method: str, path: str, body: bytes = b"", *, host: str = "localhost", **headers: str
    ) -> Answer:
        """The answer to a request; `headers` have underscores for hyphens."""
        given = {"Host": host, **{key.replace("_", "-"): text for key, text in headers.items()}}
        if body and "Content-Length" not in given:
            given["Content-Length"] = str(len(body))
        lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {text}" for key, text in given.items())]
        with self.connect() as sock:
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            with suppress(ConnectionError):  # the answer may come before the end of the body
                sock.sendall(body)
            return read_answer(sock)

    def page(self, path: str) -> str:
        url = f"http://{self.address[0]}:{self.address[1]}{path}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def read_answer(sock: socket.socket) -> Answer:
    received = b""
    while b"\r\n\r\n" not in received:
        if not (piece := sock.recv(65536)):
            raise ConnectionResetError("closed without an answer")
        received += piece
    head, _, content = received.partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    lines = [line.partition(": ") for line in text.split("\r\n")[1:]]
    lengths = [int(value) for name, _, value in lines if name.lower() == "content-length"]
    missing = (lengths[0] if lengths else 0) - len(content)
    while missing > 0:
        missing -= len(sock.recv(65536))
    return Answer(int(text.split()[1]), text, "Connection: close" in text)


def write_config(name: str, file: Path) -> None:
    if name == EXPORTER:
        file.write_text("runs: []\n")
        return
    (file.parent / "token").write_text(TOKEN)
    file.write_text(
        "token_file: token\njournal: state/journal.db\nhold_file: state/hold\n"
        "exporter: {url: 'http://127.0.0.1:9', config: runs.yml}\n"
        "alertmanager: {url: 'http://127.0.0.1:9'}\ntargets: []\n"
    )
    (file.parent / "runs.yml").write_text("runs: []\n")


def has_ended(sock: socket.socket) -> bool:
    """Whether the server closed the connection; waits for it."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def steady(figure: Callable[[], int], seconds: float = 1.0) -> int:
    """The figure once it has not changed for so long."""
    last, since = figure(), time.monotonic()
    deadline = since + PATIENCE
    while time.monotonic() - since < seconds:
        assert time.monotonic() < deadline, "it never came to rest"
        time.sleep(0.02)
        if (now := figure()) != last:
            last, since = now, time.monotonic()
    return last
